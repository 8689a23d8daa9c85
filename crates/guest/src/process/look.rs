//! Kernel facts about a terminal: the foreground processes, whether they wait for input, and the
//! terminal's settings.
//!
//! The facts are tied to an output offset: if something was printed while they were gathered, they
//! are gathered again.

mod carried;
mod waiting;

use super::tree::Scan;
use crate::answer::Failed;
use crate::blocking;
use crate::running::Process;
use bytes::Bytes;
use motu_link::message::{TerminalFacts, TerminalProcess};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::LocalModes;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Members of the foreground group that are reported.
const MAX_MEMBERS: usize = 32;
/// Arguments reported per process.
const MAX_ARGUMENTS: usize = 64;
/// Bytes of arguments reported per process.
const MAX_ARGV_BYTES: usize = 4096;
/// Attempts at a terminal that prints all the time.
const LOOKS: usize = 3;
/// `FIONREAD` of a pty reports at most about this much of what it buffers.
const FULL_BYTES: u64 = 4000;
/// A pty buffers at most this much before writers block.
const TERMINAL_BYTES: u64 = 72 * 1024;
const PUMP_PATIENCE: Duration = Duration::from_millis(100);
/// Nested terminals that are followed.
const MAX_CARRIED: usize = 4;

type Terminal = Arc<AsyncFd<OwnedFd>>;

/// Gathers facts until nothing was printed meanwhile, a few times at most.
pub async fn look(process: &Arc<Process>) -> Result<TerminalFacts, Failed> {
    let pid = process.facts.pid;
    let terminal = process
        .terminal()
        .ok_or_else(|| Failed::invalid(format!("process {pid} has no terminal")))?;
    let mut before = printed(process, &terminal);
    let mut looks = 1;
    loop {
        let at = terminal.clone();
        let typed = process.stdin.written();
        let mut facts = blocking::run(move || Ok(look_once(pid, at.get_ref()))).await?;
        let after = everything(process, &terminal).await;
        facts.input_bytes = Some(typed);
        facts.output_bytes = Some(after);
        if after == before || looks >= LOOKS {
            return Ok(facts);
        }
        before = after;
        looks += 1;
    }
}

/// Bytes printed so far: those read, and those buffered in the terminal. The pump reads and counts
/// without an await in between, on this same thread.
fn printed(process: &Process, terminal: &Terminal) -> u64 {
    flush(terminal.get_ref());
    let waiting = rustix::io::ioctl_fionread(terminal.get_ref()).unwrap_or(0);
    process.out.end() + waiting
}

/// Like `printed`; if the terminal buffers more than `FIONREAD` shows, waits for the pump to read
/// it.
async fn everything(process: &Process, terminal: &Terminal) -> u64 {
    let mut changes = process.changes();
    let most = process.out.end() + TERMINAL_BYTES;
    loop {
        let printed = printed(process, terminal);
        let read = process.out.end();
        if printed - read < FULL_BYTES || read >= most || process.has_exited() {
            return printed;
        }
        // A pump that is blocked by a follower continues when that one has read.
        let moved = tokio::time::timeout(PUMP_PATIENCE, changes.changed()).await;
        if !matches!(moved, Ok(Ok(()))) {
            return printed;
        }
    }
}

/// Output written to the slave passes through a kernel work queue; `poll` on the master waits for
/// that queue.
fn flush(terminal: &OwnedFd) {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    // Whatever `poll` returns, the queue has been flushed.
    let _ = poll(&mut asked, Some(&Timespec::default()));
}

