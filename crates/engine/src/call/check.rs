//! Checks a typed call against the bounds of its policy. Pure: the result can be executed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use motu_core::call::{CallFile, CallNetworkMode, CallRequest, Retention, WORK};
use motu_core::files::GuestPath;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::policy::CallBounds;
use motu_core::{Error, ErrorKind, Result, SandboxId};

/// Calls may read and write below these directories; the first is the working directory.
const ROOTS: [&str; 3] = [WORK, "/workspace", "/tmp"];

/// A call that has passed all checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub environment: String,
    pub files: Vec<Input>,
    pub timeout_seconds: u64,
    pub max_output_bytes: u64,
    pub retention: Retention,
    /// The state of an earlier call, which this one goes on with.
    pub from: Option<SandboxId>,
    /// The time to live of the workspace that the call leaves behind.
    pub ttl_seconds: u64,
    pub files_out: Vec<GuestPath>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    pub path: GuestPath,
    pub content: Bytes,
    pub mode: u32,
}

/// The result of each check that needs no access to the host; all are made, even after a failure.
pub fn every(request: &CallRequest, bounds: &CallBounds) -> Vec<(&'static str, Result<()>)> {
    vec![
        ("command", check_command(request)),
        ("state", check_state(request, bounds).map(drop)),
        ("limits", check_sizes(request, bounds)),
        ("times and sizes", check_numbers(request, bounds).map(drop)),
        ("secrets", check_secrets(request, bounds)),
        ("network.allow", check_network(request)),
        ("environment", environment(request, bounds).map(drop)),
        ("files", inputs(&request.files, bounds).map(drop)),
        ("files_out", outputs(&request.files_out, bounds).map(drop)),
    ]
}

/// All checks that need no access to the host; stops at the first failure.
pub fn check(request: &CallRequest, bounds: &CallBounds) -> Result<Checked> {
    check_command(request)?;
    let retention = check_state(request, bounds)?;
    check_sizes(request, bounds)?;
    check_secrets(request, bounds)?;
    check_network(request)?;
    let numbers = check_numbers(request, bounds)?;
    Ok(Checked {
        environment: environment(request, bounds)?,
        files: inputs(&request.files, bounds)?,
        timeout_seconds: numbers.timeout_seconds,
        max_output_bytes: numbers.max_output_bytes,
        retention,
        from: request.state.as_ref().and_then(|state| state.from.clone()),
        ttl_seconds: numbers.ttl_seconds,
        files_out: outputs(&request.files_out, bounds)?,
    })
}

fn check_command(request: &CallRequest) -> Result<()> {
    match request.command.first().is_none_or(String::is_empty) {
        true => Err(Error::invalid("command is empty").hint("the program and its arguments")),
        false => Ok(()),
    }
}

fn check_state(request: &CallRequest, bounds: &CallBounds) -> Result<Retention> {
    let state = request.state.as_ref().ok_or_else(|| {
        Error::invalid("state.retention is missing: it must be said what becomes of the state")
            .hint("one of: destroy, stop, cold, snapshot")
    })?;
    let retention = state.retention.as_str();
    if !bounds.retention.iter().any(|allowed| allowed == retention) {
        return Err(denied(format!("retention {retention}"), "call.retention"));
    }
    if state.ttl_seconds.is_some() && state.retention == Retention::Destroy {
        return Err(Error::invalid(
            "state.ttl_seconds is for a state that is kept",
        ));
    }
    Ok(state.retention)
}

fn check_network(request: &CallRequest) -> Result<()> {
    if request.network.mode == CallNetworkMode::None && !request.network.allow.is_empty() {
        return Err(
            Error::invalid("network.allow names destinations, but network.mode is none")
                .hint("`\"mode\": \"bridge\"`, with a policy that allows them"),
        );
    }
    Ok(())
}

struct Numbers {
    timeout_seconds: u64,
    max_output_bytes: u64,
    ttl_seconds: u64,
}

