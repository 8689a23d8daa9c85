//! What a caller may do that passes on what a model says.
//!
//! It is the operator's own program, such as `motu mcp serve`, and what it asks for is not the
//! operator's word. So it says with each call what it was started with ([`motu_core::Leave`]), and
//! no argument goes beyond that: not the host without a wall, whether it is asked for or only
//! used, and no path of the host but below the directories that were named.

use crate::caller::Caller;
use motu_core::hint::{Hint, host};
use motu_core::leave::{Access, HostPath};
use motu_core::verb::{Ask, Info};
use motu_core::{Error, ErrorKind, Isolation, Leave, Result, hint};
use std::path::{Component, Path, PathBuf};

/// Verbs that no such caller needs: they give rights to others, or show the host's directories.
const NEVER: &[&str] = &[
    "create_key",
    "revoke_key",
    "lend_file",
    "lend_directory",
    "backup",
];

/// Fields that are of the host and no paths: a published port is on loopback alone, and only where
/// the workspace's network, which was approved, has them.
const PORTS: &str = "published_ports";

/// Verbs that end a thing, or only say that it is there. They are allowed whatever stands around it.
const LOOKS_OR_ENDS: &[&str] = &[
    "get_sandbox",
    "stop_sandbox",
    "destroy_sandbox",
    "status_workspace",
    "stop_workspace",
    "delete_workspace",
    "list_services",
    "status_service",
    "stop_service",
    "list_snapshots",
    "list_shells",
    "close_shell",
    "get_terminal",
    "terminate_terminal",
];

pub fn looks_or_ends(verb: &Info) -> bool {
    LOOKS_OR_ENDS.contains(&verb.name)
}

/// Whether a caller may ask for this. Paths are replaced by where they lead, links included, so that
/// what is opened later is what was allowed.
pub async fn check(caller: &Caller, verb: &Info, ask: &mut impl Ask) -> Result<()> {
    let Some(leave) = &caller.leave else {
        return Ok(());
    };
    if NEVER.contains(&verb.name) {
        let message = format!("{} is not for what a model asks", verb.name);
        return Err(denied(verb, "leave", message, "ask whoever runs this host"));
    }
    if ask.wants_host() && !leave.unwalled {
        return Err(unwalled(verb));
    }
    for name in ask.environments() {
        check_environment(caller, verb, name).await?;
    }
    let fields = ask.host_paths();
    let mut known = vec![PORTS];
    for place in ask.places() {
        known.push(place.field);
        let HostPath {
            field,
            path,
            access,
        } = place;
        let (held, asked) = (leave.clone(), path.clone());
        let found = tokio::task::spawn_blocking(move || find(&held, &asked, access)).await;
        match found {
            Ok(Some(found)) => *path = found,
            Ok(None) => return Err(elsewhere(verb, field, leave)),
            Err(_) => return Err(Error::internal("a path of the host was not looked at")),
        }
    }
    match fields.into_iter().find(|field| !known.contains(field)) {
        None => Ok(()),
        Some(field) => {
            let message = format!("{field} is of the host, and not for what a model asks");
            Err(denied(verb, field, message, "ask whoever runs this host"))
        }
    }
}

/// Whether a caller may start from, or install, an environment of this name. Some names are paths:
/// `dir:/etc` is a machine whose root is a copy of that directory.
pub async fn check_environment(caller: &Caller, verb: &Info, name: &str) -> Result<()> {
    let path = name.split_once(':').map(|(_, path)| path);
    let (Some(leave), Some(path)) = (&caller.leave, path.filter(|path| path.starts_with('/')))
    else {
        return Ok(());
    };
    // A layout of images may be followed by a tag.
    let path = match path.rsplit_once(':') {
        Some((path, tag)) if name.starts_with("oci:") && !tag.contains('/') => path,
        _ => path,
    };
    let (held, asked) = (leave.clone(), path.to_string());
    let found = tokio::task::spawn_blocking(move || find(&held, &asked, Access::Reads)).await;
    // The name stays as it is, so it leads through no link.
    match found {
        Ok(Some(found)) if found == path => Ok(()),
        _ => Err(elsewhere(verb, "environment", leave)),
    }
}

/// Whether a caller may use what these walls stand around.
pub fn walled(caller: &Caller, verb: &Info, walls: Option<Isolation>) -> Result<()> {
    match &caller.leave {
        Some(leave) if walls == Some(Isolation::None) && !leave.unwalled => Err(unwalled(verb)),
        _ => Ok(()),
    }
}

