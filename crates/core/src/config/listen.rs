//! `[listen]`: REST and gRPC for callers of other hosts, who send a key.

use crate::{Error, limits};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The word for a certificate that the daemon makes itself.
const SELF: &str = "self";

/// Where callers with keys reach the daemon, and how long it is patient with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// An address and a port; only the local socket when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The certificate of this host and those it was signed with, in PEM; or `self`, for one that
    /// is made for loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// The private key of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The domain below which ports of sandboxes have names: `8000-sb-1.DOMAIN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Serve plain HTTP beyond loopback: somebody else encrypts it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Open connections of callers who have shown a good key.
    pub connections: u64,
    /// Open connections of all others.
    pub strangers: u64,
    /// For the handshake, and for the head of each request.
    pub head_seconds: u64,
    /// How long a body may pause.
    pub body_seconds: u64,
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Certificate {
    /// Made by the daemon and kept in its state directory.
    Own,
    File(PathBuf),
}

impl From<String> for Certificate {
    fn from(text: String) -> Certificate {
        match text.as_str() {
            SELF => Certificate::Own,
            _ => Certificate::File(text.into()),
        }
    }
}

impl From<Certificate> for String {
    fn from(certificate: Certificate) -> String {
        match certificate {
            Certificate::Own => SELF.to_string(),
            Certificate::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}

impl Default for ListenConfig {
    fn default() -> ListenConfig {
        ListenConfig {
            address: None,
            certificate: None,
            key: None,
            domain: None,
            insecure: false,
            connections: limits::LISTEN_CONNECTIONS.default,
            strangers: limits::LISTEN_STRANGERS.default,
            head_seconds: limits::LISTEN_HEAD_SECONDS.default,
            body_seconds: limits::LISTEN_BODY_SECONDS.default,
        }
    }
}

impl ListenConfig {
    /// Refuses what would show keys to whoever is on the way.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str, hint: &str| {
            Err(Error::invalid(format!("config.toml: [listen] {message}")).hint(hint))
        };
        let relative = |path: &PathBuf| !path.is_absolute();
        let certificate = match &self.certificate {
            Some(Certificate::File(path)) => Some(path),
            _ => None,
        };
        if certificate.is_some_and(relative) || self.key.as_ref().is_some_and(relative) {
            return wrong(
                "certificate and key must be absolute paths of files",
                "or `certificate = \"self\"` for one that is made for loopback",
            );
        }
        if certificate.is_some() != self.key.is_some() {
            return wrong(
                "has a certificate without a key, or a key without a certificate",
                "set certificate and key together, both files in PEM",
            );
        }
        if self.domain.as_deref().is_some_and(|name| !is_domain(name)) {
            return wrong(
                "domain is no name of a domain",
                "for example `domain = \"ports.example.com\"`, with a certificate for *.ports.example.com",
            );
        }
        let Some(address) = self.address else {
            return Ok(());
        };
        let near = address.ip().is_loopback();
        match &self.certificate {
            Some(Certificate::Own) if !near => wrong(
                "the certificate that is made here is good for loopback only",
                "set certificate and key to files of a certificate that others trust",
            ),
            None if !near && !self.insecure => wrong(
                &format!("{address} is beyond loopback, and there is no certificate"),
                "set certificate and key; or insecure = true, if something before it encrypts",
            ),
            _ => Ok(()),
        }
    }
}

/// Names of at least one label, of letters, digits and inner dashes, with room for the label before.
fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(fine)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 189 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn parsed(text: &str) -> Result<Config, crate::Error> {
        Config::parse(&format!("[listen]\n{text}"))
    }

    #[test]
    fn plain_http_stays_on_loopback_unless_somebody_says_so() {
        for fine in [
            "address = \"127.0.0.1:7777\"",
            "address = \"[::1]:7777\"\ncertificate = \"self\"",
            "address = \"0.0.0.0:7777\"\ninsecure = true",
            "address = \"0.0.0.0:7777\"\ncertificate = \"/c\"\nkey = \"/k\"",
            "domain = \"localhost\"",
            "domain = \"a-1.example.com\"",
        ] {
            assert!(parsed(fine).is_ok(), "{fine}");
        }
        for wrong in [
            "address = \"0.0.0.0:7777\"",
            "address = \"10.0.0.1:7777\"\ncertificate = \"self\"",
            "address = \"127.0.0.1:7777\"\ncertificate = \"/c\"",
            "address = \"127.0.0.1:7777\"\nkey = \"/k\"",
            "address = \"127.0.0.1:7777\"\ncertificate = \"c\"\nkey = \"/k\"",
            "address = \"localhost\"",
            "connections = 0",
            "domain = \"\"",
            "domain = \".example.com\"",
            "domain = \"a..b\"",
            "domain = \"-a.b\"",
            "domain = \"a b\"",
            "domain = \"*.example.com\"",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let error = parsed("address = \"0.0.0.0:7777\"").unwrap_err();
        assert!(error.hint.unwrap().contains("insecure = true"));
    }
}
