//! Signals and terminals, through the command line.

use motu_testkit::world::{SOON, World, eventually};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Termios, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Reads until `text` has appeared.
fn read_until(from: &mut impl Read, text: &str) -> String {
    let deadline = Instant::now() + SOON;
    let (mut all, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        let length = from.read(&mut piece).unwrap();
        all.extend_from_slice(&piece[..length]);
        let said = String::from_utf8_lossy(&all).into_owned();
        if said.contains(text) {
            return said;
        }
        assert!(
            length > 0 && Instant::now() < deadline,
            "{text:?} is not in {said:?}"
        );
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A command that runs a script in its own sandbox and has printed "ready".
fn running(world: &World, script: &str) -> Child {
    let mut child = world
        .command(&["run", "busybox", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(child.stdout.as_mut().unwrap(), "ready");
    child
}

#[tokio::test]
async fn signals_reach_the_command() {
    let Some(world) = World::new() else { return };
    for (sent, name, code) in [(Signal::INT, "INT", 11), (Signal::TERM, "TERM", 12)] {
        let script = format!(
            "trap 'echo caught {name}; exit {code}' {name}; echo ready; while :; do sleep 0.05; done"
        );
        let child = running(&world, &script);
        signal(&child, sent);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains(&format!("caught {name}")), "{said}");
    }
}

#[tokio::test]
async fn a_command_that_dies_of_a_signal_gives_128_and_its_number() {
    let Some(world) = World::new() else { return };
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let child = running(&world, "echo ready; exec sleep 1000");
        signal(&child, sent);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    }
    let told = world.motu(&["run", "busybox", "--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(told.code, 139, "{told:?}");
}

#[tokio::test]
async fn the_second_interrupt_kills_what_ignores_the_first() {
    let Some(world) = World::new() else { return };
    let script = "trap 'echo no' INT; echo ready; while :; do sleep 0.05; done";
    let mut child = running(&world, script);
    signal(&child, Signal::INT);
    read_until(child.stdout.as_mut().unwrap(), "no");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(137));
    eventually("its sandbox is gone", async || {
        let found = world.traces.found();
        (found.directories.is_empty(), found)
    })
    .await;
}

/// Both ends of a new terminal.
fn terminal() -> (File, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 33,
        ws_col: 99,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&theirs, size).unwrap();
    (File::from(ours), theirs)
}

fn on(terminal: &OwnedFd, mut command: Command) -> Child {
    let end = || Stdio::from(terminal.try_clone().unwrap());
    command
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap()
}

fn same(before: &Termios, after: &Termios) -> bool {
    before.local_modes == after.local_modes
        && before.input_modes == after.input_modes
        && before.output_modes == after.output_modes
}

#[tokio::test]
async fn a_terminal_is_given_and_restored() {
    let Some(world) = World::new() else { return };
    let (mut ours, theirs) = terminal();
    let before = tcgetattr(&theirs).unwrap();
    assert!(before.local_modes.contains(LocalModes::ECHO));
    let args = [
        "run",
        "-t",
        "busybox",
        "--",
        "sh",
        "-c",
        "stty size; echo re''ady; read x; echo got $x; exit 9",
    ];
    let mut child = on(&theirs, world.command(&args));
    let said = read_until(&mut ours, "ready");
    assert!(said.contains("33 99"), "{said}");
    assert!(
        !tcgetattr(&theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    );
    ours.write_all(b"keys\r").unwrap();
    read_until(&mut ours, "got keys");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(same(&before, &tcgetattr(&theirs).unwrap()));
}

#[tokio::test]
async fn keys_become_signals_inside_and_the_terminal_survives() {
    let Some(world) = World::new() else { return };
    let (mut ours, theirs) = terminal();
    let before = tcgetattr(&theirs).unwrap();
    let args = [
        "run",
        "-t",
        "busybox",
        "--",
        "sh",
        "-c",
        "echo re''ady; exec sleep 1000",
    ];
    let mut child = on(&theirs, world.command(&args));
    read_until(&mut ours, "ready");
    ours.write_all(b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(same(&before, &tcgetattr(&theirs).unwrap()));

    // The same when the daemon is killed.
    let mut world = world;
    let mut child = on(&theirs, world.command(&args));
    read_until(&mut ours, "ready");
    world.kill();
    assert_eq!(child.wait().unwrap().code(), Some(109));
    assert!(same(&before, &tcgetattr(&theirs).unwrap()));
    world.start();
}
