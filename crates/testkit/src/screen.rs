//! Commands on a terminal, as people run them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Runs a command that writes to a terminal with this many columns.
pub fn on_terminal(command: Command, cols: u16) -> (Child, File) {
    started(command, cols, Input::Its)
}

/// Runs a command that also reads what is typed: what is written to the screen.
pub fn typed(command: Command, cols: u16) -> (Child, File) {
    started(command, cols, Input::Typed)
}

/// What standard input is.
#[derive(PartialEq)]
enum Input {
    /// That of the command.
    Its,
    Typed,
}

fn started(mut command: Command, cols: u16, input: Input) -> (Child, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let end = || Stdio::from(terminal.try_clone().unwrap());
    if input == Input::Typed {
        command.stdin(end());
    }
    let child = command
        .env("TERM", "xterm")
        .stdout(end())
        .stderr(end())
        .spawn();
    (child.unwrap(), File::from(screen))
}

/// Everything shown on a screen until its program has ended.
pub fn all(screen: &mut File) -> String {
    let mut seen = Vec::new();
    // Reading fails when the last process has closed the terminal.
    let _ = screen.read_to_end(&mut seen);
    String::from_utf8_lossy(&seen).into_owned()
}

/// Waits until this is shown.
pub fn until(screen: &mut File, text: &str) {
    let (mut seen, mut buffer) = (String::new(), [0; 512]);
    while !seen.contains(text) {
        let patience = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let mut shown = [PollFd::new(screen, PollFlags::IN)];
        let ready = poll(&mut shown, Some(&patience)).unwrap();
        assert_eq!(ready, 1, "nothing more is shown: {seen:?}");
        let length = screen.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}
