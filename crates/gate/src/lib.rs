//! The gate: every call of every face passes here, and nowhere else.
//!
//! ```text
//!   face ──► gate.call(caller, verb)
//!              │ authority          may this caller do that: scopes of a key, host paths, the host itself
//!              │ whom it means      a name or the beginning of an id becomes the id; callers with a
//!              │                    key mean what is their project's, and the rest is not there
//!              │ policy             (the engine's: what a sandbox reaches and a call asks for, by
//!              │                    the policy it names; later also what an organisation allows)
//!              │ quotas             how often (how much at once is the engine's, which knows what there is)
//!              │ owner              what is made belongs to whoever asks
//!              ▼ record             who did what, how it went: in the audit log before the answer
//!            engine
//! ```
//!
//! Faces hold a [`Gate`], or a [`Desk`], which is a gate with one caller before it. Neither
//! gives the engine away.

mod authority;
mod caller;
mod desk;
mod held;
mod journal;
mod meter;
mod rate;
mod reach;
mod record;
mod strangers;
#[cfg(test)]
mod tests;

pub use caller::{Caller, Face, Ticket, Who};
pub use desk::Desk;
pub use journal::Journal;
pub use meter::Figures;
pub use reach::Reach;
pub use record::Witness;
pub use strangers::network;

use futures_util::future::{BoxFuture, Either, select};
use meter::Meter;
use motu_core::account;
use motu_core::audit::on_behalf;
use motu_core::config::QuotaConfig;
use motu_core::leave::Named;
use motu_core::limits::{KEY_CALLS_PER_MINUTE, QUOTA_CALLS_PER_MINUTE};
use motu_core::outcome::{Cut, Length, Outcome, Watch, Within};
use motu_core::scope::Keyring;
use motu_core::verb::{Ask, Effect, Shape, Verb};
use motu_core::{Backend, Error, Result};
use rate::{Allowance, Rate};
use record::Entry;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use strangers::Strangers;

/// Where calls come in.
#[derive(Clone)]
pub struct Gate {
    engine: Arc<dyn Backend>,
    witness: Arc<dyn Witness>,
    rate: Arc<Rate>,
    quota: Arc<QuotaConfig>,
    keys: Option<Arc<dyn Keyring>>,
    meter: Arc<Meter>,
    strangers: Arc<Strangers>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    /// A gate before this engine that keeps no record.
    pub fn new(engine: Arc<dyn Backend>) -> Gate {
        Gate::watched_by(engine, Arc::new(record::Nobody))
    }

    /// A gate that tells somebody what passes.
    pub fn watched_by(engine: Arc<dyn Backend>, witness: Arc<dyn Witness>) -> Gate {
        Gate {
            engine,
            witness,
            rate: Arc::default(),
            quota: Arc::default(),
            keys: None,
            meter: Arc::default(),
            strangers: Arc::default(),
        }
    }

    /// The same gate, which knows callers by their keys.
    #[must_use]
    pub fn knowing(self, keys: Arc<dyn Keyring>) -> Gate {
        Gate {
            keys: Some(keys),
            ..self
        }
    }

    /// Who sends this key, from this address. A wrong one is seen in the audit log, once a minute.
    pub fn introduce(&self, key: &str, from: IpAddr) -> Result<Who> {
        let granted = match &self.keys {
            Some(keys) => keys.admit(key),
            None => Err(motu_core::key::unknown()),
        };
        match granted {
            Ok(granted) => Ok(Who::Key(Arc::new(granted))),
            Err(error) => {
                self.meter.refuse();
                // Whoever sends none has guessed none: browsers begin so.
                if !key.is_empty()
                    && let Some(who) = self.strangers.name(from, Instant::now())
                {
                    record::stranger(&*self.witness, who, &error);
                }
                Err(error)
            }
        }
    }

    /// The measurements of this host, in the text format of Prometheus: for callers of the local
    /// socket, and for keys that have the scope for them.
    pub fn measurements(&self, caller: &Caller, figures: Figures) -> Result<String> {
        authority::check_measurements(caller)?;
        self.meter.text(Figures {
            sandboxes: self.engine.service().census(),
            unsent: self.witness.unsent(),
            ..figures
        })
    }

