//! The life of a daemon: one per state directory, there when it is needed.
//!
//! ```text
//!   lock ─► open the engine ─► listen ─► ready ─► serve ──idle──► refuse, take in
//!    │                           ▲                  │             the latecomers
//!    │ taken, and it answers     └──────────────────┼──some──────────┤
//!    ▼                                              │ SIGTERM        │ none
//!   "ready" for the other one, leave                ▼                ▼
//!                                              let calls end ─► unlink, leave
//! ```
//!
//! The lock is held from before the socket exists until after it is gone, so
//! whoever finds no socket may start a daemon, and only one of them stays.

mod lock;
mod log;
mod ready;
mod socket;
mod sys;
mod telling;

use crate::home::Place;
use crate::{daemon, ending};
use lock::{Claim, Lock};
use motu_core::{Error, Result};
use motu_engine::Engine;
use motu_gate::Gate;
use motu_otlp::Otlp;
use motu_server::listen::{Behind, Listener};
use motu_server::{Activity, GRACE, Repeats, Server};
use motu_webhook::Webhook;
use ready::Ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use telling::{Telling, witness};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

pub use lock::{exclusively, stop};

/// How long tasks of a daemon that leaves may take to end.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// How long machines that wait ready may take to end.
const CLOSING: Duration = Duration::from_secs(4);
/// Open calls have their grace; with the two above, a daemon that is told to is gone before whoever
/// told it stops waiting.
const WAY_OUT: Duration = GRACE
    .saturating_add(CLOSING)
    .saturating_add(LAST_BREATH)
    .saturating_add(Duration::from_secs(1));

/// How long nobody is served before memory is given back, and again: what has ended stays a
/// moment for those who look at it.
const CALM: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(12)];

/// How a daemon came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Somebody typed `motu serve`: stay, and log to their terminal.
    Foreground,
    /// A command needed one: detach, log to a file, leave when idle.
    OnDemand,
}

/// Runs a daemon until it is told to stop or has nothing to do. `listen` is an address for callers
/// with keys, in the place of the configured one.
pub fn run(place: &Place, origin: Origin, listen: Option<SocketAddr>) -> Result<()> {
    let mut ready = Ready::new(origin)?;
    let result = start(place, origin, listen, &mut ready);
    if let Err(error) = &result {
        ready.failed(error);
    }
    result
}

fn start(
    place: &Place,
    origin: Origin,
    listen: Option<SocketAddr>,
    ready: &mut Ready,
) -> Result<()> {
    sys::limit_allocator();
    let home = Arc::new(place.open()?);
    log::begin(&home, origin)?;
    let _lock = match Lock::claim(place, &home, origin)? {
        Claim::Ours(lock) => lock,
        Claim::OthersAnswer => {
            ready.done();
            return Ok(());
        }
    };
    // Two threads are enough for the daemon; the work is done in machines.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::io("start the daemon", &error))?;
    let result = runtime.block_on(serve(place, origin, listen, ready));
    // The engine is dropped with its last task, and cleans up on the host.
    runtime.shutdown_timeout(LAST_BREATH);
    result
}

