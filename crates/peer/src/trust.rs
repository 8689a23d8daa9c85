//! Trusted certificates: those of this host, or those in one file.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// The maximum size of the certificate file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Creates the TLS connector for calls to the service.
pub fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, String> {
    let roots = match ca_file {
        Some(path) => {
            of_file(path).map_err(|reason| format!("ca_file {}: {reason}", path.display()))?
        }
        None => of_host()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn of_host() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err("this host trusts nobody; install ca-certificates".to_string()),
        false => Ok(roots),
    }
}

fn of_file(path: &Path) -> Result<RootCertStore, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("longer than {MAX_FILE_BYTES} bytes"));
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    match roots.is_empty() {
        true => Err("there is no certificate in it".to_string()),
        false => Ok(roots),
    }
}
