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
use crate::places::{Bounds, Keeping, Place, Places, descriptors};
use crate::repeats::Repeats;
use crate::router::router;
use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service as HyperService;
use hyper_util::service::TowerToHyperService;
use motu_api::wire::LEAVE_HEADER;
use motu_core::config::GrpcConfig;
use motu_core::{Leave, limits};
use motu_gate::{Caller, Face, Gate, Who};
use std::convert::Infallible;
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
    places: Places,
}

impl Server {
    pub fn new(gate: Gate, activity: Activity) -> Server {
        Server::with_agents(gate, activity, GrpcConfig::default())
    }

    /// The same with what callers in the words of host agents get that name no template.
    pub fn with_agents(gate: Gate, activity: Activity, agents: GrpcConfig) -> Server {
        let stopping = Arc::new(watch::Sender::new(false));
        let idle = limits::SOCKET_IDLE_CONNECTIONS.max.min(descriptors() / 4);
        let app = App {
            gate,
            activity: activity.clone(),
            agents: Arc::new(agents),
            stopping: stopping.clone(),
        };
        Server {
            router: router(app),
            activity,
            stopping,
            places: Places::new(Bounds {
                // Whoever is served here is the host's own user, and has what they ask for.
                known: usize::MAX,
                waiting: usize::try_from(idle).unwrap_or(usize::MAX),
                patience: None,
            }),
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
                        self.places.spare_one();
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
        let place = self.places.enter(None);
        let service = Introducing {
            router: TowerToHyperService::new(self.router.clone()),
            caller: Caller::new(peer(&stream), Face::Socket),
            place: place.clone(),
        };
        let mut stopping = self.stopping.subscribe();
        tokio::spawn(async move {
            let _guard = guard;
            let stopping = async { stopping.wait_for(|stopping| *stopping).await.map(drop) };
            tokio::select! {
                () = serve_one(stream, service, stopping) => {}
                // It was idle, and others came.
                () = place.late() => {}
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

/// Serves a connection to its end.
async fn serve_one(stream: UnixStream, service: Introducing, stopping: impl Future) {
    let mut stopping = pin!(stopping);
    let head = Head::default();
    let speaks = tokio::select! {
        biased;
        speaks = speaks(&stream, head) => speaks,
        _ = stopping.as_mut() => None,
    };
    let result = match speaks {
        Some(Speaks::Http1) => serve_http1(stream, head, service, stopping).await,
        Some(Speaks::Http2) => serve_http2(Named::new(stream), head, service, stopping).await,
        // It has said nothing, and nobody waits for it any longer.
        None => return,
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
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
    place: Place,
}

impl HyperService<Request<Incoming>> for Introducing {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        // It only takes away: whoever says nothing has all the rights of the local user.
        let leave = request.headers().get(LEAVE_HEADER);
        let leave = leave.map(|leave| Arc::new(Leave::read(leave.as_bytes())));
        let caller = self.caller.clone().held_to(leave);
        request.extensions_mut().insert(caller);
        let busy = self.place.serve();
        let answer = self.router.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| Body::new(Keeping::new(body, busy))))
        })
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
