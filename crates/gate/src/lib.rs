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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use motu_core::audit::AuditCall;
    use motu_core::exec::{ExecEvent, ExecSession, Exited};
    use motu_core::sandbox::CreateSandbox;
    use motu_core::verb::{self, Recorder};
    use motu_core::{ErrorKind, SandboxId, Service, Workspaces};
    use std::sync::Mutex;

    /// Keeps what passed.
    #[derive(Default)]
    struct Notes(Mutex<Vec<AuditCall>>);

    impl Notes {
        /// Who did what, and how it went.
        fn lines(&self) -> Vec<String> {
            let calls = self.0.lock().expect("nobody panics");
            let line = |call: &AuditCall| {
                let stage = json!(call.stage);
                let stage = stage.as_str().unwrap_or_default().to_string();
                format!("{} {} {stage} {}", call.caller.who, call.verb, call.outcome)
            };
            calls.iter().map(line).collect()
        }
    }

    impl Witness for Notes {
        fn keeps(&self) -> bool {
            true
        }

        fn saw(&self, call: &AuditCall, _: bool) -> BoxFuture<'static, Result<()>> {
            self.0.lock().expect("nobody panics").push(call.clone());
            Box::pin(async { Ok(()) })
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
        assert_eq!(notes.lines(), ["remote export_workspace whole denied"]);
        let seen = notes.0.lock().expect("nobody panics").clone();
        assert_eq!(seen[0].decision, "denied");
        assert_eq!(error.details["audit_id"], json!(seen[0].id));
    }

    #[tokio::test]
    async fn who_asks_too_often_is_told_when_to_come_back() {
        let (gate, recorder, notes) = gate();
        recorder.on(|_: verb::CreateSandbox| Err(Error::unavailable("made")));
        let desk = gate
            .limited_to(QuotaConfig {
                calls_per_minute: 2,
                ..QuotaConfig::default()
            })
            .desk(Caller::new(Who::Remote, Face::Http));
        for _ in 0..2 {
            let error = desk.create_sandbox(CreateSandbox::default()).await;
            assert_eq!(error.expect_err("as told").message, "made");
        }
        let error = desk.create_sandbox(CreateSandbox::default()).await;
        let error = error.expect_err("the third");
        assert_eq!(error.kind, ErrorKind::Limit);
        assert_eq!(error.details["limit"], "quota_calls_per_minute");
        assert_eq!(recorder.written().len(), 2);
        let seen = notes.0.lock().expect("nobody panics").clone();
        assert_eq!(seen[2].decision, "limited");
    }

    #[tokio::test]
    async fn a_wrong_key_is_seen_once_a_minute_from_each_address() {
        let (gate, _, notes) = gate();
        for (key, from) in [("", 9), ("x", 1), ("motu_x", 1), ("x", 2), ("y", 1)] {
            let error = gate.introduce(key, IpAddr::from([192, 0, 2, from]));
            let error = error.expect_err("nobody has a key");
            assert_eq!(error.kind, ErrorKind::Unauthenticated);
        }
        let line = |from: u8| format!("address:192.0.2.{from} introduce whole unauthenticated");
        assert_eq!(notes.lines(), [line(1), line(2)]);
        let seen = notes.0.lock().expect("nobody panics").clone();
        assert!(
            seen.iter()
                .all(|call| call.decision == "denied" && !call.time.is_empty())
        );
    }

    #[tokio::test]
    async fn the_operator_answers_for_nobody_else() {
        let (gate, recorder, _) = gate();
        recorder.on(|_: verb::InspectEnvironment| {
            Err(Error::unavailable(format!("{:?}", account::current())))
        });
        let caller = |who| Caller::new(who, Face::Socket);
        let local = || caller(Who::Local { uid: 0 });
        let others = motu_core::Leave {
            for_others: true,
            ..Default::default()
        };
        for (caller, answers) in [
            (local(), "Operator"),
            (local().held_to(Some(Arc::default())), "Operator"),
            (local().held_to(Some(Arc::new(others))), "Other(\"\")"),
            (caller(Who::Remote), "Other(\"remote\")"),
        ] {
            let desk = gate.desk(caller);
            let error = desk.inspect_environment("busybox").await;
            assert_eq!(error.expect_err("as told").message, answers);
        }
    }

    #[tokio::test]
    async fn the_log_is_for_the_local_user() {
        let (gate, _, _) = gate();
        let desk = gate.desk(Caller::new(Who::Remote, Face::Http));
        let error = desk.audit_key().await.expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Denied);
    }

    fn session(events: Vec<Result<ExecEvent>>) -> ExecSession {
        let (input, _) = tokio::sync::mpsc::channel(1);
        ExecSession::new(futures_util::stream::iter(events).boxed(), input)
    }

    fn exited(exit_code: i32) -> Result<ExecEvent> {
        Ok(ExecEvent::Exited(Exited {
            exit_code,
            ..Exited::default()
        }))
    }

    #[tokio::test]
    async fn a_session_is_told_when_it_begins_and_when_it_ends() {
        let (gate, recorder, notes) = gate();
        recorder.on(|_: verb::Run| Ok(session(vec![exited(3)])));
        let desk = gate.desk(Caller::new(Who::Local { uid: 7 }, Face::Socket));
        let mut live = desk.run(Default::default()).await.expect("a session");
        let id = live.audit_id.clone().expect("its name");
        assert_eq!(notes.lines(), ["uid:7 run begin open"]);
        while live.events.next().await.is_some() {}
        drop(live);
        assert_eq!(notes.lines(), ["uid:7 run begin open", "uid:7 run end ok"]);
        let seen = notes.0.lock().expect("nobody panics").clone();
        assert!(seen.iter().all(|call| call.id == id));
        assert_eq!(seen[1].facts.exit_code, Some(3));
    }

    #[tokio::test]
    async fn a_caller_that_leaves_a_session_is_told() {
        let (gate, recorder, notes) = gate();
        recorder.on(|_: verb::Run| Ok(session(vec![exited(0)])));
        let desk = gate.desk(Caller::new(Who::Local { uid: 7 }, Face::Socket));
        drop(desk.run(Default::default()).await.expect("a session"));
        assert_eq!(notes.lines()[1..], ["uid:7 run end abandoned"]);
    }

    #[tokio::test]
    async fn a_typed_call_is_written_when_it_begins_and_its_error_has_a_class() {
        let (gate, recorder, notes) = gate();
        recorder.on(|_: verb::Call| Err(Error::conflict("in use")));
        let desk = gate.desk(Caller::new(Who::Local { uid: 7 }, Face::Socket));
        let error = desk.call(Default::default()).await.expect_err("as told");
        assert_eq!(error.details["class"], "transport_failure");
        let lines = ["uid:7 call begin open", "uid:7 call end conflict"];
        assert_eq!(notes.lines(), lines);
        let seen = notes.0.lock().expect("nobody panics").clone();
        assert!(
            seen.iter()
                .all(|one| error.details["audit_id"] == json!(one.id))
        );
    }

    /// Lets nobody begin, and nobody go.
    struct Stuck(Arc<Notes>);

    impl Witness for Stuck {
        fn admit(&self, _: verb::Effect) -> BoxFuture<'_, Result<()>> {
            Box::pin(std::future::pending())
        }

        fn saw(&self, call: &AuditCall, durable: bool) -> BoxFuture<'static, Result<()>> {
            self.0.saw(call, durable)
        }
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_before_its_answer_is_told() {
        let notes = Arc::new(Notes::default());
        let stuck = Arc::new(Stuck(notes.clone()));
        let gate = Gate::watched_by(Arc::new(Recorder::default()), stuck);
        let desk = gate.desk(Caller::new(Who::Remote, Face::Http));
        let call = desk.create_sandbox(Default::default());
        let answered = tokio::time::timeout(std::time::Duration::from_millis(1), call).await;
        assert!(answered.is_err());
        assert_eq!(notes.lines(), ["remote create_sandbox whole abandoned"]);
    }
}
