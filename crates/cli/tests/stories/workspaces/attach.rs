//! Attaching to a shell on a terminal.

use super::*;
use crate::stubbed::person::{Person, sized};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcsetwinsize;

#[test]
fn keys_reach_the_shell_and_leaving_leaves_it_alone() {
    let world = World::new("workspace");
    let mut person = Person::at(&world, "attach ws-a sh-7");
    person.sees("the screen");
    // This shell echoes its input.
    person.types(b"hello");
    person.sees("hello");
    let size = json!(["ws-a", "sh-7", {"cols": 99, "rows": 33}]);
    assert_eq!(world.called(), ("attach_shell", size));
    assert!(!person.echoes());

    tcsetwinsize(&person.terminal, sized(77)).unwrap();
    let pid = Pid::from_child(&person.child);
    kill_process(pid, Signal::WINCH).unwrap();
    person.sees("77x33");

    // An incomplete detach sequence is only delayed, and interrupts are passed on like other keys.
    person.types(b"\x10\x03.");
    person.sees("\x10\x03.");
    person.types(b"\x10\x11");
    person.sees("left sh-7; `motu workspace attach ws-a sh-7` comes back");
    person.ends_with(0);
}

#[test]
fn a_shell_is_opened_when_none_is_named() {
    let world = World::new("workspace");
    let opened = answers::shell("sh-1");
    world.recorder.always::<verb::OpenShell>(opened);
    let mut person = Person::at(&world, "attach ws-a --detach-keys ~,.");
    person.sees("the screen");
    person.types(b"a");
    person.sees("a");
    assert_eq!(world.called().1[1], "sh-1");
    person.types(b"~.");
    person.sees("left sh-1");
    assert_eq!(person.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_is_itself_again_when_the_daemon_goes() {
    let world = World::new("workspace");
    let mut person = Person::at(&world, "attach ws-a sh-7");
    person.sees("the screen");
    person.types(b"a");
    person.sees("a");
    drop(world);
    person.sees("error:");
    person.ends_with(109);
}
