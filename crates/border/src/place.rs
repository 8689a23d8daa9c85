//! The destination of a connection, the gate for its requests, and the reasons for refusals.

use crate::http::Request;
use crate::secret::Secret;
use std::sync::Arc;

/// A host and the secrets bound to it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The normalized name. Requests must name this host and no other.
    pub name: String,
    pub port: u16,
    pub secrets: Arc<Vec<Secret>>,
}

impl Place {
    /// Whether a host, in its one form, and at most the port of this place are named.
    pub(crate) fn is(&self, host: Option<&str>, port: Option<u16>) -> bool {
        host == Some(self.name.as_str()) && port.is_none_or(|port| port == self.port)
    }

    /// Whether bodies may have to be buffered before a request is sent.
    pub fn needs_bodies(&self) -> bool {
        self.secrets.iter().any(|secret| secret.body || secret.aws)
    }
}

/// Decides about requests, and learns which secrets were put into them.
pub trait Gate {
    /// Whether a request may be sent. It is given as the sandbox wrote it; `used` are the names of
    /// the secrets that are put into it.
    fn ask(&mut self, request: &Request, used: &[String]) -> bool;
}

/// Bytes for both sides.
#[derive(Debug, Default)]
pub struct Out {
    /// To the host.
    pub forward: Vec<u8>,
    /// Back to the sandbox.
    pub back: Vec<u8>,
}

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("the request can be read in more than one way, or is no HTTP")]
    Malformed,
    #[error("the request names another host than the connection")]
    NameMismatch,
    #[error("the request is not allowed")]
    NotAllowed,
    #[error("the request would turn the connection into something else")]
    Upgrade,
    #[error("the answer to this method repeats the request, with the secret in it")]
    Echo,
    #[error("the head or the body is too large for secrets to be put into it")]
    TooLarge,
    #[error("presigned requests are not signed again: sign in the header")]
    Presigned,
    #[error("bodies that are signed in chunks are not signed again")]
    ChunkSigned,
    #[error("the signature is not one made with the placeholder")]
    Signature,
    #[error("client and host have no protocol in common that can be looked into")]
    NoProtocol,
    #[error("the host's certificate is not one to trust")]
    NotTrusted,
    #[error("TLS of the host failed")]
    HostTls,
    #[error("TLS of the sandbox failed")]
    GuestTls,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::authority;

    #[test]
    fn a_place_is_named_by_its_host_and_at_most_its_port() {
        let place = Place {
            name: "api.example".to_owned(),
            port: 443,
            secrets: Arc::default(),
        };
        for fine in [
            "api.example",
            "API.example",
            "api.example:443",
            "api.example.",
        ] {
            let (host, port) = authority(fine).unwrap();
            assert!(place.is(Some(&host), port), "{fine}");
        }
        for other in [
            "",
            "example",
            "api.example:80",
            "api.example:",
            "x.api.example",
            "api.example@b",
        ] {
            let named = authority(other).is_ok_and(|(host, port)| place.is(Some(&host), port));
            assert!(!named, "{other}");
        }
    }
}
