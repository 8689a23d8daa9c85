//! Attaching to a shell on a terminal.

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
    fn at(world: &World, args: &str) -> Person {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, sized(99)).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = world.story.command(&["workspace"]);
        command.args(args.split_whitespace());
        let child = command.stdin(end()).stdout(end()).stderr(end());
        let mut person = Person {
            child: child.spawn().unwrap(),
            keys: File::from(keys),
            terminal,
            seen: String::new(),
        };
        person.sees("the screen");
        person
    }

    fn types(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits until the screen has shown this text after earlier matches.
    fn sees(&mut self, text: &str) {
        let mut buffer = [0; 512];
        while !self.seen.contains(text) {
            let length = self.keys.read(&mut buffer).unwrap();
            assert!(length > 0, "{text:?} is not in {:?}", self.seen);
            self.seen
                .push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        self.seen.clear();
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ECHO)
    }
}

#[test]
fn keys_reach_the_shell_and_leaving_leaves_it_alone() {
    let world = World::new();
    let mut person = Person::at(&world, "attach ws-a sh-7");
    // The stub's shell echoes its input.
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
    assert_eq!(person.child.wait().unwrap().code(), Some(0));
    assert!(person.echoes());
}

#[test]
fn a_shell_is_opened_when_none_is_named() {
    let world = World::new();
    let mut person = Person::at(&world, "attach ws-a --detach-keys ~,.");
    person.types(b"a");
    person.sees("a");
    assert_eq!(world.called().1[1], "sh-1");
    person.types(b"~.");
    person.sees("left sh-1");
    assert_eq!(person.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_is_itself_again_when_the_daemon_goes() {
    let world = World::new();
    let mut person = Person::at(&world, "attach ws-a sh-7");
    person.types(b"a");
    person.sees("a");
    drop(world);
    person.sees("error:");
    assert_eq!(person.child.wait().unwrap().code(), Some(109));
    assert!(person.echoes());
}
