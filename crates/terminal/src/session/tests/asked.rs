//! What is asked now, and what was asked before something was typed.

use super::*;

const PROMPT: &str = "person@far:~$ ";

/// Programs in front, of which the last may be reading or not; nobody knows.
fn perhaps(names: &[&str]) -> KernelFacts {
    let mut facts = raw(facts(names[0], true));
    facts.foreground = Vec::new();
    for (at, name) in names.iter().enumerate() {
        facts.foreground.push(Process {
            pid: at as u32 + 2,
            name: (*name).into(),
            argv: vec![(*name).into()],
            reads_tty: None,
        });
    }
    facts
}

fn raw(facts: KernelFacts) -> KernelFacts {
    KernelFacts {
        echo: false,
        canonical: false,
        ..facts
    }
}

/// A program that reads a line without echo.
fn hidden(name: &str) -> KernelFacts {
    KernelFacts {
        echo: false,
        ..facts(name, true)
    }
}

fn password(text: &str) -> SendPassword {
    SendPassword {
        password: text.into(),
        timeout: LONG,
        force: false,
    }
}

/// A session in which a program runs that has printed this.
fn running(command: &str, printed: &str, facts: KernelFacts) -> (Session, Outcome) {
    let mut session = ready();
    let ticket = session.run(Run::new(command, LONG), ms(10)).unwrap();
    session.take_input();
    let begun = format!("{command}\r\n{}{printed}", mark("C", 1));
    session.output(begun.as_bytes(), ms(20));
    session.facts(facts, ms(121));
    session.tick(ms(121));
    let outcome = only(&mut session, ticket);
    (session, outcome)
}

#[test]
fn a_question_that_was_answered_is_not_asked_again() {
    let question = "person@far's password: ";
    let (mut session, asked) = running("ssh far", question, hidden("ssh"));
    assert_eq!(asked.state.status, Status::Password, "{asked:?}");
    let ticket = session.send_password(&password("island"), ms(200)).unwrap();
    session.take_input();
    session.output(b"\r\n", ms(210));
    // The other host has let it in; its shell reads its startup files.
    for at in [320, 900, 1500] {
        session.facts(perhaps(&["ssh"]), ms(at));
        session.tick(ms(at));
        assert!(session.take_outcomes().is_empty(), "at {at}");
        assert_eq!(session.state(ms(at)).status, Status::Running);
    }
    session.output(b"a slow greeting\r\n", ms(1600));
    session.facts(perhaps(&["ssh"]), ms(1800));
    session.tick(ms(2500));
    assert!(session.take_outcomes().is_empty(), "it goes on");
    session.output(PROMPT.as_bytes(), ms(3000));
    session.facts(perhaps(&["ssh"]), ms(3120));
    session.tick(ms(3120));
    let outcome = only(&mut session, ticket);
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::WaitsForInput, Status::Ready),
        "{outcome:?}"
    );
    assert!(
        outcome.output.text.contains("a slow greeting"),
        "{outcome:?}"
    );
}

#[test]
fn a_question_that_comes_again_is_asked_again() {
    let question = "person@far's password: ";
    let (mut session, _) = running("ssh far", question, hidden("ssh"));
    let ticket = session.send_password(&password("wrong one"), ms(200));
    session.take_input();
    let again = format!("\r\nPermission denied, please try again.\r\n{question}");
    session.output(again.as_bytes(), ms(2200));
    session.facts(hidden("ssh"), ms(2310));
    let outcome = only(&mut session, ticket.unwrap());
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::WaitsForInput, Status::Password)
    );
    assert!(outcome.output.text.contains("Permission denied"));
    // Nor does who says nothing for long keep the caller for ever.
    let ticket = session.send_password(&password("right one"), ms(2400));
    session.take_input();
    session.output(b"\r\n", ms(2410));
    session.facts(perhaps(&["ssh"]), ms(2600));
    session.tick(ms(12_500));
    let outcome = only(&mut session, ticket.unwrap());
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::Quiet, Status::Running)
    );
}

