//! Who calls, and what that alone allows.
//!
//! A path of the host in a request is read or written by the daemon with the
//! daemon's rights. That is fine for whoever can open the private socket: it is
//! the daemon's own user. It would be a hole for anybody else, so every verb
//! that takes such a path asks here. So does a terminal on the host itself.

use crate::app::App;
use axum::extract::FromRequestParts;
use http::request::Parts;
use motu_core::terminal::OpenTerminal;
use motu_core::workspace::CreateWorkspace;
use motu_core::{Error, ErrorKind, Result};
use std::convert::Infallible;

/// Where a connection came from. A listener that does not say is remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The private socket in the state directory.
    Local,
    Remote,
}

impl Caller {
    fn of(parts: &Parts) -> Caller {
        let told = parts.extensions.get::<Caller>().copied();
        told.unwrap_or(Caller::Remote)
    }

    /// Whether a request may name a path of the host; `field` is where it does.
    pub fn may_name_host_path(self, field: &str) -> Result<()> {
        match self {
            Caller::Local => Ok(()),
            Caller::Remote => Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "{field} is a path of the host, which only callers of the local socket may name"
                ),
            )
            .hint("send the content itself: as a file, a patch or a tree")
            .details(serde_json::json!({"field": field}))),
        }
    }

    /// Whether a session may be on the host itself.
    pub fn may_open(self, request: &OpenTerminal) -> Result<()> {
        match self {
            Caller::Remote if request.host => Err(Error::new(
                ErrorKind::Denied,
                "only callers of the local socket may open a terminal on the host",
            )
            .hint("leave `host` out: the session gets a sandbox")
            .details(serde_json::json!({"field": "host"}))),
            _ => Ok(()),
        }
    }

    /// The same for everything a new workspace may be made from.
    pub fn may_create(self, request: &CreateWorkspace) -> Result<()> {
        if request.seed_path.is_some() {
            self.may_name_host_path("seed_path")?;
        }
        if request.secrets.iter().any(|secret| secret.path.is_some()) {
            self.may_name_host_path("secrets.path")?;
        }
        Ok(())
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &App,
    ) -> std::result::Result<Self, Infallible> {
        Ok(Caller::of(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::workspace::SecretSource;

    #[test]
    fn paths_of_the_host_are_for_the_local_socket() {
        let secret = SecretSource {
            name: "KEY".to_string(),
            path: Some("/etc/shadow".to_string()),
            ..SecretSource::default()
        };
        let seeded = CreateWorkspace {
            seed_path: Some("/etc".to_string()),
            ..CreateWorkspace::default()
        };
        let secretive = CreateWorkspace {
            secrets: vec![secret],
            ..CreateWorkspace::default()
        };
        for request in [&seeded, &secretive] {
            assert_eq!(Caller::Local.may_create(request), Ok(()));
            let error = Caller::Remote.may_create(request).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        }
        let empty = CreateWorkspace::default();
        assert_eq!(Caller::Remote.may_create(&empty), Ok(()));
        assert!(Caller::Remote.may_name_host_path("output_path").is_err());
    }

    #[test]
    fn the_host_itself_is_for_the_local_socket() {
        let inside = OpenTerminal::default();
        let outside = OpenTerminal {
            host: true,
            ..OpenTerminal::default()
        };
        assert_eq!(Caller::Local.may_open(&outside), Ok(()));
        assert_eq!(Caller::Remote.may_open(&inside), Ok(()));
        let error = Caller::Remote.may_open(&outside).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    }

    #[test]
    fn a_listener_that_says_nothing_is_remote() {
        let mut parts = http::Request::new(()).into_parts().0;
        assert_eq!(Caller::of(&parts), Caller::Remote);
        parts.extensions.insert(Caller::Local);
        assert_eq!(Caller::of(&parts), Caller::Local);
    }
}
