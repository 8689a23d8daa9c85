//! Connections: taking them in, knowing whether any are open, letting them go.
//!
//! ```text
//!  accept_until ──stop──► refuse new ones ──► take in those already queued
//!       ▲                                             │
//!       └────────── listen again (idle only) ◄────────┤ some were late
//!                                                     ▼ none
//!                                                  finish
//! ```
//!
//! The listener is shut down before its queue is emptied, so a client is either
//! served or refused at connect; it never talks to a daemon that is gone.

use crate::activity::Activity;
use crate::app::App;
use crate::authority::Named;
use crate::connection::{Head, Speaks, serve_http1, serve_http2, speaks};
use crate::repeats::Repeats;
use crate::router::router;
use axum::Router;
use axum::middleware::from_fn_with_state;
use http::Request;
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use hyper_util::service::TowerToHyperService;
use motu_gate::{Caller, Face, Gate, Who};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// How long calls that are being served may go on after the server was told to stop: uploads,
/// commands in the foreground, answers on their way. What has no end of its own does not have it
/// (see [`App::while_serving`] and [`Activity::enter_open_ended`]).
pub const GRACE: Duration = Duration::from_secs(30);

/// Serves a service on any number of listeners, one after another.
#[derive(Clone, Debug)]
pub struct Server {
    router: Router,
    activity: Activity,
    stopping: Arc<watch::Sender<bool>>,
}

impl Server {
    pub fn new(gate: Gate, activity: Activity) -> Server {
        let stopping = Arc::new(watch::Sender::new(false));
        let app = App {
            gate,
            activity: activity.clone(),
            stopping: stopping.clone(),
        };
        Server {
            router: router(app),
            activity,
            stopping,
        }
    }

    /// The same server, which also has these routes. Their answers get nothing of REST's.
    #[must_use]
    pub fn beside(mut self, routes: Router) -> Server {
        self.router = self.router.merge(routes);
        self
    }

    /// The same server, which does a request with an `Idempotency-Key` once.
    #[must_use]
    pub fn remembering(mut self, repeats: Repeats) -> Server {
        let once = from_fn_with_state(repeats, crate::repeats::once);
        self.router = self.router.layer(once);
        self
    }

    /// Everything that is served, for another listener.
    pub fn routes(&self) -> Router {
        self.router.clone()
    }

    /// Takes in connections until `stop`. Returns how many came after it; they are being served.
    pub async fn accept_until(self, listener: UnixListener, stop: impl Future) -> usize {
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.spawn(stream),
                    // Out of descriptors: those that are open must go first.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                _ = &mut stop => break,
            }
        }
        self.drain(&listener)
    }

    fn drain(&self, listener: &UnixListener) -> usize {
        // From here on `connect` is refused; what is queued can still be accepted.
        if let Err(error) = rustix::net::shutdown(listener, rustix::net::Shutdown::Read) {
            tracing::warn!(%error, "cannot shut the listener down");
        }
        let mut late = 0;
        while let Ok(socket) = rustix::net::accept_with(
            listener,
            rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
        ) {
            if let Ok(stream) = UnixStream::from_std(socket.into()) {
                self.spawn(stream);
                late += 1;
            }
        }
        late
    }

    fn spawn(&self, stream: UnixStream) {
        let guard = self.activity.enter();
        let router = self.router.clone();
        let mut stopping = self.stopping.subscribe();
        let who = peer(&stream);
        tokio::spawn(async move {
            let _guard = guard;
            let service = Introducing {
                router: TowerToHyperService::new(router),
                caller: Caller::new(who, Face::Socket),
            };
            let stopping = async { stopping.wait_for(|stopping| *stopping).await.map(drop) };
            let mut stopping = pin!(stopping);
            let speaks = tokio::select! {
                biased;
                speaks = speaks(&stream, Head::default()) => speaks,
                _ = stopping.as_mut() => None,
            };
            let head = Head::default();
            let result = match speaks {
                Some(Speaks::Http1) => serve_http1(stream, head, service, stopping).await,
                Some(Speaks::Http2) => {
                    serve_http2(Named::new(stream), head, service, stopping).await
                }
                // It has said nothing, and nobody waits for it any longer.
                None => return,
            };
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }

    /// Ends idle connections and sessions that are found again at once, and waits a while for calls.
    pub async fn finish(&self) {
        self.stopping.send_replace(true);
        if tokio::time::timeout(GRACE, self.activity.calls_ended())
            .await
            .is_err()
        {
            tracing::warn!("calls that took too long were cut off");
        }
    }
}

/// Who is at the other end of a private socket: the kernel knows.
fn peer(stream: &UnixStream) -> Who {
    match stream.peer_cred() {
        Ok(peer) => Who::Local { uid: peer.uid() },
        Err(_) => Who::Remote,
    }
}

/// The routes of one connection, which say of every request whose it is.
struct Introducing {
    router: TowerToHyperService<Router>,
    caller: Caller,
}

impl HyperService<Request<Incoming>> for Introducing {
    type Response = <TowerToHyperService<Router> as HyperService<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as HyperService<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as HyperService<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.caller.clone());
        self.router.call(request)
    }
}

/// Serves on one listener until `shutdown`, then lets open calls end.
pub async fn serve(
    gate: Gate,
    listener: UnixListener,
    activity: Activity,
    shutdown: impl Future<Output = ()>,
) {
    let server = Server::new(gate, activity);
    server.clone().accept_until(listener, shutdown).await;
    server.finish().await;
}
