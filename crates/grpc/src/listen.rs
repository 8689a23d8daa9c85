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
use motu_server::places::{Bounds, Keeping, Place, Places, descriptors};
use motu_server::tls::{Acceptor, File};
use motu_server::vanished;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Open connections: as many as `[listen]` takes when nothing else is configured there. One
/// connection carries many calls, so few hosts come near it. Those that have shown no certificate
/// have room of their own.
const ROOM: Bounds = Bounds {
    known: limits::LISTEN_CONNECTIONS.default as usize,
    waiting: limits::LISTEN_STRANGERS.default as usize,
    patience: Some(HANDSHAKE),
};

/// A bound address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    tls: Acceptor,
    places: Places,
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
            places: Places::new(ROOM.within(descriptors())),
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
                    self.places.spare_one();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let place = self.places.enter(Some(peer.ip()));
            let (router, tls, guard) = (router.clone(), self.tls.clone(), activity.enter());
            let stop = stop.clone();
            tokio::spawn(async move {
                let _guard = guard;
                let served = tokio::select! {
                    served = introduce(stream, tls, router, stop, place.clone()) => served,
                    () = place.over() => Err(std::io::ErrorKind::TimedOut.into()),
                };
                if let Err(error) = served {
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
    place: Place,
) -> std::io::Result<()> {
    // Send small messages at once.
    stream.set_nodelay(true)?;
    vanished::notice(&stream);
    let stream = tokio::select! {
        greeted = tls.0.accept(stream) => greeted?,
        // It has asked for nothing, so it does not hold up a server that leaves.
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    };
    // Whoever is here has shown a certificate that was signed for callers.
    place.know("").map_err(std::io::Error::other)?;
    let stream = Keeping::new(stream, place);
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
    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    async fn listener(waiting: usize) -> (Listener, Directory) {
        let name = format!("motu-grpc-listen-{}", std::process::id());
        let directory = Directory(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&directory.0).expect("a directory");
        let own = Own::find(&directory.0).expect("a certificate");
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
            places: Places::new(Bounds { waiting, ..ROOM }),
        };
        (listener, directory)
    }

    #[tokio::test]
    async fn whoever_shows_no_certificate_makes_room_for_the_next() {
        // Half of it is for one address.
        let (listener, _directory) = listener(4).await;
        let address = listener.address().expect("an address");
        let stop = watch::Sender::new(false);
        let serving = listener.serve(Router::new(), Activity::default(), stop.subscribe());
        let serving = tokio::spawn(serving);
        let connect = async || TcpStream::connect(address).await.expect("a connection");
        let mut first = connect().await;
        let mut second = connect().await;
        let _third = connect().await;
        // It is closed before any TLS; the others have ten seconds for theirs.
        assert!(!matches!(first.read(&mut [0; 1]).await, Ok(1..)));
        let mut byte = [0; 1];
        let wait = tokio::time::timeout(Duration::from_millis(50), second.read(&mut byte));
        assert!(wait.await.is_err());
        stop.send_replace(true);
        serving.await.expect("it ends");
    }
}