fn check_numbers(request: &CallRequest, bounds: &CallBounds) -> Result<Numbers> {
    let timeout = request.timeout_seconds.unwrap_or(bounds.timeout_seconds);
    let ttl = request.state.as_ref().and_then(|state| state.ttl_seconds);
    let ttl = ttl.unwrap_or(bounds.ttl_seconds);
    let output = request.max_output_bytes.unwrap_or(bounds.max_output_bytes);
    Ok(Numbers {
        timeout_seconds: within("timeout_seconds", timeout, 1, bounds.max_timeout_seconds)?,
        max_output_bytes: within("max_output_bytes", output, 0, bounds.max_output_bytes)?,
        ttl_seconds: within("state.ttl_seconds", ttl, 60, bounds.max_ttl_seconds)?,
    })
}

fn denied(what: String, field: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("the policy of this call does not allow {what}"),
    )
    .hint(hint![verb("get_policy"), " says what it allows"])
    .details(serde_json::json!({ "rule": field }))
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<u64> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(Error::invalid(format!(
            "{name} is {value}; the policy allows {least} to {most}"
        ))
        .details(serde_json::json!({"limit": name, "value": value, "min": least, "max": most}))),
    }
}

fn check_sizes(request: &CallRequest, bounds: &CallBounds) -> Result<()> {
    let limits = &request.limits.size;
    let from = request.state.as_ref().and_then(|state| state.from.as_ref());
    if from.is_some() && *limits != Default::default() {
        return Err(
            Error::invalid("limits are for a new machine, and state.from has one")
                .hint("leave `limits` out"),
        );
    }
    for (name, asked, most) in [
        (
            "limits.vcpu_count",
            limits.vcpu_count,
            bounds.max_vcpu_count,
        ),
        ("limits.mem_mib", limits.mem_mib, bounds.max_mem_mib),
        ("limits.disk_mib", limits.disk_mib, bounds.max_disk_mib),
    ] {
        asked.map_or(Ok(0), |asked| within(name, asked, 1, most))?;
    }
    Ok(())
}

fn check_secrets(request: &CallRequest, bounds: &CallBounds) -> Result<()> {
    for (variable, secret) in &request.secrets {
        let first = variable.chars().next();
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if first.is_none_or(|c| c.is_ascii_digit()) || !variable.chars().all(fine) {
            return Err(Error::invalid(format!(
                "secrets: {variable:?} is no name of a variable"
            )));
        }
        if !bounds.secrets.contains(&secret.name) {
            // What it refers to is not quoted: it may be a value that was taken for a name.
            return Err(denied(
                format!("the secret that {variable} refers to"),
                "call.secrets",
            ));
        }
    }
    Ok(())
}

fn environment(request: &CallRequest, bounds: &CallBounds) -> Result<String> {
    match (&request.language, &request.image) {
        (Some(language), None) => bounds.languages.get(language).cloned().ok_or_else(|| {
            let known: Vec<_> = bounds.languages.keys().cloned().collect();
            Error::invalid(format!("there is no language {language:?}"))
                .hint(format!("one of: {}", known.join(", ")))
        }),
        (None, Some(image)) if bounds.images.contains(image) => Ok(image.clone()),
        (None, Some(image)) => Err(denied(format!("the image {image:?}"), "call.images")),
        _ => Err(Error::invalid(
            "a call names a language or an image, and not both",
        )),
    }
}

