//! The gate: every call of every face passes here, and nowhere else.
//!
//! ```text
//!   face ──► gate.call(caller, verb)
//!              │ whom it means      a name or the beginning of an id becomes the id
//!              │ authority          may this caller do that: host paths, the host itself
//!              │ policy             (empty: later, what an organisation allows)
//!              │ quotas             (empty: later, how much of it)
//!              │ owner              what is made belongs to whoever asks
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

use motu_core::verb::{Ask, Verb};
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
            call.ask_mut().belongs_to(&caller.who.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::sandbox::CreateSandbox;
    use motu_core::verb::{self, Recorder};
    use motu_core::{Error, ErrorKind, SandboxId, Workspaces};
    use std::sync::Mutex;

    /// Keeps the names of what passed, and how it failed.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(String, Option<ErrorKind>)>>);

    impl Witness for Notes {
        fn saw(&self, seen: &Seen<'_>) {
            let mut notes = self.0.lock().expect("nobody panics");
            notes.push((
                format!("{} {}", seen.caller.who, seen.verb.name),
                seen.failed,
            ));
        }
    }

    fn gate() -> (Gate, Recorder, Arc<Notes>) {
        let (recorder, notes) = (Recorder::default(), Arc::new(Notes::default()));
        let gate = Gate::watched_by(Arc::new(recorder.clone()), notes.clone());
        (gate, recorder, notes)
    }

    #[tokio::test]
    async fn what_is_made_belongs_to_who_asks() {
        let (gate, recorder, _) = gate();
        recorder.on(|call: verb::CreateSandbox| Err(Error::unavailable(call.ask.owner)));
        let desk = gate.desk(Caller::new(Who::Local { uid: 1234 }, Face::Socket));
        // Whatever the caller says of it.
        let ask = CreateSandbox {
            owner: "uid:0".to_string(),
            ..CreateSandbox::default()
        };
        let error = desk.create_sandbox(ask).await.expect_err("as told");
        assert_eq!(error.message, "uid:1234");
    }

    #[tokio::test]
    async fn what_is_refused_never_reaches_the_engine_and_is_seen() {
        let (gate, recorder, notes) = gate();
        let desk = gate.desk(Caller::new(Who::Remote, Face::Http));
        let id = SandboxId::parse("ws-a").expect("an id");
        let ask = motu_core::workspace::ExportFiles::new("/workspace", "/etc", Default::default());
        let error = desk.export_workspace(&id, ask).await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert_eq!(recorder.written(), []);
        let seen = notes.0.lock().expect("nobody panics").clone();
        let refused = "remote export_workspace".to_string();
        assert_eq!(seen, [(refused, Some(ErrorKind::Denied))]);
    }
}
