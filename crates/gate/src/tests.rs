//! Calls through a gate to an engine that records what reaches it.

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
