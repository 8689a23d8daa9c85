//! What the kernel knows of a terminal: who is in front, whether they wait for
//! input, and how the terminal is set.
//!
//! The look and the count of output belong together: if something was printed
//! while it was taken, it is taken again.

use super::record::Process;
use super::tree::Scan;
use crate::answer::Failed;
use crate::blocking;
use bytes::Bytes;
use motu_link::message::{TerminalFacts, TerminalProcess};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::LocalModes;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// Members of the foreground group that are described.
const MAX_MEMBERS: usize = 32;
/// Arguments of each.
const MAX_ARGUMENTS: usize = 64;
/// Bytes of its arguments.
const MAX_ARGV_BYTES: usize = 4096;
/// Looks at a terminal that prints all the time.
const LOOKS: usize = 3;
/// Descriptors of a set that are looked at; a process with more of them is no ordinary one.
const MAX_WATCHED: u64 = 1024;
/// The size of a `pollfd`.
const POLLFD_BYTES: u64 = 8;
/// `/dev/tty`: the terminal of whoever opened it.
const DEV_TTY: (u32, u32) = (5, 0);

type Terminal = Arc<AsyncFd<OwnedFd>>;

/// Looks until nothing was printed meanwhile, at most a few times.
pub async fn look(process: &Arc<Process>) -> Result<TerminalFacts, Failed> {
    let pid = process.facts.pid;
    let terminal = process
        .terminal()
        .ok_or_else(|| Failed::invalid(format!("process {pid} has no terminal")))?;
    let mut before = printed(process, &terminal);
    let mut looks = 1;
    loop {
        let at = terminal.clone();
        let mut facts = blocking::run(move || Ok(look_once(pid, at.get_ref()))).await?;
        let after = printed(process, &terminal);
        facts.output_bytes = Some(after);
        if after == before || looks >= LOOKS {
            return Ok(facts);
        }
        before = after;
        looks += 1;
    }
}

/// Bytes printed so far: those that were read, and those that wait in the terminal. The pump reads
/// and counts without a pause in between, on this same thread.
fn printed(process: &Process, terminal: &Terminal) -> u64 {
    let waiting = rustix::io::ioctl_fionread(terminal.get_ref()).unwrap_or(0);
    process.out.end() + waiting
}

fn look_once(pid: u32, terminal: &OwnedFd) -> TerminalFacts {
    let slave = slave(terminal).ok();
    let modes = rustix::termios::tcgetattr(terminal).map(|found| found.local_modes);
    let group = rustix::termios::tcgetpgrp(terminal).map(|group| group.as_raw_nonzero().get());
    let device = slave.as_ref().and_then(|slave| {
        let found = rustix::fs::fstat(slave).ok()?;
        Some(device(found.st_rdev))
    });
    let members = match group {
        Ok(group) => Scan::now().group(group),
        Err(_) => Vec::new(),
    };
    let described = members.iter().take(MAX_MEMBERS);
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd"));
    TerminalFacts {
        foreground: described.filter_map(|pid| member(*pid, device)).collect(),
        shell_in_front: group.is_ok_and(|group| group == pid as i32),
        echo: modes.is_ok_and(|modes| modes.contains(LocalModes::ECHO)),
        canonical: modes.is_ok_and(|modes| modes.contains(LocalModes::ICANON)),
        unread_input: slave
            .and_then(|slave| rustix::io::ioctl_fionread(&slave).ok())
            .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        output_bytes: None,
        cwd: cwd.map_or(Bytes::new(), |path| {
            Bytes::copy_from_slice(path.as_os_str().as_bytes())
        }),
    }
}

/// The programs' end of a terminal, for a moment.
fn slave(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    match rustix::pty::ioctl_tiocgptpeer(master, flags) {
        // gVisor only knows the other end by its name.
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
        reads_tty: terminal.and_then(|terminal| reads(pid, terminal)),
    })
}

/// The first bytes of a file, as many as are shown of arguments.
fn beginning(path: &str) -> Vec<u8> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // A process that ends meanwhile has no arguments any more.
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

/// Whether a process waits for the terminal, by the system call it is blocked in.
fn reads(pid: i32, terminal: (u32, u32)) -> Option<bool> {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let is_terminal = |fd: u64| {
        let found = std::fs::metadata(format!("/proc/{pid}/fd/{fd}")).ok();
        found.is_some_and(|found| {
            let device = device(found.rdev());
            device == terminal || device == DEV_TTY
        })
    };
    match waiting_in(&call)? {
        Call::Read(fd) => Some(is_terminal(fd)),
        Call::Watch(set) => among(&watched(pid, set)?, is_terminal),
        Call::Epoll => None,
        Call::Other => Some(false),
    }
}

/// Whether who watches these waits for the terminal. With others beside it, that is not known:
/// the next word may come from them.
fn among(fds: &[u64], is_terminal: impl Fn(u64) -> bool) -> Option<bool> {
    let terminals = fds.iter().filter(|fd| is_terminal(**fd)).count();
    match terminals {
        0 => Some(false),
        some => (some == fds.len()).then_some(true),
    }
}

/// What a blocked process waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read(u64),
    /// `poll`, `select` and their relatives.
    Watch(Set),
    /// What it waits for is not seen.
    Epoll,
    Other,
}

/// A set of descriptors in the memory of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// An array of so many `pollfd`.
    Array { at: u64, count: u64 },
    /// Bits for the descriptors below this one.
    Bits { at: u64, below: u64 },
}

