//! TLS of listeners: certificates from files, or one that is made here for loopback.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use motu_core::{Error, Result};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// A file of the configuration: its section and name, for messages, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    pub section: &'a str,
    pub name: &'a str,
    pub path: &'a Path,
}

/// Takes connections in.
#[derive(Clone)]
pub struct Acceptor(pub TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// What shows this certificate, and speaks these protocols. With `callers`, only those are let in
    /// whose certificate was signed with one of that file.
    pub fn new(
        certificate: File<'_>,
        key: File<'_>,
        callers: Option<File<'_>>,
        protocols: &[&str],
    ) -> Result<Acceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal(format!("TLS: {error}")))?;
        let config = match callers {
            None => config.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(file)? {
                    let added = roots.add(authority);
                    added.map_err(|error| unusable(file, &error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| unusable(file, &error))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let chain = certificates(certificate)?;
        let secret =
            PrivateKeyDer::from_pem_file(key.path).map_err(|error| unusable(key, &error))?;
        let mut config = config
            .with_single_cert(chain, secret)
            .map_err(|error| unusable(certificate, &error))?;
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
    }
}

fn certificates(file: File<'_>) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file.path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unusable(file, &"it holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(file, &error)),
    }
}

fn unusable(file: File<'_>, why: &dyn std::fmt::Display) -> Error {
    let File {
        section,
        name,
        path,
    } = file;
    Error::invalid(format!("[{section}] {name} {}: {why}", path.display()))
        .hint("a readable file in PEM; the key is not protected by a password")
}

/// Where the certificate is that is made here, and its key.
#[derive(Clone, Debug)]
pub struct Own {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Own {
    /// The certificate of a state directory for loopback; made when there is none, and kept, so that
    /// callers who trust it go on doing so.
    pub fn find(home: &Path) -> Result<Own> {
        let place = home.join("tls");
        let own = Own {
            certificate: place.join("self.pem"),
            key: place.join("self-key.pem"),
        };
        if own.certificate.exists() && own.key.exists() {
            return Ok(own);
        }
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_string);
        let broken = |error| Error::internal(format!("make a certificate: {error}"));
        let made = rcgen::generate_simple_self_signed(names).map_err(broken)?;
        let write = || -> io::Result<()> {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&place)?;
            let key = made.signing_key.serialize_der();
            keep(&own.key, "PRIVATE KEY", &key)?;
            keep(&own.certificate, "CERTIFICATE", made.cert.der())
        };
        write().map_err(|error| Error::io("keep a certificate", &error))?;
        Ok(own)
    }
}

/// Writes a file in PEM that only its owner reads: all of it, or none.
fn keep(path: &Path, label: &str, der: &[u8]) -> io::Result<()> {
    let text = STANDARD.encode(der);
    let staged = path.with_extension("new");
    let mut file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&staged)?;
    writeln!(file, "-----BEGIN {label}-----")?;
    for line in text.as_bytes().chunks(64) {
        file.write_all(line)?;
        file.write_all(b"\n")?;
    }
    writeln!(file, "-----END {label}-----")?;
    file.sync_all()?;
    std::fs::rename(staged, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let own = Own::find(home.path()).unwrap();
        let file = |name, path| File {
            section: "listen",
            name,
            path,
        };
        let certificate = file("certificate", own.certificate.as_path());
        let key = file("key", own.key.as_path());
        Acceptor::new(certificate, key, None, &["h2"]).unwrap();
        let mode = own.key.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let before = std::fs::read(&own.certificate).unwrap();
        let again = Own::find(home.path()).unwrap();
        assert_eq!(std::fs::read(&again.certificate).unwrap(), before);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("empty.pem");
        std::fs::write(&path, "").unwrap();
        let file = File {
            section: "listen",
            name: "certificate",
            path: &path,
        };
        let error = Acceptor::new(file, file, None, &[]).unwrap_err();
        assert!(error.message.contains("[listen] certificate"), "{error}");
    }
}
