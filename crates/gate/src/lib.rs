//! The gate: every call of every face passes here, and nowhere else.
//!
//! ```text
//!   face ──► gate.call(caller, verb)
//!              │ whom it means      a name or the beginning of an id becomes the id
//!              │ authority          may this caller do that: host paths, the host itself
//!              │ policy             (empty: later, what an organisation allows)
//!              │ quotas             (empty: later, how much of it)
//!              ▼ record             who did what, how it went, how long it took
//!            engine
//! ```
//!
//! Faces hold a [`Gate`], or a [`Desk`], which is a gate with one caller before it. Neither
//! gives the engine away.

mod authority;
mod caller;
mod desk;
mod record;

pub use caller::{Caller, Face, Who};
pub use desk::Desk;
pub use record::{Seen, Witness};

use motu_core::verb::Verb;
use motu_core::{Result, Service};
use std::sync::Arc;
use std::time::Instant;

/// Where calls come in.
#[derive(Clone)]
pub struct Gate {
    engine: Arc<dyn Service>,
    witness: Arc<dyn Witness>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    /// A gate before this engine, which writes what it sees to the log.
    pub fn new(engine: Arc<dyn Service>) -> Gate {
        Gate::watched_by(engine, Arc::new(record::Log))
    }

    /// A gate that tells somebody what passes.
    pub fn watched_by(engine: Arc<dyn Service>, witness: Arc<dyn Witness>) -> Gate {
        Gate { engine, witness }
    }

    /// A gate with one caller before it.
    pub fn desk(&self, caller: Caller) -> Desk {
        Desk::new(self.clone(), caller)
    }

    /// One call, from the question who asks to the answer.
    pub async fn call<V: Verb>(
        &self,
        caller: &Caller,
        mut call: V,
        extra: V::Extra,
    ) -> Result<V::Answer> {
        let began = Instant::now();
        let outcome = async {
            self.resolve(&mut call).await?;
            authority::check(caller, &V::INFO, call.ask())?;
            call.on(&*self.engine, extra).await
        };
        let outcome = outcome.await;
        self.witness.saw(&Seen {
            caller,
            verb: &V::INFO,
            failed: outcome.as_ref().err().map(|error| error.kind),
            took: began.elapsed(),
        });
        outcome
    }

    /// A sandbox that was named by a beginning or a name is meant by its id from here on.
    async fn resolve<V: Verb>(&self, call: &mut V) -> Result<()> {
        if let Some(id) = call.sandbox() {
            *id = self.engine.resolve(id.clone()).await?;
        }
        Ok(())
    }
}
