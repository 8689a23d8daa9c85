//! The address for other hosts: TCP with mutual TLS, HTTP/2 only.
//!
//! A caller needs a certificate signed by the configured authority. All others are refused
//! before any HTTP is read.

use axum::Router;
use hyper_util::service::TowerToHyperService;
use motu_core::config::GrpcConfig;
use motu_core::{Error, Result};
use motu_server::Activity;
use motu_server::connection::{Head, serve_http2};
use motu_server::tls::{Acceptor, File};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    tls: Acceptor,
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
        let file = |name, path| File {
            section: "grpc",
            name,
            path,
        };
        let callers = file("client_ca_file", ca.as_path());
        let tls = Acceptor::new(
            file("cert_file", cert),
            file("key_file", key),
            Some(callers),
            &["h2"],
        )?;
        let listener = motu_server::listen::bind(address).map_err(|error| {
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
    if let Err(error) = serve_http2(stream, Head::default(), service, told).await {
        tracing::debug!(%error, "a connection ended early");
    }
    Ok(())
}
