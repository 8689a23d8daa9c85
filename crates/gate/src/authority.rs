//! What a caller may do.
//!
//! A path of the host in a request is read or written by the daemon with the daemon's rights.
//! That is fine for whoever can open the private socket: it is the daemon's own user. It would
//! be a hole for anybody else. So would a terminal on the host itself. Whoever has a key may do
//! what its scopes say, and only to what can be one project's.

use crate::caller::{Caller, Who};
use crate::reach::{self, Reach};
use motu_core::scope::Granted;
use motu_core::verb::{Ask, Info};
use motu_core::{Error, ErrorKind, Result};

/// Whether this caller may make this call.
pub fn check(caller: &Caller, verb: &Info, ask: &impl Ask) -> Result<()> {
    if caller.who.is_local() {
        return Ok(());
    }
    if verb.family == "keys" {
        let message = "only callers of the local socket make and revoke keys".to_string();
        return Err(denied(verb, "keys", message, "ask whoever runs this host"));
    }
    if let Who::Key(granted) = &caller.who {
        check_key(granted, verb)?;
    } else if verb.family == "audit" {
        // The log tells of everybody's calls.
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
            "only callers of the local socket may work on the host itself".to_string(),
            "leave `host` and `allow_host_compat` out: there is a sandbox to work in",
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

/// Whether this caller may read the measurements of the host.
pub fn check_measurements(caller: &Caller) -> Result<()> {
    let may = match &caller.who {
        Who::Local { .. } => true,
        Who::Key(granted) => granted.may_measure(),
        Who::Remote => false,
    };
    match may {
        true => Ok(()),
        false => Err(
            Error::new(ErrorKind::Denied, "the key has no scope for measurements")
                .hint("whoever runs this host can make one with the scope `metrics`")
                .details(serde_json::json!({"permission": "metrics"})),
        ),
    }
}

/// Whether a key may do this at all, whatever it is done to.
fn check_key(granted: &Granted, verb: &Info) -> Result<()> {
    if reach::of(verb) == Reach::Host {
        let message = format!(
            "{} is about the whole host, not about one project",
            verb.name
        );
        let hint = "callers of the local socket may do it; ask whoever runs this host";
        return Err(denied(verb, "key", message, hint));
    }
    match granted.may(verb) {
        true => Ok(()),
        false => Err(denied(
            verb,
            "scope",
            format!("the key has no scope for {}", verb.permission()),
            "whoever runs this host can make one that has",
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