/// Parses a path inside the machine and confines it to `ROOTS`.
fn guest_path(path: &str, field: &str) -> Result<GuestPath> {
    let wrong = |why: &str| {
        Error::invalid(format!("{field}: {path:?} {why}")).hint(format!(
            "paths are below {}, or relative to {WORK}",
            ROOTS.join(", ")
        ))
    };
    if path.is_empty() || path.contains('\0') || path.ends_with('/') {
        return Err(wrong("is no path of a file"));
    }
    if path.split('/').any(|part| part == ".." || part == ".") {
        return Err(wrong("leads somewhere else"));
    }
    let whole = match path.starts_with('/') {
        true => path.to_string(),
        false => format!("{WORK}/{path}"),
    };
    let below = |root: &str| {
        let rest = whole.strip_prefix(root);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    if !ROOTS.into_iter().any(below) {
        return Err(wrong("is not where a call may work"));
    }
    GuestPath::new(Bytes::from(whole))
}

fn inputs(files: &[CallFile], bounds: &CallBounds) -> Result<Vec<Input>> {
    within("files", files.len() as u64, 0, bounds.files)?;
    let mut all: Vec<Input> = Vec::new();
    let mut total = 0;
    for file in files {
        let path = guest_path(&file.path, "files")?;
        let content = match file.encoding.as_deref() {
            None | Some("utf-8") => Bytes::copy_from_slice(file.content.as_bytes()),
            Some("base64") => STANDARD
                .decode(&file.content)
                .map_err(|_| Error::invalid(format!("files: {:?} is not base64", file.path)))?
                .into(),
            Some(other) => {
                return Err(Error::invalid(format!(
                    "files: {:?}: there is no encoding {other:?}",
                    file.path
                ))
                .hint("utf-8 or base64"));
            }
        };
        let size = content.len() as u64;
        within(
            &format!("the size of {:?}", file.path),
            size,
            0,
            bounds.file_bytes,
        )?;
        total += size;
        within("the size of all files", total, 0, bounds.all_files_bytes)?;
        if all.iter().any(|other| other.path == path) {
            return Err(Error::invalid(format!(
                "files: {:?} is there twice",
                file.path
            )));
        }
        all.push(Input {
            path,
            content,
            mode: if file.executable { 0o755 } else { 0o644 },
        });
    }
    Ok(all)
}

fn outputs(paths: &[String], bounds: &CallBounds) -> Result<Vec<GuestPath>> {
    within("files_out", paths.len() as u64, 0, bounds.output_files)?;
    let parse = |path: &String| guest_path(path, "files_out");
    paths.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::call::{CallDestination, CallState, SecretRef};

    fn bounds() -> CallBounds {
        let text = "version = 1\n[call]\nsecrets = [\"key\"]\nretention = [\"destroy\", \"stop\"]";
        motu_policy::parse("p", "file", text).unwrap().policy.call
    }

    fn request() -> CallRequest {
        CallRequest {
            language: Some("python".to_string()),
            files: vec![file("/work/main.py", "print('hello')")],
            command: vec!["python3".to_string(), "/work/main.py".to_string()],
            state: Some(CallState {
                retention: Retention::Destroy,
                from: None,
                ttl_seconds: None,
            }),
            ..CallRequest::default()
        }
    }

    fn file(path: &str, content: &str) -> CallFile {
        CallFile {
            path: path.to_string(),
            content: content.to_string(),
            ..CallFile::default()
        }
    }

    fn refused(change: impl FnOnce(&mut CallRequest)) -> Error {
        let mut request = request();
        change(&mut request);
        check(&request, &bounds()).unwrap_err()
    }

    #[test]
    fn the_example_of_the_contract_is_fine() {
        let checked = check(&request(), &bounds()).unwrap();
        assert_eq!(checked.environment, "debian:12");
        assert_eq!(checked.timeout_seconds, 20);
        assert_eq!(checked.max_output_bytes, 262_144);
        assert_eq!(&checked.files[0].path.as_bytes()[..], b"/work/main.py");
        assert_eq!(checked.files[0].mode, 0o644);
    }

    #[test]
    fn paths_stay_where_calls_work() {
        let text = |path: GuestPath| String::from_utf8_lossy(path.as_bytes()).into_owned();
        let fine = |path: &str| guest_path(path, "files").map(text);
        assert_eq!(fine("a/b.py").unwrap(), "/work/a/b.py");
        assert_eq!(fine("/tmp/x").unwrap(), "/tmp/x");
        for path in [
            "/etc/passwd",
            "/work",
            "/work/",
            "/workshop/x",
            "../x",
            "/work/../etc/passwd",
            "/work/./x",
            "",
            "a\0b",
            "/",
            "/work/..",
            "/proc/self/mem",
        ] {
            assert_eq!(fine(path).unwrap_err().kind, ErrorKind::Invalid, "{path:?}");
        }
    }

    #[test]
    fn every_bound_is_kept() {
        let many = |request: &mut CallRequest| {
            request.files = (0..65).map(|n| file(&format!("f{n}"), "")).collect();
        };
        assert!(refused(many).message.contains("files is 65"));
        let large = "x".repeat((1 << 20) + 1);
        assert!(
            refused(|r| r.files = vec![file("f", &large)])
                .message
                .contains("size of")
        );
        let near = "x".repeat(1 << 20);
        let heavy = |r: &mut CallRequest| {
            r.files = (0..9).map(|n| file(&format!("f{n}"), &near)).collect();
        };
        assert!(refused(heavy).message.contains("all files"));
        assert!(
            refused(|r| r.timeout_seconds = Some(601))
                .message
                .contains("601")
        );
        assert!(
            refused(|r| r.timeout_seconds = Some(0))
                .message
                .contains("is 0")
        );
        assert!(
            refused(|r| r.max_output_bytes = Some(262_145))
                .message
                .contains("262145")
        );
        assert!(
            refused(|r| r.limits.size.mem_mib = Some(1 << 30))
                .message
                .contains("mem_mib")
        );
        let out = |r: &mut CallRequest| r.files_out = (0..17).map(|n| format!("o{n}")).collect();
        assert!(refused(out).message.contains("files_out is 17"));
        let twice = |r: &mut CallRequest| r.files = vec![file("a", ""), file("/work/a", "")];
        assert!(refused(twice).message.contains("twice"));
    }

    #[test]
    fn what_must_be_said_is_missed_and_what_is_not_granted_is_denied() {
        assert!(refused(|r| r.state = None).message.contains("retention"));
        assert!(
            refused(|r| r.command = Vec::new())
                .message
                .contains("command")
        );
        assert!(
            refused(|r| r.language = None)
                .message
                .contains("a language or an image")
        );
        assert!(
            refused(|r| r.language = Some("cobol".into()))
                .hint
                .unwrap()
                .contains("python")
        );
        let image = refused(|r| {
            r.language = None;
            r.image = Some("evil:latest".into());
        });
        assert_eq!(image.kind, ErrorKind::Denied);
        let kept = refused(|r| {
            r.state = Some(CallState {
                retention: Retention::Snapshot,
                from: None,
                ttl_seconds: None,
            });
        });
        assert_eq!(kept.kind, ErrorKind::Denied);
        let secret = |name: &str| SecretRef {
            name: name.to_string(),
        };
        let other = refused(|r| r.secrets = [("K".to_string(), secret("other"))].into());
        assert_eq!(other.kind, ErrorKind::Denied);
        let variable = refused(|r| r.secrets = [("1K".to_string(), secret("key"))].into());
        assert_eq!(variable.kind, ErrorKind::Invalid);
        let to = CallDestination {
            host: "a.example".to_string(),
            port: 443,
        };
        let closed = refused(|r| r.network.allow = vec![to]);
        assert!(closed.message.contains("network.mode is none"));
    }

    #[test]
    fn bytes_come_as_base64() {
        let mut binary = request();
        binary.files[0].encoding = Some("base64".to_string());
        binary.files[0].content = "AP8=".to_string();
        let checked = check(&binary, &bounds()).unwrap();
        assert_eq!(&*checked.files[0].content, b"\0\xff");
        assert!(
            refused(|r| r.files[0].encoding = Some("base64".into()))
                .message
                .contains("base64")
        );
        assert!(
            refused(|r| r.files[0].encoding = Some("hex".into()))
                .message
                .contains("hex")
        );
    }
}
