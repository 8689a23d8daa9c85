//! Interactive use: attaching to a session, watching one, replaying a recording, entering a secret.

use super::*;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Child;

struct Person {
    keys: File,
    terminal: OwnedFd,
    child: Child,
    seen: String,
}

fn sized(cols: u16) -> Winsize {
    Winsize {
        ws_row: 33,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Person {
    fn at(world: &World, args: &[&str]) -> Person {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, sized(99)).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = world.story.command(&["terminal"]);
        command.args(args);
        let child = command.stdin(end()).stdout(end()).stderr(end());
        Person {
            child: child.spawn().unwrap(),
            keys: File::from(keys),
            terminal,
            seen: String::new(),
        }
    }

    fn types(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits until the screen has shown this text after earlier matches. Returns what was shown.
    fn sees(&mut self, text: &str) -> String {
        let mut buffer = [0; 512];
        while !self.seen.contains(text) {
            let length = self.keys.read(&mut buffer).unwrap();
            assert!(length > 0, "{text:?} is not in {:?}", self.seen);
            self.seen
                .push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        std::mem::take(&mut self.seen)
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ECHO)
    }

    fn ends_with(&mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
        assert!(self.echoes());
    }
}

#[test]
fn keys_reach_the_session_and_leaving_leaves_it_alone() {
    let world = World::new();
    let mut person = Person::at(&world, &["attach", "db shell"]);
    person.sees("the screen");
    // The stub's session echoes its input.
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
    let world = World::new();
    let mut person = Person::at(&world, &["attach", "build", "--watch"]);
    person.sees("the screen");
    assert_eq!(world.called(), ("attach_terminal", json!(["build", null])));
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
    let world = World::new();
    let mut person = Person::at(&world, &["attach", "build"]);
    person.sees("the screen");
    drop(world);
    person.sees("error:");
    person.ends_with(109);
}

#[test]
fn a_recording_is_played_and_can_be_halted() {
    let world = World::new();
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
    let world = World::new();
    let mut person = Person::at(&world, &["password", "build"]);
    person.sees("password: ");
    assert!(!person.echoes());
    person.types(b"hunter2\n");
    let seen = person.sees("welcome");
    assert!(!seen.contains("hunter2"), "{seen:?}");
    person.ends_with(0);
    assert_eq!(world.called().1[1]["password"], "hunter2");
}