fn look_once(pid: u32, terminal: &OwnedFd) -> TerminalFacts {
    let cwd = |pid: i32| std::fs::read_link(format!("/proc/{pid}/cwd"));
    let bytes = |path: std::io::Result<std::path::PathBuf>| {
        path.map_or(Bytes::new(), |path| {
            Bytes::copy_from_slice(path.as_os_str().as_bytes())
        })
    };
    let group = rustix::termios::tcgetpgrp(terminal).map(|group| group.as_raw_nonzero().get());
    let mut facts = TerminalFacts {
        shell_in_front: group.is_ok_and(|group| group == pid as i32),
        cwd: bytes(cwd(pid as i32)),
        ..TerminalFacts::default()
    };
    let slave = slave(terminal).ok();
    // Read the unread input first, then who waits: a process that waits after all input was read
    // waits for more.
    facts.unread_input = slave.as_ref().and_then(unread);
    settings(terminal, &mut facts);
    let device = slave.as_ref().and_then(|slave| {
        let found = rustix::fs::fstat(slave).ok()?;
        Some(device(found.st_rdev))
    });
    let Ok(group) = group else { return facts };
    let scan = Scan::now();
    let mut level = carried::Level::new(&scan, device, group);
    while let Some(inner) = level.inner(&scan) {
        if facts.carriers.len() >= MAX_CARRIED {
            break;
        }
        facts.carriers.push(inner.carrier);
        settings(&inner.terminal, &mut facts);
        facts.unread_input = match (facts.unread_input, unread(&inner.terminal)) {
            (Some(outer), Some(inner)) => Some(outer.saturating_add(inner)),
            (known, other) => known.or(other),
        };
        level = inner.level;
    }
    let described = level.members.iter().take(MAX_MEMBERS);
    facts.foreground = described
        .filter_map(|pid| member(*pid, level.device))
        .collect();
    facts.front_cwd = level
        .members
        .first()
        .map_or(Bytes::new(), |pid| bytes(cwd(*pid)));
    facts
}

fn unread(slave: &OwnedFd) -> Option<u32> {
    flush(slave);
    let bytes = rustix::io::ioctl_fionread(slave).ok()?;
    Some(u32::try_from(bytes).unwrap_or(u32::MAX))
}

fn settings(terminal: &OwnedFd, facts: &mut TerminalFacts) {
    let modes = rustix::termios::tcgetattr(terminal).map(|found| found.local_modes);
    facts.echo = modes.is_ok_and(|modes| modes.contains(LocalModes::ECHO));
    facts.canonical = modes.is_ok_and(|modes| modes.contains(LocalModes::ICANON));
}

/// Opens the slave side of a terminal.
fn slave(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    match rustix::pty::ioctl_tiocgptpeer(master, flags) {
        // gVisor has no `TIOCGPTPEER`: open the slave by its name.
        Err(Errno::NOTTY | Errno::INVAL) => {
            let name = rustix::pty::ptsname(master, Vec::new())?;
            let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            rustix::fs::open(&name, flags, Mode::empty())
        }
        other => other,
    }
}

fn device(number: u64) -> (u32, u32) {
    (rustix::fs::major(number), rustix::fs::minor(number))
}

fn member(pid: i32, terminal: Option<(u32, u32)>) -> Option<TerminalProcess> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(TerminalProcess {
        pid: pid as u32,
        name: Bytes::copy_from_slice(name.get(..64).unwrap_or(name)),
        argv: argv(&beginning(&format!("/proc/{pid}/cmdline"))),
        reads_tty: terminal.and_then(|terminal| waiting::reads(pid, terminal)),
    })
}

/// The first `MAX_ARGV_BYTES` bytes of a file.
fn beginning(path: &str) -> Vec<u8> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // A process that ends meanwhile has no arguments.
        let _ = file.take(MAX_ARGV_BYTES as u64).read_to_end(&mut bytes);
    }
    bytes
}

fn argv(bytes: &[u8]) -> Vec<Bytes> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|argument| !argument.is_empty())
        .take(MAX_ARGUMENTS)
        .map(Bytes::copy_from_slice)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_bounded() {
        assert_eq!(argv(b"a\0\0b c\0"), ["a", "b c"].map(Bytes::from));
        let many = b"x\0".repeat(1000);
        assert_eq!(argv(&many).len(), MAX_ARGUMENTS);
    }
}
