//! What the programs of a machine with a network must know of the world outside.

use crate::blocking::blocking;
use crate::border::{self, Bindings};
use crate::home::Home;
use bytes::Bytes;
use motu_core::{Error, Result};
use motu_link::network;
use std::io::Read;

/// The daemon's variable that names further certificates, as OpenSSL knows it: of a company that
/// looks into its own traffic.
const VARIABLE: &str = "SSL_CERT_FILE";
/// A larger file is no list of certificates.
const MOST: u64 = 4 << 20;

/// Names and trust. Nothing, for a machine without a network.
#[derive(Debug, Default)]
pub struct Outside {
    pub nameserver: String,
    pub certificates: Bytes,
    /// Whether there is an SSH agent.
    pub agent: bool,
    /// The hosts that its keys are for.
    pub known_hosts: Bytes,
}

impl Outside {
    /// As this host has it, and with the authority of the sandbox's own border.
    pub async fn of_host(home: &Home, bindings: Option<Bindings>) -> Result<Outside> {
        let ends_tls = bindings.as_ref().is_some_and(Bindings::ends_tls);
        let certificates = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => blocking(move || read(path.as_ref())).await?,
            // One file for all of them: programs inside must go on trusting everybody else.
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

    /// Variables by which programs find the certificates and the keys of hosts.
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
