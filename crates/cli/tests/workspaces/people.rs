//! Output that only a terminal shows: fitted tables, and progress messages.

use super::*;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command};

/// Runs a command on a terminal with this many columns.
fn on_terminal(mut command: Command, cols: u16) -> (Child, File) {
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
    let child = command
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(end())
        .stderr(end())
        .spawn();
    (child.unwrap(), File::from(screen))
}

/// Everything shown on a screen until its program has ended.
fn all(screen: &mut File) -> String {
    let mut seen = Vec::new();
    // Reading fails when the last process has closed the terminal.
    let _ = screen.read_to_end(&mut seen);
    String::from_utf8_lossy(&seen).into_owned()
}

#[test]
fn a_table_is_no_wider_than_its_terminal() {
    let world = World::new();
    let path = format!("/workspace/{}", "deep/".repeat(20));
    let mut list = world
        .story
        .command(&["workspace", "file", "list", "ws-a", &path]);
    list.env("NO_COLOR", "1");
    let (mut child, mut screen) = on_terminal(list, 50);
    let seen = all(&mut screen);
    assert!(child.wait().unwrap().success());
    let rows: Vec<&str> = seen.lines().map(str::trim_end).take(2).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 50), "{seen}");
    assert!(
        rows[1].contains("/workspace/deep") && rows[1].ends_with('…'),
        "{seen}"
    );
    // A program gets the full text.
    let whole = world.motu(&format!("file list ws-a {path}")).to_string();
    assert!(whole.contains(&format!("{path}/link")), "{whole}");
}

#[test]
fn a_person_who_waits_is_told_so_and_a_program_is_not() {
    let world = World::new();
    let stop = world.story.command(&["workspace", "stop", "ws-slow"]);
    let (mut child, mut screen) = on_terminal(stop, 80);
    let (mut seen, mut buffer) = (String::new(), [0; 512]);
    while !seen.contains("stopping") {
        let patience = rustix::event::Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let mut shown = [PollFd::new(&screen, PollFlags::IN)];
        let ready = rustix::event::poll(&mut shown, Some(&patience)).unwrap();
        assert_eq!(ready, 1, "nothing more is shown: {seen:?}");
        let length = screen.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    world.stub.go_on.notify_one();
    let rest = all(&mut screen);
    assert!(child.wait().unwrap().success());
    assert!(
        rest.contains("ws-a is running") || rest.contains("ws-slow is running"),
        "{rest:?}"
    );

    let stop = world
        .story
        .command(&["workspace", "--json", "stop", "ws-slow"]);
    let (mut child, mut screen) = on_terminal(stop, 80);
    // Longer than the delay before a progress message.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    world.stub.go_on.notify_one();
    let seen = all(&mut screen);
    assert!(child.wait().unwrap().success());
    assert!(!seen.contains("stopping"), "{seen:?}");
}
