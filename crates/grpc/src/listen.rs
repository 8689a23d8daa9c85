//! The address for other hosts: TCP with mutual TLS, HTTP/2 only.
//!
//! A caller needs a certificate signed by the configured authority. All others are refused
//! before any HTTP is read.

use axum::Router;
use hyper_util::service::TowerToHyperService;
use motu_core::config::GrpcConfig;
use motu_core::{Error, Result, limits};
use motu_server::Activity;
use motu_server::connection::{Head, serve_http2};
use motu_server::tls::{Acceptor, File};
use motu_server::vanished;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Open connections; further ones are closed at once. As many as `[listen]` takes when nothing else
/// is configured there: one connection carries many calls, so few hosts come near it.
const CONNECTIONS: usize = limits::LISTEN_CONNECTIONS.default as usize;

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    tls: Acceptor,
    room: Arc<Semaphore>,
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
        Ok(Some(Listener {
            listener,
            tls,
            room: Arc::new(Semaphore::new(CONNECTIONS)),
        }))
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
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                // Probably out of file descriptors: wait until some are closed.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(place) = self.room.clone().try_acquire_owned() else {
                tracing::warn!(%peer, "a gRPC connection too many was closed");
                continue;
            };
            let (router, tls, guard) = (router.clone(), self.tls.clone(), activity.enter());
            let stop = stop.clone();
            tokio::spawn(async move {
                let _held = (guard, place);
                if let Err(error) = introduce(stream, tls, router, stop).await {
                    tracing::info!(%peer, %error, "a gRPC connection was refused");
                }
            });
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
    vanished::notice(&stream);
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(HANDSHAKE, tls.0.accept(stream)) => greeted,
        // It has asked for nothing, so it does not hold up a server that leaves.
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    let stream = greeted??;
    let told = async { stop.wait_for(|stop| *stop).await.map(drop) };
    let service = TowerToHyperService::new(router);
    if let Err(error) = serve_http2(stream, Head::default(), service, told).await {
        tracing::debug!(%error, "a connection ended early");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_server::tls::Own;
    use std::path::PathBuf;
    use tokio::io::AsyncReadExt;

    /// A directory that is removed with its test.
    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    async fn listener(room: usize) -> (Listener, Place) {
        let name = format!("motu-grpc-listen-{}", std::process::id());
        let place = Place(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&place.0).expect("a directory");
        let own = Own::find(&place.0).expect("a certificate");
        let file = |name, path| File {
            section: "grpc",
            name,
            path,
        };
        let callers = file("client_ca_file", own.certificate.as_path());
        let certificate = file("cert_file", own.certificate.as_path());
        let key = file("key_file", own.key.as_path());
        let tls = Acceptor::new(certificate, key, Some(callers), &["h2"]).expect("TLS");
        let listener = Listener {
            listener: TcpListener::bind("127.0.0.1:0").await.expect("a port"),
            tls,
            room: Arc::new(Semaphore::new(room)),
        };
        (listener, place)
    }

    #[tokio::test]
    async fn connections_are_counted() {
        let (listener, _place) = listener(2).await;
        let (address, room) = (
            listener.address().expect("an address"),
            listener.room.clone(),
        );
        let stop = watch::Sender::new(false);
        let serving = listener.serve(Router::new(), Activity::default(), stop.subscribe());
        let serving = tokio::spawn(serving);
        let connect = async || TcpStream::connect(address).await.expect("a connection");
        let held = [connect().await, connect().await];
        let mut third = connect().await;
        // It is closed before any TLS; the others have ten seconds for theirs.
        assert!(!matches!(third.read(&mut [0; 1]).await, Ok(1..)));
        assert_eq!(room.available_permits(), 0);
        // Those who leave make room.
        drop(held);
        drop(room.acquire_many(2).await.expect("room"));
        stop.send_replace(true);
        serving.await.expect("it ends");
    }
}
