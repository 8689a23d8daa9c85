//! A person at a terminal: keys, and what the screen shows.

use super::{Words, World};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

/// Somebody at a terminal that a command was given.
pub struct Person {
    keys: File,
    pub terminal: OwnedFd,
    pub child: Child,
    seen: String,
}

pub fn sized(cols: u16) -> Winsize {
    Winsize {
        ws_row: 33,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Person {
    /// Starts a command of the world on a terminal of 99 columns.
    pub fn at(world: &World, args: &(impl Words + ?Sized)) -> Person {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&terminal, sized(99)).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = world.command(args);
        let child = command.stdin(end()).stdout(end()).stderr(end());
        Person {
            child: child.spawn().unwrap(),
            keys: File::from(keys),
            terminal,
            seen: String::new(),
        }
    }

    pub fn types(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits until the screen has shown this text after earlier matches. Returns what was shown.
    pub fn sees(&mut self, text: &str) -> String {
        let mut buffer = [0; 512];
        while !self.seen.contains(text) {
            let length = self.keys.read(&mut buffer).unwrap();
            assert!(length > 0, "{text:?} is not in {:?}", self.seen);
            self.seen
                .push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        std::mem::take(&mut self.seen)
    }

    pub fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ECHO)
    }

    pub fn ends_with(&mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
        assert!(self.echoes());
    }
}
