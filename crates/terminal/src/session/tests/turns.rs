//! A run is answered by its own end, whatever was typed before it.

use super::*;

fn shell(reads: bool, typed: u64) -> KernelFacts {
    KernelFacts {
        shell_in_front: true,
        unread_input: Some(0),
        input_bytes: Some(typed),
        ..facts("bash", reads)
    }
}

fn command(text: &str, turn: u64, code: i32) -> String {
    let (start, end) = (mark("C", turn), mark(&format!("D;{code}"), turn));
    format!("{text}\r\n{start}{text} ran\r\n{end}")
}

#[test]
fn a_short_wait_does_not_take_the_old_prompt_for_the_new_one() {
    let mut session = ready();
    let ticket = session.run(Run::new("one", ms(0)), ms(10)).unwrap();
    let outcome = only(&mut session, ticket);
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::TimedOut, Status::Running),
        "{outcome:?}"
    );
    assert_eq!(session.state(ms(11)).status, Status::Running);
    assert!(!session.is_certain());
}

#[test]
fn the_end_of_one_command_is_not_the_end_of_the_next() {
    let mut session = ready();
    let first = session.run(Run::new("one", ms(0)), ms(10)).unwrap();
    assert_eq!(only(&mut session, first).end, End::TimedOut);
    assert_eq!(session.take_input(), b"one\r");
    let second = session.run(Run::new("two", LONG), ms(11)).unwrap();
    assert_eq!(session.take_input(), b"", "the first has not begun");
    // Facts gathered before the line reached the terminal tell nothing about it.
    session.facts(shell(true, 0), ms(700));
    assert_eq!(session.take_input(), b"");
    session.output(command("one", 1, 1).as_bytes(), ms(800));
    assert_eq!(session.take_input(), b"");
    session.output(prompt(2).as_bytes(), ms(801));
    assert_eq!(session.take_input(), b"two\r");
    assert!(session.take_outcomes().is_empty());
    session.output(command("two", 2, 2).as_bytes(), ms(802));
    session.output(prompt(3).as_bytes(), ms(803));
    let outcome = only(&mut session, second);
    assert_eq!(
        (outcome.end, outcome.exit_code, outcome.output.text.as_str()),
        (End::CommandEnded, Some(2), "two ran\n")
    );
}

#[test]
fn a_line_that_was_sent_comes_before_a_run() {
    let mut session = ready();
    let sent = session.send(&Send::text("one\r", LONG), ms(10)).unwrap();
    session.tick(ms(400));
    assert!(session.take_outcomes().is_empty(), "it has not begun");
    let run = session.run(Run::new("two", LONG), ms(401)).unwrap();
    session.output(command("one", 1, 1).as_bytes(), ms(402));
    session.output(prompt(2).as_bytes(), ms(403));
    assert_eq!(only(&mut session, sent).exit_code, Some(1));
    session.output(command("two", 2, 2).as_bytes(), ms(404));
    session.output(prompt(3).as_bytes(), ms(405));
    assert_eq!(only(&mut session, run).exit_code, Some(2));
}

#[test]
fn a_shell_that_wants_the_rest_says_so() {
    let mut session = ready();
    let ticket = session.run(Run::new("echo 'a", LONG), ms(10)).unwrap();
    let more = format!("echo 'a\r\n> {}", mark("P", 1));
    session.output(more.as_bytes(), ms(11));
    let outcome = only(&mut session, ticket);
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::WaitsForInput, Status::Ready)
    );
    session.take_input();
    let rest = session.run(Run::new("b'", LONG), ms(12)).unwrap();
    assert_eq!(session.take_input(), b"b'\r");
    session.output(command("b'", 1, 0).as_bytes(), ms(13));
    session.output(prompt(2).as_bytes(), ms(14));
    assert_eq!(only(&mut session, rest).exit_code, Some(0));
}

#[test]
fn a_shell_seen_waiting_after_it_was_told_wants_the_rest() {
    let mut session = ready();
    let ticket = session.run(Run::new("echo 'a", LONG), ms(10)).unwrap();
    session.output(b"echo 'a\r\n", ms(11));
    session.tick(ms(3000));
    assert!(session.take_outcomes().is_empty(), "it may be slow");
    session.facts(shell(false, 8), ms(3001));
    assert!(session.take_outcomes().is_empty(), "it computes");
    session.facts(shell(true, 8), ms(3200));
    assert_eq!(only(&mut session, ticket).end, End::WaitsForInput);
}

#[test]
fn a_line_typed_ahead_is_a_command_of_its_own() {
    let mut session = ready();
    let slow = session.run(Run::new("slow", ms(100)), ms(10)).unwrap();
    session.output(format!("slow\r\n{}", mark("C", 1)).as_bytes(), ms(11));
    session.tick(ms(110));
    assert_eq!(only(&mut session, slow).end, End::TimedOut);
    let ahead = Run {
        force: true,
        ..Run::new("two", LONG)
    };
    let ahead = session.run(ahead, ms(120)).unwrap();
    session.output(mark("D;1", 1).as_bytes(), ms(130));
    session.output(prompt(2).as_bytes(), ms(131));
    assert!(
        session.take_outcomes().is_empty(),
        "the shell has still to read the line"
    );
    session.output(command("two", 2, 2).as_bytes(), ms(140));
    session.output(prompt(3).as_bytes(), ms(141));
    let outcome = only(&mut session, ahead);
    assert_eq!(
        (outcome.exit_code, outcome.output.text.as_str()),
        (Some(2), "two ran\n")
    );
}

#[test]
fn a_line_that_the_program_read_ends_with_the_program() {
    let mut session = ready();
    session.run(Run::new("python3", ms(100)), ms(10)).unwrap();
    session.output(
        format!("python3\r\n{}>>> ", mark("C", 1)).as_bytes(),
        ms(11),
    );
    session.facts(facts("python3", true), ms(115));
    session.take_outcomes();
    let exit = session.run(Run::new("exit(3)", LONG), ms(120)).unwrap();
    session.take_input();
    session.output(b"exit(3)\r\n", ms(121));
    session.output(mark("D;3", 1).as_bytes(), ms(130));
    session.output(prompt(2).as_bytes(), ms(131));
    assert!(session.wants_facts(ms(141)));
    session.facts(shell(true, 16), ms(142));
    let outcome = only(&mut session, exit);
    assert_eq!(
        (outcome.end, outcome.exit_code),
        (End::CommandEnded, Some(3))
    );
}
