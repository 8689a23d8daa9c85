//! What the programs of a machine with a network must know of the world outside.

use crate::blocking::blocking;
use crate::border::{self, Bindings};
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
}

impl Outside {
    /// As this host has it, and with the authority of the sandbox's own border.
    pub async fn of_host(bindings: Option<Bindings>) -> Result<Outside> {
        let certificates = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => blocking(move || read(path.as_ref())).await?,
            // One file for all of them: programs inside must go on trusting everybody else.
            None if bindings.is_some() => blocking(border::roots).await?.pem(),
            None => Bytes::new(),
        };
        let certificates = match &bindings {
            Some(bindings) => Bytes::from([&certificates, bindings.pem().as_bytes()].join(&b'\n')),
            None => certificates,
        };
        Ok(Outside {
            nameserver: network::GATEWAY.to_string(),
            certificates,
        })
    }

    /// Variables by which programs find the certificates.
    pub fn variables(&self) -> Vec<(String, String)> {
        if self.certificates.is_empty() {
            return Vec::new();
        }
        let pair = |name: &str| (name.to_string(), network::CERTIFICATES.to_string());
        network::CERTIFICATE_VARIABLES.map(pair).into()
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
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said() {
        let error = read("/nowhere/at/all.pem".as_ref()).unwrap_err();
        assert!(error.message.contains("SSL_CERT_FILE"), "{error}");
    }
}
