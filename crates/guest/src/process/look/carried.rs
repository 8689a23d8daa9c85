//! Nested terminals: `sudo`, `script` and the like read keys from one terminal and pass them on to
//! another one of their own. The foreground processes of the inner one are those that get the keys.

use super::super::tree::Scan;
use super::{device, waiting};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

/// The major device number of Unix98 pty slaves; the minor is the terminal's number.
const SLAVES: u32 = 136;
/// Descriptors examined per process.
const MAX_FDS: usize = 256;
/// Processes of other sessions that are examined.
const MAX_STRAYS: usize = 32;

/// A terminal and its foreground processes.
pub struct Level {
    pub device: Option<(u32, u32)>,
    /// The group's leader first; then processes of other sessions that read the terminal.
    pub members: Vec<i32>,
}

/// A terminal whose master side is held by a foreground process of another one.
pub struct Inner {
    pub level: Level,
    pub terminal: OwnedFd,
    /// The name of the process that holds it.
    pub carrier: Bytes,
}

impl Level {
    pub fn new(scan: &Scan, device: Option<(u32, u32)>, group: i32) -> Level {
        let mut members = scan.group(group);
        let strays = scan.strays(&members).into_iter().take(MAX_STRAYS);
        let reads =
            |pid: &i32| device.is_some_and(|device| waiting::reads(*pid, device) == Some(true));
        members.extend(strays.filter(reads).collect::<Vec<_>>());
        Level { device, members }
    }

    /// The terminal that a foreground process holds and passes keys on to.
    pub fn inner(&self, scan: &Scan) -> Option<Inner> {
        let terminal = self.device?;
        // Newest first: a wrapper's child is in front of the wrapper.
        self.members.iter().rev().find_map(|pid| {
            let kept = match server_of(scan, *pid) {
                // The tmux server also has the client's terminal, and reads it.
                Some(server) => kept(server),
                // A process that does not read this terminal passes nothing on now.
                None if waiting::reads(*pid, terminal) == Some(false) => return None,
                None => kept(*pid),
            };
            let [number] = kept[..] else { return None };
            let inner = (SLAVES, number);
            if inner == terminal {
                return None;
            }
            let level = Level::new(scan, Some(inner), scan.front_of(inner)?);
            let opened = level.members.iter().find_map(|pid| open(*pid, inner))?;
            let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
            let name = name.strip_suffix(b"\n").unwrap_or(&name);
            Some(Inner {
                level,
                terminal: opened,
                carrier: Bytes::copy_from_slice(name.get(..64).unwrap_or(name)),
            })
        })
    }
}

/// The numbers of the terminals whose master side a process holds.
fn kept(pid: i32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let entries = entries.into_iter().flatten().flatten().take(MAX_FDS);
    let number = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        if !link.to_str()?.ends_with("ptmx") {
            return None;
        }
        let fd = entry.file_name().to_str()?.to_owned();
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
        info.lines()
            .find_map(|line| line.strip_prefix("tty-index:")?.trim().parse().ok())
    };
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The server of a tmux client, which holds the terminals in the client's stead.
fn server_of(scan: &Scan, pid: i32) -> Option<i32> {
    let is = |pid: i32, name: &[u8]| {
        std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|found| found == name)
    };
    if !is(pid, b"tmux: client\n") {
        return None;
    }
    let owner = |pid: i32| std::fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    let user = owner(pid).ok()?;
    let ours = |pid: &i32| is(*pid, b"tmux: server\n") && owner(*pid).is_ok_and(|uid| uid == user);
    scan.pids().find(ours)
}

/// Opens the terminal through a process that has it open.
fn open(pid: i32, wanted: (u32, u32)) -> Option<OwnedFd> {
    (0..3).find_map(|fd| {
        let path = format!("/proc/{pid}/fd/{fd}");
        let found = std::fs::metadata(&path).ok()?;
        if device(found.rdev()) != wanted {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::open(&path, flags, Mode::empty()).ok()
    })
}