/// Reads a line of `/proc/PID/syscall`; `None` when it says nothing.
fn waiting_in(line: &str) -> Option<Call> {
    let mut words = line.split_whitespace();
    let number: i64 = match words.next()? {
        "running" => return Some(Call::Other),
        number => number.parse().ok()?,
    };
    let number = libc::c_long::try_from(number).ok()?;
    let mut argument = || {
        let word = words.next()?;
        let digits = word.strip_prefix("0x").unwrap_or(word);
        u64::from_str_radix(digits, 16).ok()
    };
    let (first, second) = (argument(), argument());
    let array = || {
        let (at, count) = (first?, second?);
        Some(Call::Watch(Set::Array { at, count }))
    };
    let bits = || {
        let (below, at) = (first?, second?);
        Some(Call::Watch(Set::Bits { at, below }))
    };
    match number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 => first.map(Call::Read),
        libc::SYS_ppoll => array(),
        libc::SYS_pselect6 => bits(),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => array(),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => bits(),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Some(Call::Epoll),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Some(Call::Epoll),
        _ => Some(Call::Other),
    }
}

/// The descriptors of a set that are watched for input. Whoever may read which call a process is
/// in may read its memory too.
fn watched(pid: i32, set: Set) -> Option<Vec<u64>> {
    let (at, bytes) = match set {
        Set::Array { at, count } => (at, count.min(MAX_WATCHED) * POLLFD_BYTES),
        Set::Bits { at: 0, .. } => return Some(Vec::new()),
        Set::Bits { at, below } => (at, below.min(MAX_WATCHED).div_ceil(8)),
    };
    let mut memory = vec![0; bytes as usize];
    if !memory.is_empty() {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
        file.read_exact_at(&mut memory, at).ok()?;
    }
    Some(match set {
        Set::Array { .. } => polled(&memory),
        Set::Bits { below, .. } => selected(&memory, below),
    })
}

fn polled(memory: &[u8]) -> Vec<u64> {
    let entries = memory.chunks_exact(POLLFD_BYTES as usize);
    let for_input = entries.filter_map(|entry| {
        let fd = i32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
        let events = i16::from_ne_bytes(entry.get(4..6)?.try_into().ok()?);
        let wanted = events & (libc::POLLIN | libc::POLLRDNORM) != 0;
        u64::try_from(fd).ok().filter(|_| wanted)
    });
    for_input.collect()
}

/// The bits of a set are in words of the machine's size; every machine here is little-endian.
fn selected(memory: &[u8], below: u64) -> Vec<u64> {
    let bits = memory.iter().enumerate().flat_map(|(at, byte)| {
        let set = (0..8u64).filter(move |bit| byte >> bit & 1 == 1);
        set.map(move |bit| at as u64 * 8 + bit)
    });
    bits.filter(|fd| *fd < below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_syscall_is_understood() {
        let read = format!(
            "{} 0x3 0x7ffd 0x1 0x0 0x0 0x0 0x7ffe 0x7f00",
            libc::SYS_read
        );
        assert_eq!(waiting_in(&read), Some(Call::Read(3)));
        let poll = format!("{} 0x7ffd 0x1 0x0", libc::SYS_ppoll);
        let set = Set::Array {
            at: 0x7ffd,
            count: 1,
        };
        assert_eq!(waiting_in(&poll), Some(Call::Watch(set)));
        let select = format!("{} 0x0 0x0 0x0", libc::SYS_pselect6);
        let set = Set::Bits { at: 0, below: 0 };
        assert_eq!(waiting_in(&select), Some(Call::Watch(set)));
        let epoll = format!("{} 0x5 0x1 0x0", libc::SYS_epoll_pwait);
        assert_eq!(waiting_in(&epoll), Some(Call::Epoll));
        assert_eq!(waiting_in("running"), Some(Call::Other));
        assert_eq!(waiting_in("-1 0x0 0x0"), Some(Call::Other));
        for nothing in ["", "x", "99999999999999999999999"] {
            assert_eq!(waiting_in(nothing), None, "{nothing:?}");
        }
        // A read whose descriptor is not said is not known.
        assert_eq!(waiting_in(&libc::SYS_read.to_string()), None);
    }

    #[test]
    fn sets_of_descriptors_are_read() {
        let entry = |fd: i32, events: i16| {
            let mut bytes = fd.to_ne_bytes().to_vec();
            bytes.extend(events.to_ne_bytes());
            bytes.extend([0, 0]);
            bytes
        };
        let array = [
            entry(0, libc::POLLIN),
            entry(-1, libc::POLLIN),
            entry(5, libc::POLLOUT),
            entry(7, libc::POLLIN | libc::POLLPRI),
        ];
        assert_eq!(polled(&array.concat()), [0, 7]);
        assert_eq!(selected(&[0b0000_1001, 0b1000_0000], 16), [0, 3, 15]);
        assert_eq!(selected(&[0b1000_1001], 5), [0, 3]);
    }

    #[test]
    fn whoever_watches_others_too_may_wait_for_them() {
        let terminal = |fd| fd < 3;
        assert_eq!(among(&[], terminal), Some(false));
        assert_eq!(among(&[5], terminal), Some(false));
        assert_eq!(among(&[0, 2], terminal), Some(true));
        assert_eq!(among(&[0, 5], terminal), None);
    }

    #[test]
    fn arguments_are_bounded() {
        assert_eq!(argv(b"a\0\0b c\0"), ["a", "b c"].map(Bytes::from));
        let many = b"x\0".repeat(1000);
        assert_eq!(argv(&many).len(), MAX_ARGUMENTS);
    }
}
