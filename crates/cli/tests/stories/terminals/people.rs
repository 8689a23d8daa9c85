//! Interactive use: attaching to a session, watching one, replaying a recording, entering a secret.

use super::*;
use crate::stubbed::person::{Person, sized};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcsetwinsize;

#[test]
fn keys_reach_the_session_and_leaving_leaves_it_alone() {
    let world = World::new("terminal");
    let mut person = Person::at(&world, &["attach", "db shell"]);
    person.sees("the screen");
    // This session echoes its input.
    person.types(b"hello");
    person.sees("hello");
    let seat = json!(["db shell", {"cols": 99, "rows": 33}]);
    assert_eq!(world.called(), ("attach_terminal", seat));
    assert!(!person.echoes());
    tcsetwinsize(&person.terminal, sized(77)).unwrap();
    kill_process(Pid::from_child(&person.child), Signal::WINCH).unwrap();
    person.sees("77x33");
    person.types(b"\x10\x11");
    person.sees("left 'db shell'; `motu terminal attach 'db shell'` comes back");
    person.ends_with(0);
}

#[test]
fn whoever_watches_types_nothing() {
    let world = World::new("terminal");
    let mut person = Person::at(&world, &["attach", "build", "--watch"]);
    person.sees("the screen");
    assert_eq!(world.called(), ("attach_terminal", json!(["build", {}])));
    person.types(b"rm -rf /\r");
    tcsetwinsize(&person.terminal, sized(77)).unwrap();
    kill_process(Pid::from_child(&person.child), Signal::WINCH).unwrap();
    person.types(b"\x03");
    let seen = person.sees("left build; `motu terminal attach build --watch` comes back");
    assert!(
        !seen.contains("rm -rf") && !seen.contains("77x33"),
        "{seen:?}"
    );
    person.ends_with(0);
}

#[test]
fn a_terminal_is_itself_again_when_the_daemon_goes() {
    let world = World::new("terminal");
    let mut person = Person::at(&world, &["attach", "build"]);
    person.sees("the screen");
    drop(world);
    person.sees("error:");
    person.ends_with(109);
}

#[test]
fn a_recording_is_played_and_can_be_halted() {
    let world = World::new("terminal");
    recordings::tell_of_recordings(&world);
    let mut person = Person::at(&world, &["replay", "build", "--speed", "2"]);
    let seen = person.sees("\u{1b}[32mdone\u{1b}[0m");
    assert!(seen.contains("$ make\r\n"), "{seen:?}");
    person.ends_with(0);

    let long = "{\"version\":3,\"term\":{\"cols\":200,\"rows\":24}}\n[0, \"o\", \"first\"]\n[600, \"o\", \"last\"]\n";
    std::fs::write(world.story.path().join("long.cast"), long).unwrap();
    let mut person = Person::at(&world, &["replay", "long.cast"]);
    let seen = person.sees("first");
    let warning = "recorded at 200x24, this terminal is 99x33";
    assert!(seen.contains(warning), "{seen:?}");
    // Not a key: a terminal's answer to a query of its type.
    person.types(b"\x1b[1 q");
    person.types(b" ");
    person.types(b"q");
    person.ends_with(0);
}

#[test]
fn a_secret_is_not_shown_while_it_is_typed() {
    let world = World::new("terminal");
    tell_of_passwords(&world);
    let mut person = Person::at(&world, &["password", "build"]);
    person.sees("password: ");
    assert!(!person.echoes());
    person.types(b"hunter2\n");
    let seen = person.sees("welcome");
    assert!(!seen.contains("hunter2"), "{seen:?}");
    person.ends_with(0);
    assert_eq!(world.called().1[1]["password"], "hunter2");
}
