//! What a caller may do.
//!
//! A path of the host in a request is read or written by the daemon with the daemon's rights.
//! That is fine for whoever can open the private socket: it is the daemon's own user. It would
//! be a hole for anybody else. So would a terminal on the host itself.

use crate::caller::Caller;
use motu_core::verb::{Ask, Info};
use motu_core::{Error, ErrorKind, Result};

/// Whether this caller may make this call.
pub fn check(caller: &Caller, verb: &Info, ask: &impl Ask) -> Result<()> {
    if caller.who.is_local() {
        return Ok(());
    }
    // Until everything has an owner: the log tells of everybody's calls.
    if verb.family == "audit" {
        let message = "only callers of the local socket may read the audit log".to_string();
        return Err(denied(
            verb,
            "audit",
            message,
            "ask whoever runs this host for a receipt",
        ));
    }
    if ask.wants_host() {
        return Err(denied(
            verb,
            "host",
            "only callers of the local socket may open a terminal on the host".to_string(),
            "leave `host` out: the session gets a sandbox",
        ));
    }
    match ask.host_paths().first() {
        None => Ok(()),
        Some(field) => Err(denied(
            verb,
            field,
            format!("{field} is of the host, which only callers of the local socket may name"),
            "send the content itself: as a file, a patch or a tree",
        )),
    }
}

fn denied(verb: &Info, field: &str, message: String, hint: &str) -> Error {
    Error::new(ErrorKind::Denied, message)
        .hint(hint)
        .details(serde_json::json!({"field": field, "permission": verb.permission()}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Face, Who};
    use motu_core::report::BackUp;
    use motu_core::terminal::OpenTerminal;
    use motu_core::verb::{self, Verb};
    use motu_core::workspace::{CreateWorkspace, SecretSource};

    fn local() -> Caller {
        Caller::new(Who::Local { uid: 0 }, Face::Socket)
    }

    fn remote() -> Caller {
        Caller::new(Who::Remote, Face::Http)
    }

    fn only_locally(verb: &Info, ask: &impl Ask) {
        assert_eq!(check(&local(), verb, ask), Ok(()));
        let error = check(&remote(), verb, ask).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    }

    #[test]
    fn paths_of_the_host_are_for_the_local_socket() {
        let create = &verb::CreateWorkspace::INFO;
        let seeded = CreateWorkspace {
            seed_path: Some("/etc".to_string()),
            ..CreateWorkspace::default()
        };
        only_locally(create, &seeded);
        let secretive = CreateWorkspace {
            secrets: vec![SecretSource {
                name: "KEY".to_string(),
                path: Some("/etc/shadow".to_string()),
                ..SecretSource::default()
            }],
            ..CreateWorkspace::default()
        };
        only_locally(create, &secretive);
        assert_eq!(
            check(&remote(), create, &CreateWorkspace::default()),
            Ok(())
        );
        let output_path = "/root/x".to_string();
        only_locally(&verb::BackUp::INFO, &BackUp { output_path });
    }

    #[test]
    fn the_host_itself_is_for_the_local_socket() {
        let open = &verb::OpenTerminal::INFO;
        let outside = OpenTerminal {
            host: true,
            ..OpenTerminal::default()
        };
        only_locally(open, &outside);
        assert_eq!(check(&remote(), open, &OpenTerminal::default()), Ok(()));
    }
}
