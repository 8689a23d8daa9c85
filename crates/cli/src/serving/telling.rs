//! Who hears of calls: the audit log, the events, and a collector where there is one.

use futures_util::FutureExt;
use motu_core::Result;
use motu_engine::Engine;
use motu_gate::{Caller, Face, Gate, Journal, Who, Witness};
use motu_otlp::{Otlp, Spans};
use motu_server::Activity;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Everybody who hears of calls.
pub fn witness(engine: &Arc<Engine>, otlp: Option<&Otlp>) -> Arc<dyn Witness> {
    let journal = Arc::new(journal(engine));
    match otlp {
        Some(otlp) => Arc::new(Spans::new(journal, otlp.queue())),
        None => journal,
    }
}

/// The audit log, and beside it the events of calls.
fn journal(engine: &Arc<Engine>) -> Journal {
    let events = engine.events().clone();
    let tell = move |event| {
        let events = events.clone();
        async move { events.tell(event).await }.boxed()
    };
    Journal::new(engine.audit(), Box::new(tell))
}

/// What is sent to a collector, until the last call has ended.
pub struct Telling {
    task: Option<JoinHandle<()>>,
    done: watch::Sender<bool>,
}

impl Telling {
    pub fn begin(otlp: Option<Otlp>, gate: Gate, activity: Activity) -> Telling {
        let done = watch::Sender::new(false);
        let task = otlp.map(|otlp| {
            let measured = measured(gate, activity);
            tokio::spawn(otlp.run(measured, done.subscribe()))
        });
        Telling { task, done }
    }

    /// Sends what still waits, for a moment.
    pub async fn finish(self) {
        self.done.send_replace(true);
        if let Some(task) = self.task {
            let _ = task.await;
        }
    }
}

/// The measurements as the daemon's own user sees them.
fn measured(gate: Gate, activity: Activity) -> impl Fn() -> Result<String> {
    let uid = rustix::process::geteuid().as_raw();
    let caller = Caller::new(Who::Local { uid }, Face::Socket);
    move || motu_server::measured(&gate, &activity, &caller)
}
