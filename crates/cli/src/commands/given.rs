//! What is given on the command line, as the service wants it.

use motu_core::call::SecretRef;
use motu_core::workspace::{ExportOptions, SecretSource};
use motu_core::{Error, Result, limits};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Stands for standard input where a file is asked for.
const STDIN: &str = "-";

/// What a copy on this host may replace, and how large it may be.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Export {
    /// Replace a plain file that is there; nothing else is ever replaced
    #[arg(long)]
    force: bool,

    /// The most bytes of contents, holes included [default: 16 GiB]
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
}

impl From<Export> for ExportOptions {
    fn from(given: Export) -> ExportOptions {
        ExportOptions {
            force: given.force,
            max_bytes: given.max_bytes,
        }
    }
}

/// A path of this host as the daemon, which works elsewhere, must be told it.
pub fn host_path(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
    match absolute.to_str() {
        Some(text) => Ok(text.to_string()),
        None => Err(Error::invalid(format!(
            "{}: the path is not UTF-8",
            path.display()
        ))),
    }
}

/// Text that is given as it is, or is in a file, or comes from standard input.
pub fn text(given: Option<String>, file: Option<&Path>, limit: &limits::Limit) -> Result<String> {
    match (given, file) {
        (Some(text), _) => Ok(text),
        (None, Some(path)) => read(path, limit),
        (None, None) => Err(Error::invalid("there is no text")),
    }
}

/// Reads a text file, or standard input; never much more than may be sent.
pub fn read(path: &Path, limit: &limits::Limit) -> Result<String> {
    let context = format!("read {}", path.display());
    let failed = |error: std::io::Error| Error::with_file(&context, &error);
    let mut bytes = Vec::new();
    let most = limit.max + 1;
    if path == Path::new(STDIN) {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(most).read_to_end(&mut bytes)
    }
    .map_err(failed)?;
    if bytes.len() as u64 > limit.max {
        return Err(Error::limit(format!(
            "{}: longer than the {} bytes of {}",
            path.display(),
            limit.max,
            limit.name
        ))
        .details(serde_json::json!({"limit": limit.name, "max": limit.max})));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::invalid(format!("{}: not UTF-8 text", path.display())))
}

/// `KEY=VALUE`.
fn pair(text: &str, what: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        // The input is not quoted: it may be the value of a secret.
        _ => Err(Error::invalid(format!("{what} takes {}", shape(what)))),
    }
}

fn shape(what: &str) -> &'static str {
    match what {
        "--label" => "KEY=VALUE",
        "--secret" => "NAME=VALUE",
        "--secret-ref" => "VARIABLE=SECRET",
        _ => "NAME=PATH",
    }
}

pub fn labels(given: &[String]) -> Result<BTreeMap<String, String>> {
    given.iter().map(|text| pair(text, "--label")).collect()
}

/// Variables, and the names of the secrets they stand for.
pub fn secret_refs(given: &[String]) -> Result<BTreeMap<String, SecretRef>> {
    let mut refs = BTreeMap::new();
    for text in given {
        let (variable, name) = pair(text, "--secret-ref")?;
        if refs.insert(variable.clone(), SecretRef { name }).is_some() {
            return Err(Error::invalid(format!(
                "--secret-ref gives {variable} twice"
            )));
        }
    }
    Ok(refs)
}

/// Secrets by value and by file. A file is read by the daemon, standard input here.
pub fn secrets(values: &[String], files: &[String]) -> Result<Vec<SecretSource>> {
    let mut secrets = Vec::new();
    for text in values {
        let (name, value) = pair(text, "--secret")?;
        secrets.push(SecretSource {
            name,
            value: Some(value),
            path: None,
        });
    }
    let mut stdin_taken = false;
    for text in files {
        let (name, path) = pair(text, "--secret-file")?;
        let (value, path) = if path == STDIN {
            if std::mem::replace(&mut stdin_taken, true) {
                return Err(Error::invalid(
                    "only one secret can come from standard input",
                ));
            }
            (Some(read(Path::new(STDIN), &limits::SECRET_BYTES)?), None)
        } else {
            (None, Some(host_path(Path::new(&path))?))
        };
        secrets.push(SecretSource { name, value, path });
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_absolute() {
        let here = std::env::current_dir().unwrap();
        let given = host_path(Path::new("a/../b")).unwrap();
        assert_eq!(given, format!("{}/a/../b", here.display()));
        assert_eq!(host_path(Path::new("/x")).unwrap(), "/x");
    }

    #[test]
    fn secrets_are_values_or_files() {
        let made = secrets(&["A=b=c".to_string()], &["F=/etc/key".to_string()]).unwrap();
        assert_eq!(made[0].value.as_deref(), Some("b=c"));
        assert_eq!(made[1].path.as_deref(), Some("/etc/key"));
        let error = secrets(&["hunter2".to_string()], &[]).unwrap_err();
        assert_eq!(error.message, "--secret takes NAME=VALUE");
    }

    #[test]
    fn long_files_are_refused_by_name() {
        let error = read(Path::new("/dev/zero"), &limits::PATCH_BYTES).unwrap_err();
        assert!(error.message.contains("patch_bytes"), "{error}");
    }
}
