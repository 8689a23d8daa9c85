//! Services with TLS: which certificates are trusted.

use super::{Service, except, spec};
use crate::{Http, Settings};
use motu_core::files::encode_base64;
use motu_core::report::Health;
use motu_core::{ErrorKind, Runtime as _};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// A PEM file.
    fn file(&self, dir: &Path) -> PathBuf {
        let path = dir.join("ca.pem");
        let text = encode_base64(self.0.der());
        let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A TLS acceptor for this host name.
    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_string()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

async fn served(acceptor: TlsAcceptor) -> Service {
    Service::listen(except("nowhere", Vec::new()), Some(acceptor)).await
}

fn trusting(service: &Service, ca_file: Option<PathBuf>) -> Http {
    let settings = Settings {
        url: service.url.clone(),
        key_file: None,
        ca_file,
    };
    Http::new(settings).unwrap()
}

#[tokio::test]
async fn a_service_with_a_certificate_of_the_file_is_believed() {
    let authority = Authority::new();
    let service = served(authority.acceptor("127.0.0.1")).await;
    assert!(service.url.starts_with("https://"), "{}", service.url);
    let dir = tempfile::tempdir().unwrap();
    let runtime = trusting(&service, Some(authority.file(dir.path())));
    let machine = runtime.create(&spec(service.dir.path())).await.unwrap();
    assert!(runtime.alive(&machine).await);
    runtime.destroy(&machine).await.unwrap();
    assert_eq!(service.heard("DELETE /sandboxes/pv-one"), 1);
    // One handshake for all requests.
    assert_eq!(service.connected(), 1);
}

#[tokio::test]
async fn nobody_else_is_believed_and_nothing_is_said_to_them() {
    let (one, other) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let file = one.file(dir.path());
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "no certificate\n").unwrap();
    let long = dir.path().join("long.pem");
    std::fs::write(&long, vec![b' '; (1 << 20) + 1]).unwrap();
    let none = dir.path().join("none.pem");
    let here = || one.acceptor("127.0.0.1");
    for (acceptor, ca_file, part) in [
        (other.acceptor("127.0.0.1"), Some(&file), "certificate"),
        (
            one.acceptor("elsewhere.example"),
            Some(&file),
            "certificate",
        ),
        // Not signed by an authority that this host trusts.
        (here(), None, "certificate"),
        (here(), Some(&none), "ca_file"),
        (here(), Some(&empty), "there is no certificate in it"),
        (here(), Some(&long), "longer than"),
    ] {
        let service = served(acceptor).await;
        let runtime = trusting(&service, ca_file.cloned());
        let error = service.refused_by(runtime.clone()).await;
        assert_eq!(error.kind, ErrorKind::Unavailable, "{ca_file:?}: {error}");
        assert!(error.message.contains(part), "{ca_file:?}: {error}");
        assert_eq!(runtime.check().await[0].health, Health::Failed);
        assert_eq!(service.heard(""), 0, "it was asked something");
    }
}

#[tokio::test]
async fn a_file_of_certificates_is_for_tls() {
    let settings = Settings {
        url: "http://127.0.0.1:1".into(),
        key_file: None,
        ca_file: Some("/etc/ca.pem".into()),
    };
    let error = Http::new(settings).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    // A service without TLS fails too.
    let service = Service::start(except("nowhere", Vec::new())).await;
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        url: service.url.replace("http://", "https://"),
        key_file: None,
        ca_file: Some(Authority::new().file(dir.path())),
    };
    let error = service.refused_by(Http::new(settings).unwrap()).await;
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}