#[test]
fn a_slow_host_is_not_at_its_old_prompt() {
    let (mut session, there) = running("ssh far", PROMPT, perhaps(&["ssh"]));
    assert_eq!(there.state.status, Status::Ready, "{there:?}");
    let ticket = session.run(Run::new("read -sp 'Secret: ' x", LONG), ms(200));
    session.tick(ms(310));
    session.facts(perhaps(&["ssh"]), ms(311));
    // What was typed first asks who is there; nobody answers.
    assert!(!session.take_input().is_empty());
    session.tick(ms(3400));
    session.facts(perhaps(&["ssh"]), ms(3401));
    session.tick(ms(3402));
    assert_eq!(session.take_input(), b"read -sp 'Secret: ' x\r");
    // Nothing has come back yet.
    session.facts(perhaps(&["ssh"]), ms(3600));
    session.tick(ms(3600));
    assert!(session.take_outcomes().is_empty());
    session.output(b"read -sp 'Secret: ' x\r\nSecret: ", ms(3700));
    session.facts(perhaps(&["ssh"]), ms(3810));
    session.tick(ms(3810));
    let outcome = only(&mut session, ticket.unwrap());
    assert_eq!(outcome.state.status, Status::Password, "{outcome:?}");
}

#[test]
fn a_shell_that_took_the_place_of_ours_is_at_its_prompt() {
    let with = |words: &[&str]| {
        let mut facts = raw(facts("bash", true));
        facts.shell_in_front = true;
        facts.foreground[0].argv = words.iter().map(|word| (*word).into()).collect();
        facts
    };
    let other = with(&["bash", "--norc", "--noprofile"]);
    let command = "exec bash --norc --noprofile";
    let (_, outcome) = running(command, "bash-5.2# ", other);
    assert_eq!(
        (outcome.end, outcome.state.status),
        (End::WaitsForInput, Status::Ready),
        "{outcome:?}"
    );
    // Our own shell asks.
    let ours = with(&[
        "bash",
        "--noprofile",
        "--rcfile",
        "/run/motu/terminal/bash/motu.bash",
        "-i",
    ]);
    let (_, outcome) = running("read -e -p 'Which path $ ' x", "Which path $ ", ours);
    assert_eq!(outcome.state.status, Status::Confirm, "{outcome:?}");
}

#[test]
fn a_command_is_not_typed_as_a_secret() {
    let (mut session, asked) = running("passwd", "New password: ", hidden("passwd"));
    assert_eq!(asked.state.status, Status::Password);
    // passwd ignores the interrupt, and still waits.
    let key = Send {
        input: Input::Control("c".into()),
        ..Send::text("", LONG)
    };
    let ticket = session.send(&key, ms(200)).unwrap();
    session.take_input();
    session.facts(hidden("passwd"), ms(310));
    session.tick(ms(310));
    let outcome = only(&mut session, ticket);
    assert_eq!(outcome.state.status, Status::Password);
    assert!(
        outcome.warnings[0].contains("ignores this key"),
        "{outcome:?}"
    );
    let refused = session.run(Run::new("echo hi", LONG), ms(400)).unwrap_err();
    assert_eq!(refused, TerminalError::AsksForSecret);
    assert_eq!(session.take_input(), b"");
    let forced = Run {
        force: true,
        ..Run::new("echo hi", LONG)
    };
    session.run(forced, ms(500)).unwrap();
    assert_eq!(session.take_input(), b"echo hi\r");
}

#[test]
fn what_a_shell_left_running_at_its_start_is_not_in_front() {
    let mut facts = perhaps(&["fish", "python3"]);
    facts.foreground[1].reads_tty = Some(false);
    let (_, outcome) = running("fish", "person@here ~> ", facts);
    assert_eq!(
        (outcome.state.status, outcome.state.prompt),
        (Status::Ready, Prompt::Shell),
        "{outcome:?}"
    );
}