/// Where a path leads, if that is at or below a directory that may be named.
fn find(leave: &Leave, asked: &str, access: Access) -> Option<String> {
    let asked = Path::new(asked);
    // `..` would be taken away after links are followed, or before: it is not needed.
    if asked.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let found = match access {
        Access::Reads => asked.canonicalize(),
        Access::Writes => target(asked),
    };
    // One that is not there is as good as its name: whoever opens it says so.
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => nearest(asked)?,
        Err(_) => return None,
    };
    let below = leave.directories.iter().any(|directory| {
        Path::new(directory)
            .canonicalize()
            .is_ok_and(|directory| found.starts_with(directory))
    });
    let found = found.into_os_string().into_string();
    found.ok().filter(|_| below)
}

/// What is written to: a directory that is there, or a new name in one.
fn target(asked: &Path) -> std::io::Result<PathBuf> {
    if asked.symlink_metadata().is_ok() {
        return asked.canonicalize();
    }
    match (asked.parent(), asked.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => asked.canonicalize(),
    }
}

/// The path with what is there of it followed to where it leads.
fn nearest(asked: &Path) -> Option<PathBuf> {
    let there = asked
        .ancestors()
        .find(|path| path.symlink_metadata().is_ok())?;
    // A link that leads nowhere now may lead somewhere later: it has no place to be in.
    let found = there.canonicalize().ok()?;
    Some(found.join(asked.strip_prefix(there).ok()?))
}

fn unwalled(verb: &Info) -> Error {
    denied(
        verb,
        "allow_host_compat",
        "running on the host itself, without isolation, is not for a model to decide".to_string(),
        hint![
            "leave it out: there are machines to work in; the operator can allow it with ",
            host("motu mcp serve --allow-host-compat")
        ],
    )
}

fn elsewhere(verb: &Info, field: &'static str, leave: &Leave) -> Error {
    let message = match leave.directories.as_slice() {
        [] => format!("{field} is a path of the host, and no directory of it may be used"),
        some => format!(
            "{field} is not in a directory of the host that may be used: {}",
            some.join(", ")
        ),
    };
    denied(
        verb,
        field,
        message,
        hint![
            "the operator can allow more with ",
            host("motu mcp serve --host-dir DIR")
        ],
    )
}

