//! Network settings for the programs of a machine: name server, certificates, SSH agent.

use crate::blocking::blocking;
use crate::border::{self, Bindings};
use crate::home::Home;
use bytes::Bytes;
use motu_core::{Error, Result};
use motu_link::network;
use std::io::Read;

/// The daemon's variable that names additional certificates, as OpenSSL does: for companies that
/// inspect their own TLS traffic.
const VARIABLE: &str = "SSL_CERT_FILE";
/// Largest accepted file of certificates.
const MOST: u64 = 4 << 20;

/// The settings of one machine; empty without a network.
#[derive(Debug, Default)]
pub struct Outside {
    pub nameserver: String,
    pub certificates: Bytes,
    /// Whether the machine has an SSH agent.
    pub agent: bool,
    /// `known_hosts` lines of the hosts that its SSH keys are bound to.
    pub known_hosts: Bytes,
}

impl Outside {
    /// The settings of this host, plus the certificate of the sandbox's own authority.
    pub async fn of_host(home: &Home, bindings: Option<Bindings>) -> Result<Outside> {
        let ends_tls = bindings.as_ref().is_some_and(Bindings::ends_tls);
        let certificates = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => blocking(move || read(path.as_ref())).await?,
            // The variables name one file, so it needs the public roots as well as our authority.
            None if ends_tls => blocking(border::roots).await?.pem(),
            None => Bytes::new(),
        };
        let certificates = match &bindings {
            Some(own) if ends_tls => {
                Bytes::from([&certificates, own.pem().as_bytes()].join(&b'\n'))
            }
            _ => certificates,
        };
        let agent = bindings.filter(Bindings::has_agent);
        Ok(Outside {
            nameserver: network::GATEWAY.to_string(),
            certificates,
            agent: agent.is_some(),
            known_hosts: match &agent {
                Some(own) => border::known_hosts(home, own).await?,
                None => Bytes::new(),
            },
        })
    }

    /// The variables that name the file of certificates and of host keys.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if !self.certificates.is_empty() {
            let pair = |name: &str| (name.to_string(), network::CERTIFICATES.to_string());
            found.extend(network::CERTIFICATE_VARIABLES.map(pair));
        }
        if self.agent {
            let (name, value) = network::GIT_SSH_COMMAND;
            found.push((name.to_string(), value.to_string()));
        }
        found
    }
}

fn read(path: &std::path::Path) -> Result<Bytes> {
    let failed = |error: std::io::Error| {
        Error::with_file(
            format!("{VARIABLE} of the daemon: {}", path.display()),
            &error,
        )
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MOST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_of_certificates_that_are_there() {
        assert_eq!(Outside::default().variables(), []);
        let some = Outside {
            certificates: Bytes::from_static(b"x"),
            ..Outside::default()
        };
        let variables = some.variables();
        assert!(
            variables
                .iter()
                .any(|(name, _)| name == "NODE_EXTRA_CA_CERTS")
        );
        assert!(
            variables
                .iter()
                .all(|(_, path)| path == network::CERTIFICATES)
        );
        let agent = Outside {
            agent: true,
            ..Outside::default()
        };
        assert_eq!(agent.variables()[0].0, "GIT_SSH_COMMAND");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said() {
        let error = read("/nowhere/at/all.pem".as_ref()).unwrap_err();
        assert!(error.message.contains("SSL_CERT_FILE"), "{error}");
    }
}