    /// Whether calls can be served.
    pub async fn ready(&self) -> Result<()> {
        self.engine.service().ready().await
    }

    /// The same gate, for as many calls of each owner in a minute as its quota allows.
    #[must_use]
    pub fn limited_to(self, quota: QuotaConfig) -> Gate {
        Gate {
            quota: Arc::new(quota),
            ..self
        }
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
        let mut entry = Entry::new((self.witness.clone(), self.meter.clone()), caller, &V::INFO);
        if let Err(error) = self.decide(caller, &mut call, &mut entry).await {
            return Err(refused::<V>(entry, error).await);
        }
        // The beginning of a session or a long call is written while it is made.
        let begun = match V::Answer::LENGTH {
            Length::Session | Length::Long => Some(entry.begins()),
            Length::Whole | Length::Stream => None,
        };
        let page = call.ask().page();
        // What changes by this call is told with its name.
        let work = on_behalf(entry.id().cloned(), call.on(&*self.engine, extra));
        let work = account::on(caller.account(), work);
        let done = match self.cut(caller) {
            None => work.await,
            Some(cut) => match select(cut, Box::pin(work)).await {
                Either::Left((error, _)) => Err(error),
                // What is left of it is not for a key that is good no more.
                Either::Right((done, cut)) => done.map(|answer| answer.until(cut)),
            },
        };
        let mut answer = match done {
            Ok(answer) => answer,
            Err(error) => return Err(refused::<V>(entry, error).await),
        };
        // What a caller may not see takes no place in a page.
        let shown = self.show(caller, &mut answer);
        if let Err(error) = shown.and_then(|()| answer.page(&page)) {
            return Err(refused::<V>(entry, error).await);
        }
        if let Some(id) = entry.id() {
            answer.mark(id);
        }
        answer.facts(entry.facts());
        if V::INFO.shape != Shape::Upload {
            entry.facts().bytes_in = None;
        }
        match begun {
            None if V::Answer::LENGTH == Length::Whole => entry.ends(Ok(())).await?,
            None => answer = answer.watched(watch(entry)),
            Some(begun) if V::Answer::LENGTH == Length::Long => {
                begun.await?;
                entry.ends(Ok(())).await?;
            }
            Some(begun) => {
                begun.await?;
                answer = answer.watched(watch(entry));
            }
        }
        Ok(answer)
    }

    /// What ends a call before its time: that its key is good no more.
    pub fn cut(&self, caller: &Caller) -> Option<Cut> {
        match (&caller.who, &self.keys) {
            (Who::Key(granted), Some(keys)) => Some(keys.ends(&granted.key_id)),
            _ => None,
        }
    }

    /// Whether the call may be made, and of what.
    async fn decide<V: Verb>(
        &self,
        caller: &Caller,
        call: &mut V,
        entry: &mut Entry,
    ) -> Result<()> {
        let mut allowed = authority::check(caller, &V::INFO, call.ask());
        if V::INFO.family == "environments"
            && allowed.is_ok()
            && let Some(name) = call.name()
        {
            allowed = held::check_environment(caller, &V::INFO, name).await;
        }
        if allowed.is_ok() {
            allowed = held::check(caller, &V::INFO, call.ask_mut()).await;
        }
        if allowed.is_err() {
            entry.asks(call, None);
            entry.decided("denied");
            return allowed;
        }
        let resolved = self.resolve(caller, call).await;
        // What is not there for this caller is told nothing of, in the log neither.
        let about = match resolved {
            Ok(()) => call
                .sandbox()
                .and_then(|id| self.engine.service().about(id)),
            Err(_) => None,
        };
        entry.asks(call, about);
        resolved?;
        let walled = self.walls(caller, call);
        if walled.is_err() {
            entry.decided("denied");
        }
        walled?;
        entry.decided("allowed");
        let rate = self.count(caller, V::INFO.effect);
        if rate.is_err() {
            entry.decided("limited");
        }
        rate?;
        call.ask_mut().belongs_to(&caller.who.owner());
        if let Who::Key(granted) = &caller.who {
            call.ask_mut().bounded(&granted.bounds);
        }
        self.witness.admit(V::INFO.effect).await
    }

