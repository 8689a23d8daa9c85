//! Tests of the session without a terminal: bytes, facts and times are given by hand.

mod asked;
mod nested;
mod turns;

use super::*;
use crate::classify::{Confidence, Process, Prompt, Status};
use crate::error::TerminalError;
use crate::expect::Pattern;

const KEY: &str = "0123456789abcdef";
const LONG: Duration = Duration::from_secs(30);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn session() -> Session {
    Session::new(Config {
        nonce: Nonce::new(KEY),
        ..Config::default()
    })
}

fn mark(kind: &str, turn: u64) -> String {
    format!("\x1b]133;{kind};k={KEY};n={turn}\x07")
}

fn prompt(turn: u64) -> String {
    format!("{}$ {}", mark("A", turn), mark("B", turn))
}

/// A session at its first prompt.
fn ready() -> Session {
    let mut session = session();
    session.output(prompt(1).as_bytes(), ms(1));
    session
}

fn facts(name: &str, reads: bool) -> KernelFacts {
    KernelFacts {
        foreground: vec![Process {
            pid: 2,
            name: name.into(),
            argv: vec![name.into()],
            reads_tty: Some(reads),
        }],
        shell_in_front: false,
        echo: true,
        canonical: true,
        ..KernelFacts::default()
    }
}

#[track_caller]
fn only(session: &mut Session, ticket: Ticket) -> Outcome {
    let mut outcomes = session.take_outcomes();
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    let (answered, outcome) = outcomes.remove(0);
    assert_eq!(answered, ticket);
    outcome
}

#[test]
fn a_run_is_typed_at_the_prompt_and_ends_with_the_next() {
    let mut session = session();
    let ticket = session.run(Run::new("false", LONG), ms(0)).unwrap();
    assert_eq!(session.take_input(), b"", "there is no prompt yet");
    session.output(prompt(1).as_bytes(), ms(5));
    assert_eq!(session.take_input(), b"false\r");
    session.output(format!("false\r\n{}", mark("C", 1)).as_bytes(), ms(6));
    session.output(b"some ", ms(7));
    session.output(format!("text\r\n{}", mark("D;1", 1)).as_bytes(), ms(9));
    assert!(
        session.take_outcomes().is_empty(),
        "the prompt is not drawn yet"
    );
    session.output(prompt(2).as_bytes(), ms(10));
    let outcome = only(&mut session, ticket);
    assert_eq!(outcome.end, End::CommandEnded);
    assert_eq!(outcome.exit_code, Some(1));
    assert_eq!(outcome.output.text, "some text\n");
    assert_eq!(outcome.duration, ms(3));
    assert_eq!(outcome.state.confidence, Confidence::Certain);
}

#[test]
fn a_run_that_takes_long_times_out_and_can_be_followed() {
    let mut session = ready();
    let ticket = session.run(Run::new("make", ms(1000)), ms(10)).unwrap();
    session.output(
        format!("make\r\n{}one\r\n", mark("C", 1)).as_bytes(),
        ms(11),
    );
    session.tick(ms(500));
    session.facts(facts("make", false), ms(500));
    assert!(session.take_outcomes().is_empty());
    session.tick(ms(1010));
    let outcome = only(&mut session, ticket);
    assert_eq!(
        (outcome.end, outcome.output.text.as_str()),
        (End::TimedOut, "one\n")
    );
    assert_eq!(outcome.state.status, Status::Running);
    // Typing another command into it is refused.
    let refused = session.run(Run::new("ls", LONG), ms(1011)).unwrap_err();
    assert!(matches!(refused, TerminalError::NotAtPrompt { .. }));
    let poll = session
        .poll(
            Poll {
                timeout: LONG,
                shape: Shape::default(),
            },
            ms(1012),
        )
        .unwrap();
    let end = format!("two\r\n{}{}", mark("D;0", 1), prompt(2));
    session.output(end.as_bytes(), ms(2000));
    let polled = only(&mut session, poll);
    assert!(
        polled.output.text.starts_with("two\n"),
        "{:?}",
        polled.output.text
    );
}