fn denied(verb: &Info, field: &str, message: String, hint: impl Into<Hint>) -> Error {
    Error::new(ErrorKind::Denied, message)
        .hint(hint)
        .details(serde_json::json!({"field": field, "permission": verb.permission()}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Face, Who};
    use motu_core::sandbox::CreateSandbox;
    use motu_core::secret::SetSecret;
    use motu_core::verb::{self, Verb};
    use motu_core::workspace::{CreateWorkspace, SecretSource, SyncPush};
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    fn model(leave: Leave) -> Caller {
        Caller::new(Who::Local { uid: 0 }, Face::Socket).held_to(Some(Arc::new(leave)))
    }

    fn below(directory: &Path) -> Leave {
        Leave {
            directories: vec![directory.display().to_string()],
            ..Leave::default()
        }
    }

    #[tokio::test]
    async fn the_host_without_walls_is_the_operators_to_allow() {
        let create = &verb::CreateSandbox::INFO;
        let mut ask = CreateSandbox {
            allow_host_compat: true,
            runtime: Some("host".to_string()),
            ..CreateSandbox::default()
        };
        let error = check(&model(Leave::default()), create, &mut ask)
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied);
        let free = Leave {
            unwalled: true,
            ..Leave::default()
        };
        assert_eq!(check(&model(free.clone()), create, &mut ask).await, Ok(()));
        // What is there already is no other matter.
        let exec = &verb::Exec::INFO;
        let bare = Some(Isolation::None);
        assert!(walled(&model(Leave::default()), exec, bare).is_err());
        assert_eq!(walled(&model(free), exec, bare), Ok(()));
        let container = Some(Isolation::Container);
        assert_eq!(walled(&model(Leave::default()), exec, container), Ok(()));
        let local = Caller::new(Who::Local { uid: 0 }, Face::Socket);
        assert_eq!(walled(&local, exec, bare), Ok(()));
    }

    #[tokio::test]
    async fn paths_of_the_host_end_below_the_directories_that_were_named() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (project, secret) = (top.join("project"), top.join("secret"));
        std::fs::create_dir_all(project.join("src")).unwrap();
        std::fs::create_dir(&secret).unwrap();
        symlink(&secret, project.join("link")).unwrap();
        symlink(project.join("src"), project.join("inner")).unwrap();
        symlink(secret.join("later"), project.join("dangling")).unwrap();
        let leave = below(&project);
        let found = |path: &str, access| {
            let asked = project.join(path).display().to_string();
            find(&leave, &asked, access).map(|found| {
                let found = Path::new(&found).strip_prefix(&project).unwrap();
                found.display().to_string()
            })
        };
        for access in [Access::Reads, Access::Writes] {
            assert_eq!(found("", access).as_deref(), Some(""));
            assert_eq!(found("src", access).as_deref(), Some("src"));
            assert_eq!(found("inner", access).as_deref(), Some("src"));
            assert_eq!(found("new", access).as_deref(), Some("new"));
            assert_eq!(found("none/new", access).as_deref(), Some("none/new"));
            for path in [
                "link",
                "link/x",
                "link/none/x",
                "dangling",
                "dangling/x",
                "src/../../secret",
                "..",
            ] {
                assert_eq!(found(path, access), None, "{path} {access:?}");
            }
            assert_eq!(find(&leave, "/etc", access), None);
            // A directory whose name only begins like it.
            let beside = format!("{}x", project.display());
            assert_eq!(find(&leave, &beside, access), None);
        }
    }

    #[tokio::test]
    async fn every_field_that_is_of_the_host_is_looked_at() {
        let top = tempfile::tempdir().unwrap();
        let caller = model(below(top.path()));
        let inside = top.path().display().to_string();
        let create = &verb::CreateWorkspace::INFO;
        let secret = |path: &str| SecretSource {
            name: "KEY".to_string(),
            path: Some(path.to_string()),
            ..SecretSource::default()
        };
        for (seed, path, allowed) in [
            (inside.as_str(), inside.as_str(), true),
            ("/etc", inside.as_str(), false),
            (inside.as_str(), "/etc/shadow", false),
        ] {
            let mut ask = CreateWorkspace {
                seed_path: Some(seed.to_string()),
                secrets: vec![secret(path)],
                ..CreateWorkspace::default()
            };
            let checked = check(&caller, create, &mut ask).await;
            assert_eq!(checked.is_ok(), allowed, "{seed} {path}");
        }
        let mut push = SyncPush {
            source_path: "/root/.ssh".to_string(),
            ..SyncPush::default()
        };
        let checked = check(&caller, &verb::PushWorkspaceSync::INFO, &mut push).await;
        assert_eq!(checked.unwrap_err().details["field"], "source_path");
        // A command of the host gives a value: no directory allows that.
        let mut set = SetSecret {
            command: Some(vec!["id".to_string()]),
            ..SetSecret::default()
        };
        let checked = check(&caller, &verb::SetSecret::INFO, &mut set).await;
        assert_eq!(checked.unwrap_err().details["field"], "command");
    }

    #[tokio::test]
    async fn a_name_of_an_environment_is_no_path_but_below_the_directories() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("layout")).unwrap();
        symlink("/etc", top.join("link")).unwrap();
        let caller = model(below(&top));
        let at = |name: &str| name.replace("TOP", &top.display().to_string());
        let create = &verb::CreateSandbox::INFO;
        for (environment, allowed) in [
            ("debian:12", true),
            ("localhost:5000/team/py:1", true),
            ("docker.io/library/python:3.12@sha256:00", true),
            ("dir:/etc", false),
            ("tar:/root/x.tar", false),
            ("oci:/srv/layout:tag", false),
            ("docker-archive:/srv/x.tar", false),
            ("dir:TOP", true),
            ("oci:TOP/layout:tag", true),
            ("dir:TOP/link", false),
            ("oci:TOP/link:tag", false),
            ("dir:TOP/../x", false),
        ] {
            let mut ask = CreateSandbox {
                environment: at(environment),
                ..CreateSandbox::default()
            };
            let checked = check(&caller, create, &mut ask).await;
            assert_eq!(checked.is_ok(), allowed, "{environment}");
        }
    }

    #[test]
    fn the_verbs_that_are_named_here_are_there() {
        let there: Vec<&str> = verb::all().map(|verb| verb.name).collect();
        for name in NEVER.iter().chain(LOOKS_OR_ENDS) {
            assert!(there.contains(name), "{name}");
        }
    }
}