    /// Counts a call: for its key, and for its owner where it does more than look.
    fn count(&self, caller: &Caller, effect: Effect) -> Result<()> {
        let now = Instant::now();
        if let Who::Key(granted) = &caller.who {
            let who = format!("key {}", granted.key_id);
            let key = Allowance {
                who: &who,
                most: granted.calls_per_minute,
                limit: KEY_CALLS_PER_MINUTE,
            };
            self.rate.admit(key, now)?;
        }
        if effect == Effect::Reads {
            return Ok(());
        }
        let owner = caller.who.owner();
        let allowance = Allowance {
            who: &owner,
            most: self.quota.of_owner(&owner).calls_per_minute,
            limit: QUOTA_CALLS_PER_MINUTE,
        };
        self.rate.admit(allowance, now)
    }

    /// A sandbox that was named by a beginning or a name is meant by its id from here on, and names
    /// of a project are written out.
    async fn resolve<V: Verb>(&self, caller: &Caller, call: &mut V) -> Result<()> {
        let service = self.engine.service();
        let project = caller.who.project();
        if let Some(project) = project {
            call.within(project)?;
            if V::INFO.family == "environments"
                && let Some(name) = call.name()
            {
                let (meant, own) = service.resolve_environment(name.clone(), project).await?;
                *name = meant;
                reach::check_own(&V::INFO, name, own)?;
            }
            for name in call.ask_mut().environments() {
                *name = service.resolve_environment(name.clone(), project).await?.0;
            }
        }
        if let Some(id) = call.sandbox() {
            *id = service.resolve(id.clone(), project).await?;
        }
        for id in call.ask_mut().sandboxes() {
            *id = service.resolve(id.clone(), project).await?;
        }
        Ok(())
    }

    /// Whether what a call names may still be used, and by this caller. It is asked at each use:
    /// what was allowed when a thing was made may have been taken back since.
    fn walls<V: Verb>(&self, caller: &Caller, call: &mut V) -> Result<()> {
        if held::looks_or_ends(&V::INFO) {
            return Ok(());
        }
        let service = self.engine.service();
        let one = |named: Named<'_>| held::walled(caller, &V::INFO, service.walls(named)?);
        if V::INFO.path.contains("{terminal}") {
            one(Named::Terminal(&call.parts()[0]))?;
        }
        if let Some(name) = call.ask().terminal() {
            one(Named::Terminal(name))?;
        }
        if let Some(id) = call.sandbox() {
            one(Named::Sandbox(id))?;
        }
        let named = call.ask_mut().sandboxes();
        named.into_iter().try_for_each(|id| one(Named::Sandbox(id)))
    }

    /// Leaves out of an answer what its caller may not see.
    fn show<A: Outcome>(&self, caller: &Caller, answer: &mut A) -> Result<()> {
        match caller.who.project() {
            None => Ok(()),
            Some(project) => answer.within(&Within {
                project,
                service: self.engine.service(),
            }),
        }
    }
}

/// Writes how a call failed, and says in the error where that is written.
async fn refused<V: Verb>(entry: Entry, error: Error) -> Error {
    let mut error = V::Ask::failed(error);
    if let Some(id) = entry.id() {
        match &mut error.details {
            Value::Object(details) => drop(details.insert("audit_id".to_string(), json!(id))),
            details @ Value::Null => *details = json!({"audit_id": id}),
            _ => {}
        }
    }
    // The call has failed anyway: its own reason says more than that of the log.
    let _ = entry.ends(Err(&error)).await;
    error
}

/// Writes the end of what goes on after its answer. One that its reader left came to no end.
fn watch(mut entry: Entry) -> Watch {
    let facts = std::mem::take(entry.facts());
    let finish =
        move |facts, error: Option<Error>, ended: bool| -> BoxFuture<'static, Result<()>> {
            *entry.facts() = facts;
            match (ended, &error) {
                (true, None) => entry.ends(Ok(())),
                (true, Some(error)) => entry.ends(Err(error)),
                (false, _) => Box::pin(async { Ok(()) }),
            }
        };
    Watch::new(facts, Box::new(finish))
}
