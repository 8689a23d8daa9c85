//! Who reads at a prompt without marks is asked before a key is typed there.

use super::*;

const PROMPT: &str = "person@far:~$ ";

/// A session in whose shell a program runs that has printed a prompt.
fn inside(name: &str) -> Session {
    let mut session = ready();
    let ticket = session.run(Run::new(name, LONG), ms(10)).unwrap();
    session.take_input();
    let begun = format!("{name}\r\n{}{PROMPT}", mark("C", 1));
    session.output(begun.as_bytes(), ms(20));
    session.cancel(ticket, ms(21));
    session.take_outcomes();
    wait(&mut session, name, 1000);
    session
}

/// The program reads, and nothing came for a while.
fn wait(session: &mut Session, name: &str, at: u64) {
    session.facts(facts(name, true), ms(at));
    session.tick(ms(at + 500));
    session.facts(facts(name, true), ms(at + 501));
}

fn typed(session: &mut Session) -> String {
    String::from_utf8(session.take_input()).unwrap()
}

/// What a shell prints for the question that was typed.
fn answer(question: &str, versions: &str) -> String {
    let mut words = question.split_whitespace().skip(2);
    let (second, first) = (words.next().unwrap(), words.next().unwrap());
    format!("\x1b]133;V;__motu_;{second}{first};{versions}\x07\r\x1b[K{PROMPT}")
}

#[test]
fn a_program_that_only_prints_a_prompt_is_never_told_a_key() {
    for name in ["ssh", "bash"] {
        let mut session = inside(name);
        let ticket = session.run(Run::new("secret plans", LONG), ms(2000));
        let ticket = ticket.unwrap();
        wait(&mut session, name, 2000);
        let mut all = typed(&mut session);
        assert!(all.contains("printf"), "{name}: {all:?}");
        // It shows what it reads, and prints its prompt again, for as long as it likes.
        for at in [2600, 3600, 5200, 6400, 8000] {
            let shown = format!("{}\r\nwhat?\r\n{PROMPT}", all.trim_end());
            session.output(shown.as_bytes(), ms(at));
            wait(&mut session, name, at);
            all.push_str(&typed(&mut session));
        }
        assert!(all.ends_with("secret plans\r"), "{name}: {all:?}");
        for word in ["k=", "__motu_k", "__motu_nonce", "eval"] {
            assert!(!all.contains(word), "{name}: {word} in {all:?}");
        }
        assert_eq!(session.carried().nested, Vec::<String>::new());
        let outcome = only(&mut session, ticket);
        assert!(
            outcome.warnings[0].contains("this shell is not bash"),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_shell_that_answers_is_integrated_and_one_of_another_kind_is_not() {
    for (versions, keyed) in [("5.2.15(1)-release,,", true), (",,", false)] {
        let mut session = inside("ssh");
        session.run(Run::new("true", LONG), ms(2000)).unwrap();
        wait(&mut session, "ssh", 2000);
        let question = typed(&mut session);
        session.output(answer(&question, versions).as_bytes(), ms(2600));
        assert!(session.wants_facts(ms(2800)), "{versions}");
        wait(&mut session, "ssh", 2700);
        let then = typed(&mut session);
        assert_eq!(then.contains("__motu_k="), keyed, "{versions}: {then:?}");
        assert_eq!(then == "true\r", !keyed, "{versions}: {then:?}");
    }
}

#[test]
fn what_was_proven_holds_for_the_next_line_alone() {
    let mut session = inside("ssh");
    let ticket = session.run(Run::new("true", LONG), ms(2000)).unwrap();
    wait(&mut session, "ssh", 2000);
    let question = typed(&mut session);
    session.output(
        answer(&question, "5.2.15(1)-release,,").as_bytes(),
        ms(2600),
    );
    // Somebody starts a program there before the key is typed.
    session.cancel(ticket, ms(2601));
    session.send(&Send::text("cat\r", ms(0)), ms(2602)).unwrap();
    session.output(format!("cat\r\n{PROMPT}").as_bytes(), ms(2610));
    typed(&mut session);
    wait(&mut session, "ssh", 2700);
    session.run(Run::new("true", LONG), ms(3300)).unwrap();
    wait(&mut session, "ssh", 3300);
    let then = typed(&mut session);
    assert!(then.contains("printf"), "{then:?}");
    assert!(!then.contains("__motu_k="), "{then:?}");
}