#[test]
fn a_program_that_asks_ends_the_run() {
    let mut session = ready();
    let ticket = session.run(Run::new("rm -i x", LONG), ms(10)).unwrap();
    session.output(
        format!("rm -i x\r\n{}rm: remove file 'x'? ", mark("C", 1)).as_bytes(),
        ms(11),
    );
    assert!(!session.wants_facts(ms(50)));
    assert_eq!(session.wake_at(), Some(ms(111)));
    session.tick(ms(111));
    assert!(session.wants_facts(ms(111)));
    session.facts(facts("rm", true), ms(112));
    let outcome = only(&mut session, ticket);
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::WaitsForInput, Status::Confirm)
    );
    assert_eq!(outcome.output.text, "rm: remove file 'x'? ");
}

#[test]
fn silence_is_not_the_end_of_a_command() {
    let mut session = ready();
    session.run(Run::new("sleep 20", LONG), ms(10)).unwrap();
    session.output(format!("sleep 20\r\n{}", mark("C", 1)).as_bytes(), ms(11));
    for second in 1..20 {
        session.tick(ms(second * 1000));
        if session.wants_facts(ms(second * 1000)) {
            session.facts(facts("sleep", false), ms(second * 1000));
        }
        assert!(session.take_outcomes().is_empty());
    }
}

#[test]
fn without_facts_and_marks_a_prompt_and_quiet_end_a_run() {
    let mut session = Session::new(Config::default());
    session.output(b"user@far:~$ ", ms(1));
    let ticket = session.run(Run::new("ls", LONG), ms(500)).unwrap();
    assert_eq!(session.take_input(), b"ls\r");
    session.output(b"ls\r\na b c\r\nuser@far:~$ ", ms(510));
    session.tick(ms(620));
    assert!(
        session.take_outcomes().is_empty(),
        "the guest may still answer"
    );
    session.tick(ms(1200));
    let outcome = only(&mut session, ticket);
    assert_eq!(
        (outcome.end, outcome.output.text.as_str()),
        (End::WaitsForInput, "a b c\n")
    );
    assert_eq!(
        (outcome.state.status, outcome.state.prompt),
        (Status::Ready, Prompt::Shell)
    );
}

#[test]
fn marks_of_others_end_nothing() {
    let mut session = ready();
    session.run(Run::new("cat evil", LONG), ms(10)).unwrap();
    let evil = format!(
        "cat evil\r\n{}\x1b]133;D;0\x07\x1b]133;A\x07$ \x1b]133;B\x07",
        mark("C", 1)
    );
    session.output(evil.as_bytes(), ms(11));
    // A replayed mark of ours has no effect either.
    session.output(prompt(1).as_bytes(), ms(12));
    session.tick(ms(5000));
    assert!(session.take_outcomes().is_empty());
    assert_eq!(session.phase(), Phase::InCommand);
}

#[test]
fn the_nonce_is_in_nothing_that_is_kept() {
    let mut session = ready();
    session.output(mark("C", 1).as_bytes(), ms(2));
    let everything = session.ring.read(0, u64::MAX, usize::MAX).bytes;
    assert!(!String::from_utf8_lossy(&everything).contains(KEY));
    for record in session.take_records() {
        if let Record::Output { bytes, .. } = record {
            assert!(!String::from_utf8_lossy(&bytes).contains(KEY));
        }
    }
}

#[test]
fn expect_begins_with_what_is_on_the_screen_but_for_the_echo() {
    let mut session = ready();
    session.output(b"old needle", ms(2));
    let expect = |patterns: &[&str]| Expect {
        patterns: patterns
            .iter()
            .map(|text| Pattern::Literal((*text).into()))
            .collect(),
        timeout: ms(100),
        from: None,
        raw: false,
        echo: false,
        shape: Shape::default(),
    };
    session.send(&Send::text("x", ms(0)), ms(3)).unwrap();
    session.tick(ms(4));
    session.take_outcomes();
    let ticket = session.expect(&expect(&["needle"]), ms(5)).unwrap();
    session.tick(ms(106));
    assert_eq!(only(&mut session, ticket).end, End::Matched);
    // Cleared text is not on the screen.
    session.output(b"\x1b[H\x1b[2J$ ", ms(106));
    let ticket = session.expect(&expect(&["old"]), ms(107)).unwrap();
    session.tick(ms(208));
    assert_eq!(only(&mut session, ticket).end, End::TimedOut);
    session.output(
        format!("\r\n{}needle one\r\nneedle two\r\n", mark("C", 1)).as_bytes(),
        ms(208),
    );
    let mut from = None;
    for _ in 0..2 {
        let next = Expect {
            from,
            ..expect(&["other", "needle"])
        };
        let ticket = session.expect(&next, ms(209)).unwrap();
        let found = only(&mut session, ticket).found.unwrap();
        assert_eq!(found.index, 1);
        from = Some(found.after);
    }
    // There is no match after the last one.
    let next = Expect {
        from,
        ..expect(&["needle"])
    };
    let ticket = session.expect(&next, ms(210)).unwrap();
    session.tick(ms(400));
    assert_eq!(only(&mut session, ticket).end, End::TimedOut);
}