async fn serve(
    place: &Place,
    origin: Origin,
    listen: Option<SocketAddr>,
    ready: &mut Ready,
) -> Result<()> {
    let engine = daemon::open(place.path()).await?;
    let activity = Activity::default();
    let otlp = Otlp::new(&engine.config().otlp)?;
    let gate = Gate::watched_by(engine.clone(), witness(&engine, otlp.as_ref()))
        .limited_to(engine.config().quota.clone())
        .knowing(engine.keys());
    let config = engine.config().grpc.clone();
    let remote = motu_grpc::listen::Listener::bind(&config).await?;
    let routes = motu_grpc::routes(motu_grpc::Settings {
        gate: gate.clone(),
        config,
    });
    let routes = routes.await?;
    let agents = engine.config().grpc.clone();
    let server = Server::with_agents(gate.clone(), activity.clone(), agents)
        .remembering(Repeats::open(place.path())?)
        .beside(routes.clone());
    let leaving = watch::Sender::new(false);
    let telling = Telling::begin(otlp, gate.clone(), activity.clone());
    if let Some(remote) = remote {
        tracing::info!(address = %remote.address()?, "serving gRPC to other hosts");
        tokio::spawn(remote.serve(routes, activity.clone(), leaving.subscribe()));
    }
    let keyed = listener(place, &engine, listen).await?;
    // Callers of other hosts cannot start a daemon that has left.
    let may_leave = origin == Origin::OnDemand && keyed.is_none();
    if let Some(keyed) = keyed {
        tracing::info!(url = keyed.url()?, "serving callers with keys");
        let behind = Behind {
            routes: server.routes(),
            gate,
            activity: activity.clone(),
        };
        tokio::spawn(keyed.serve(behind, leaving.subscribe()));
    }
    if let Some(webhook) = Webhook::new(&engine.config().webhook)? {
        tokio::spawn(webhook.run(engine.events().clone()));
    }
    ending::bound(WAY_OUT);
    let mut told = Told::new()?;
    tokio::spawn(stay_lean(activity.clone()));
    sys::release_code();
    loop {
        let listener = motu_api::socket::listen(&place.socket())?;
        let removed = Arc::new(AtomicBool::new(false));
        let gone = socket::gone(place, removed.clone());
        ready.done();
        tracing::info!(home = %place.path().display(), pid = std::process::id(), "serving");
        // A task of its own: this one belongs to the first thread, which would have to be woken for every caller before
        // those that serve it. It is told to stop by the end of `stop`.
        let (stop, stopping) = oneshot::channel::<()>();
        let quiet = idle(engine.clone(), activity.clone());
        let until = async move {
            tokio::select! {
                _ = stopping => {}
                () = quiet, if may_leave => {}
                () = gone => {}
            }
        };
        let mut accepting = tokio::spawn(server.clone().accept_until(listener, until));
        let ended = tokio::select! {
            () = told.stop() => break drop(stop),
            ended = &mut accepting => ended,
        };
        match ended {
            Ok(1..) => {}
            Ok(0) if removed.load(Ordering::Relaxed) => {
                tracing::warn!("the socket was removed from outside: it is made again");
            }
            Ok(0) => break,
            // Whoever comes now starts another daemon.
            Err(error) => break tracing::error!(%error, "callers are not taken in any more"),
        }
    }
    // Remove the socket before waiting for open calls: a new daemon then waits for the lock, not
    // for a socket that nobody serves.
    let _ = std::fs::remove_file(place.socket());
    leaving.send_replace(true);
    // Those who follow events hear of the end, and hold it up no longer.
    engine.events().leave().await;
    tokio::select! {
        () = server.finish() => {}
        // Whoever says it twice does not want to wait for calls.
        () = told.stop() => tracing::warn!("told to leave again: open calls are cut"),
    }
    let closing = tokio::time::timeout(CLOSING, engine.close());
    if tokio::join!(closing, telling.finish()).0.is_err() {
        tracing::warn!("closing timed out; the next daemon removes the pooled machines");
    }
    tracing::info!("leaving");
    Ok(())
}

/// The address for callers with keys, if there is one.
async fn listener(
    place: &Place,
    engine: &Engine,
    address: Option<SocketAddr>,
) -> Result<Option<Listener>> {
    let mut config = engine.config().listen.clone();
    config.address = address.or(config.address);
    config.check()?;
    Listener::bind(&config, place.path()).await
}

/// Signals that end a daemon. Machines stay.
struct Told {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Told {
    fn new() -> Result<Told> {
        let listen = |kind| signal(kind).map_err(|error| Error::io("listen for signals", &error));
        Ok(Told {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Gives memory back after each burst of work, once it has been calm for a moment.
async fn stay_lean(activity: Activity) {
    let mut seen = 0;
    loop {
        activity.more_than(seen).await;
        for (number, calm) in CALM.into_iter().enumerate() {
            activity.idle_for(calm).await;
            let first = seen == 0 && number == 0;
            let trim = move || {
                sys::trim_memory();
                // Later the pages in use are those of daily work.
                if first {
                    sys::release_code();
                }
            };
            let _ = tokio::task::spawn_blocking(trim).await;
        }
        seen = activity.ever();
    }
}

/// Returns when there has been nothing to look after for as long as the configuration says.
async fn idle(engine: Arc<Engine>, activity: Activity) {
    let length = Duration::from_secs(engine.config().daemon_idle_seconds);
    let tick = (length / 8).clamp(Duration::from_millis(100), Duration::from_secs(15));
    let mut since = Instant::now();
    let mut seen = activity.ever();
    while since.elapsed() < length {
        activity.idle_for(tick).await;
        if engine.live() > 0 || activity.ever() != seen {
            seen = activity.ever();
            since = Instant::now();
        }
    }
}
