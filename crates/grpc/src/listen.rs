//! The address for other hosts: TCP with mutual TLS, HTTP/2 only.
//!
//! A caller needs a certificate signed by the configured authority. All others are refused
//! before any HTTP is read.

use axum::Router;
use hyper_util::service::TowerToHyperService;
use motu_core::config::GrpcConfig;
use motu_core::{Error, Result};
use motu_server::Activity;
use motu_server::connection::serve_http2;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    tls: Acceptor,
}

#[derive(Clone)]
struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Listener {
    /// Reads the certificates and binds the address, if one is configured.
    pub async fn bind(config: &GrpcConfig) -> Result<Option<Listener>> {
        let (Some(address), Some(cert), Some(key), Some(ca)) = (
            config.listen,
            &config.cert_file,
            &config.key_file,
            &config.client_ca_file,
        ) else {
            return Ok(None);
        };
        let tls = Acceptor(TlsAcceptor::from(Arc::new(tls(cert, key, ca)?)));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Error::unavailable(format!("[grpc] listen {address}: {error}"))
                .hint("choose a free address in config.toml")
        })?;
        Ok(Some(Listener { listener, tls }))
    }

    pub fn address(&self) -> Result<SocketAddr> {
        let address = self.listener.local_addr();
        address.map_err(|error| Error::io("[grpc] listen", &error))
    }

    /// Accepts connections until `stop`, then lets open calls finish.
    pub async fn serve(self, router: Router, activity: Activity, mut stop: watch::Receiver<bool>) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (router, tls, guard) = (router.clone(), self.tls.clone(), activity.enter());
                    let stop = stop.clone();
                    tokio::spawn(async move {
                        let _guard = guard;
                        if let Err(error) = introduce(stream, tls, router, stop).await {
                            tracing::info!(%peer, %error, "a gRPC connection was refused");
                        }
                    });
                }
                // Probably out of file descriptors: wait until some are closed.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

async fn introduce(
    stream: TcpStream,
    tls: Acceptor,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    // Send small messages at once.
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE, tls.0.accept(stream)).await??;
    let told = async { stop.wait_for(|stop| *stop).await.map(drop) };
    let service = TowerToHyperService::new(router);
    if let Err(error) = serve_http2(stream, service, told).await {
        tracing::debug!(%error, "a connection ended early");
    }
    Ok(())
}

fn tls(cert: &Path, key: &PathBuf, ca: &Path) -> Result<rustls::ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in certificates("client_ca_file", ca)? {
        let added = roots.add(authority);
        added.map_err(|error| unusable("client_ca_file", ca, &error))?;
    }
    let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| unusable("client_ca_file", ca, &error))?;
    let chain = certificates("cert_file", cert)?;
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("key_file", key, &error))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("TLS: {error}")))?
        .with_client_cert_verifier(callers)
        .with_single_cert(chain, secret)
        .map_err(|error| unusable("cert_file", cert, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unusable(name, path, &"it holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(name, path, &error)),
    }
}

fn unusable(name: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("[grpc] {name} {}: {why}", path.display()))
        .hint("a readable file in PEM; the key is not protected by a password")
}