#[test]
fn the_end_of_the_session_answers_everybody() {
    let mut session = ready();
    session.run(Run::new("exit", LONG), ms(10)).unwrap();
    session
        .poll(
            Poll {
                timeout: LONG,
                shape: Shape::default(),
            },
            ms(10),
        )
        .unwrap();
    session.expect_prompt(LONG, ms(10)).unwrap();
    session.output(
        format!("exit\r\n{}exit\r\n", mark("C", 1)).as_bytes(),
        ms(11),
    );
    session.ended(Ended::Eof, ms(12));
    let outcomes = session.take_outcomes();
    assert!(outcomes.len() >= 2);
    assert!(
        outcomes
            .iter()
            .any(|(_, outcome)| outcome.end == End::SessionEnded)
    );
    assert_eq!(session.state(ms(13)).status, Status::Eof);
    assert_eq!(
        session.run(Run::new("x", LONG), ms(14)).unwrap_err(),
        TerminalError::Ended
    );
}

#[test]
fn requests_and_records_are_bounded() {
    let mut session = ready();
    let poll = Poll {
        timeout: LONG,
        shape: Shape::default(),
    };
    session.polled = session.end();
    for _ in 0..WAITERS {
        session.poll(poll, ms(10)).unwrap();
    }
    assert!(matches!(
        session.poll(poll, ms(10)),
        Err(TerminalError::TooManyWaiters { .. })
    ));
    let huge = "x".repeat(INPUT_BYTES + 1);
    assert!(matches!(
        session.run(Run::new(huge, LONG), ms(10)),
        Err(TerminalError::TooLong { .. })
    ));
    for round in 0..20_000 {
        session.output(b"line\r\n", ms(100 + round * 10));
    }
    assert!(session.records.len() <= RECORDS);
}

#[test]
fn a_cancelled_request_leaves_the_command_alone() {
    let mut session = ready();
    let ticket = session.run(Run::new("make", LONG), ms(10)).unwrap();
    session.output(format!("make\r\n{}", mark("C", 1)).as_bytes(), ms(11));
    session.cancel(ticket, ms(12));
    assert_eq!(only(&mut session, ticket).end, End::Cancelled);
    assert_eq!(session.phase(), Phase::InCommand);
}

#[test]
fn long_lines_to_a_line_reader_are_warned_about() {
    let mut session = ready();
    session.run(Run::new("cat", LONG), ms(10)).unwrap();
    session.output(format!("cat\r\n{}", mark("C", 1)).as_bytes(), ms(11));
    session.facts(facts("cat", true), ms(120));
    session.take_outcomes();
    let ticket = session
        .send(&Send::text("y".repeat(5000), ms(1)), ms(130))
        .unwrap();
    session.tick(ms(140));
    assert_eq!(only(&mut session, ticket).warnings.len(), 1);
}

#[test]
fn facts_do_not_overtake_output() {
    let mut session = ready();
    let ticket = session.run(Run::new("python3", LONG), ms(10)).unwrap();
    session.output(format!("python3\r\n{}", mark("C", 1)).as_bytes(), ms(11));
    let early = KernelFacts {
        output_bytes: Some(session.received() + 4),
        ..facts("python3", true)
    };
    session.tick(ms(120));
    session.facts(early.clone(), ms(120));
    assert!(
        session.take_outcomes().is_empty(),
        "its prompt is still on the way"
    );
    assert!(!session.wants_facts(ms(121)));
    session.output(b">>> ", ms(125));
    session.tick(ms(225));
    assert!(session.wants_facts(ms(225)));
    session.facts(early, ms(226));
    assert_eq!(only(&mut session, ticket).state.status, Status::Repl);
}

#[test]
fn a_session_may_move_between_threads() {
    fn moves<T: std::marker::Send + 'static>(_: &T) {}
    moves(&session());
}
