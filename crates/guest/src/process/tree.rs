//! The processes below a shim, as `/proc` shows them, and how to end them all.
//!
//! A tree may fork while it is being killed. So it is stopped first, scanned until no new member
//! appears, and only then killed. Signals go through a pidfd whose start time was checked, so a
//! reused pid is never hit.
//!
//! One whose processes are gone before they are looked at, because each forks the next and ends,
//! escapes that. If new members appear again and again, every process of the machine is stopped at
//! one moment, the tree is killed, and the others go on.

use crate::running::Process;
use crate::sys;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Processes looked at in one scan.
const MAX_SCANNED: usize = 100_000;
/// Passes that stop a tree before it is killed regardless.
const STOP_PASSES: usize = 16;
/// Passes that kill; the pauses between them grow to [`MAX_PAUSE`], some ten seconds in all.
const KILL_PASSES: usize = 120;
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// Passes after which a tree that still has new members is caught with everything else standing
/// still.
const PATIENT_PASSES: usize = 5;
/// Scans until a machine in which everything stands still has shown all its processes.
const STILL_SCANS: usize = 20;

/// One living process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// Its controlling terminal (`(0, 0)` for none) and that terminal's foreground group.
    terminal: (u32, u32),
    front: i32,
    start_time: u64,
    /// Processor time of its own and of the children it has waited for, in ticks.
    ticks: u64,
    zombie: bool,
    /// Stopped by a signal.
    stopped: bool,
}

impl Member {
    /// What tells it from another process that gets its number later.
    fn key(&self) -> (i32, u64) {
        (self.pid, self.start_time)
    }
}

/// A snapshot of all processes of the machine.
#[derive(Debug)]
pub struct Scan {
    members: Vec<Member>,
    children: HashMap<i32, Vec<usize>>,
}

impl Scan {
    pub fn now() -> Scan {
        let mut members = Vec::new();
        for entry in std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .take(MAX_SCANNED)
        {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            members.extend(pid.and_then(member));
        }
        let mut children: HashMap<i32, Vec<usize>> = HashMap::new();
        for (index, member) in members.iter().enumerate() {
            children.entry(member.parent).or_default().push(index);
        }
        Scan { members, children }
    }

    /// Processor time that all processes have used, those included that were waited for, in ticks.
    pub fn ticks(&self) -> u64 {
        let all = self.members.iter().map(|member| member.ticks);
        all.fold(0, u64::saturating_add)
    }

    /// Whether every process but this one is stopped. One that is dying moves until it is a zombie.
    fn is_still(&self) -> bool {
        let own = std::process::id() as i32;
        let others = self.members.iter().filter(|member| member.pid != own);
        let mut others = others;
        others.all(|member| member.zombie || member.stopped)
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Living members of a process group, the leader first.
    pub fn group(&self, group: i32) -> Vec<i32> {
        let members = self.members.iter();
        let found = members.filter(|member| member.group == group && !member.zombie);
        let mut pids: Vec<i32> = found.map(|member| member.pid).collect();
        pids.sort_unstable_by_key(|pid| (*pid != group, *pid));
        pids
    }

    /// The foreground group of a terminal, from `/proc/PID/stat` of its processes.
    pub fn front_of(&self, terminal: (u32, u32)) -> Option<i32> {
        let on_it = |member: &&Member| member.terminal == terminal && !member.zombie;
        let front = self.members.iter().find(on_it)?.front;
        (front > 0).then_some(front)
    }

    /// Living descendants of these processes in another session: they may use the terminal, but are
    /// never in its foreground group.
    pub fn strays(&self, pids: &[i32]) -> Vec<i32> {
        let first = |pid: &i32| self.members.iter().find(|member| member.pid == *pid);
        let Some(session) = pids.first().and_then(first).map(|member| member.session) else {
            return Vec::new();
        };
        let below = |pid: i32| self.children.get(&pid).into_iter().flatten().copied();
        let mut todo: Vec<usize> = pids.iter().flat_map(|pid| below(*pid)).collect();
        let mut seen: HashSet<usize> = todo.iter().copied().collect();
        let mut found = Vec::new();
        while let Some(member) = todo.pop().and_then(|index| self.members.get(index)) {
            if member.session != session && !member.zombie {
                found.push(member.pid);
            }
            todo.extend(below(member.pid).filter(|index| seen.insert(*index)));
        }
        found
    }

    /// Living processes, by number.
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        let living = self.members.iter().filter(|member| !member.zombie);
        living.map(|member| member.pid)
    }

    /// Living members of a started process's tree, the shim not included.
    pub fn tree(&self, process: &Process) -> Vec<Member> {
        if !process.may_live() && !process.lost_its_shim() {
            return Vec::new();
        }
        let below = self.children.get(&process.facts.shim).into_iter().flatten();
        let mut todo: Vec<usize> = below.copied().collect();
        // When the shim was killed, its children are reparented to us and known only by their
        // session. The same holds just before we learn of it. While the program or any process of
        // its session lives, the kernel does not reuse the session's number.
        if process.lost_its_shim() || !process.has_exited() {
            let session = process.facts.pid as i32;
            let members = self.members.iter().enumerate();
            let found = members.filter(|(_, member)| member.session == session);
            todo.extend(found.map(|(index, _)| index));
        }
        // Members that have also left the session: our only other children are shims.
        if process.lost_its_shim() {
            let ours = self.children.get(&(std::process::id() as i32));
            let stray = |index: &&usize| {
                let member = self.members.get(**index);
                member.is_some_and(|member| !process.facts.shims.contains(member.pid))
            };
            todo.extend(ours.into_iter().flatten().filter(stray).copied());
        }
        todo.sort_unstable();
        todo.dedup();
        let mut seen: HashSet<usize> = todo.iter().copied().collect();
        let mut found = Vec::new();
        while let Some(member) = todo.pop().and_then(|index| self.members.get(index)) {
            if !member.zombie {
                found.push(*member);
            }
            let below = self
                .children
                .get(&member.pid)
                .into_iter()
                .flatten()
                .copied();
            todo.extend(below.filter(|index| seen.insert(*index)));
        }
        // Parents before children: a traced parent (under proot) may continue after SIGSTOP, and
        // would see its child die and run the next command.
        found.sort_unstable_by_key(|member| (member.start_time, member.pid));
        found
    }
}

/// Reads one `/proc/PID/stat`.
fn member(pid: i32) -> Option<Member> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &stat)
}

fn parse_stat(pid: i32, stat: &[u8]) -> Option<Member> {
    // The name may contain anything, parentheses included; the last one ends it.
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(after + 2..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let terminal = fields.next()?.parse().ok()?;
    let front = fields.next()?.parse().ok()?;
    let mut ticks: u64 = fields.nth(5)?.parse().ok()?;
    for _ in 0..3 {
        ticks = ticks.saturating_add(fields.next()?.parse().ok()?);
    }
    let start_time = fields.nth(4)?.parse().ok()?;
    Some(Member {
        pid,
        parent,
        group,
        session,
        terminal: device(terminal),
        front,
        start_time,
        ticks,
        zombie: matches!(state, "Z" | "X"),
        stopped: state == "T",
    })
}

/// A device number as `/proc/PID/stat` writes it.
fn device(number: i32) -> (u32, u32) {
    let number = number as u32;
    let (major, low, high) = (number >> 8 & 0xfff, number & 0xff, number >> 12 & 0xf_ff00);
    (major, low | high)
}

/// Signals one member, unless its pid has become another process.
pub fn signal_member(target: &Member, signal: i32) -> Result<(), Errno> {
    let pid = Pid::from_raw(target.pid).ok_or(Errno::SRCH)?;
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => match member(target.pid) {
            Some(now) if now.start_time == target.start_time => sys::pidfd_kill(&pidfd, signal),
            _ => Err(Errno::SRCH),
        },
        // This kernel has no pidfds.
        Err(Errno::NOSYS | Errno::INVAL) => sys::kill(target.pid, signal),
        Err(errno) => Err(errno),
    }
}

/// Sends a signal to every living member; returns how many there were.
pub fn signal(process: &Process, signal: i32) -> usize {
    let tree = members(process);
    tree.iter()
        .filter(|member| signal_member(member, signal).is_ok())
        .count()
}

/// The living members now; without a scan if the tree is known to be gone.
fn members(process: &Process) -> Vec<Member> {
    match process.may_live() || process.lost_its_shim() {
        true => Scan::now().tree(process),
        false => Vec::new(),
    }
}

/// Whether anything of the tree lives.
pub fn is_alive(process: &Process) -> bool {
    !members(process).is_empty()
}

/// Kills a whole tree and waits until it is gone. True when it is.
pub async fn kill(process: &Process) -> bool {
    // A scan needs descriptors.
    sys::keep_open_files();
    stop_all(process);
    let mut pause = Duration::from_millis(1);
    let mut killed = HashSet::new();
    for pass in 0..KILL_PASSES {
        let tree = members(process);
        if tree.is_empty() {
            // A stopped shim does not reap the program. If `/proc` is not readable, the process
            // group is all we can kill.
            if process.has_exited()
                || is_zombie(process.facts.pid as i32)
                || sys::kill(-(process.facts.pid as i32), libc::SIGKILL).is_err()
            {
                return true;
            }
        }
        let mut new = 0;
        for member in &tree {
            new += usize::from(killed.insert(member.key()));
            // A member that is gone already is no error.
            let _ = signal_member(member, libc::SIGKILL);
        }
        if new > 0 && pass >= PATIENT_PASSES && sys::is_init() {
            kill_standing_still(process).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
    members(process).is_empty()
}

/// Kills a tree while every process of the machine stands still.
async fn kill_standing_still(process: &Process) {
    let _still = Stillness::begin();
    let mut seen = 0;
    for _ in 0..STILL_SCANS {
        let scan = Scan::now();
        for member in scan.tree(process) {
            let _ = signal_member(&member, libc::SIGKILL);
        }
        if scan.is_still() && scan.count() == seen {
            break;
        }
        seen = scan.count();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Every process of the machine is stopped while this exists. The kernel sends such a signal to all
/// processes at one moment, also to those that are being forked: from then on nobody forks, because
/// each stops before it returns to its program.
struct Stillness {
    /// Those that were stopped before, and stay so.
    at_rest: HashSet<(i32, u64)>,
}

impl Stillness {
    fn begin() -> Stillness {
        let before = Scan::now();
        let at_rest = before.members.iter().filter(|member| member.stopped);
        let at_rest = at_rest.map(Member::key).collect();
        sys::signal_everybody(libc::SIGSTOP);
        Stillness { at_rest }
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        let mut others = Scan::now().members;
        others.retain(|member| !member.zombie && !self.at_rest.contains(&member.key()));
        // Children first: a shell that goes on before its program would take that for stopped.
        others.sort_unstable_by_key(|member| std::cmp::Reverse((member.start_time, member.pid)));
        for member in others {
            let _ = signal_member(&member, libc::SIGCONT);
        }
    }
}

fn is_zombie(pid: i32) -> bool {
    member(pid).is_some_and(|member| member.zombie)
}

/// Kills a shim whose program is unknown, and everything below it.
pub fn kill_below(shim: i32) {
    let scan = Scan::now();
    let mut todo = vec![shim];
    while let Some(pid) = todo.pop() {
        let below = scan.children.get(&pid).into_iter().flatten();
        for member in below.filter_map(|index| scan.members.get(*index)) {
            let _ = signal_member(member, libc::SIGKILL);
            todo.push(member.pid);
        }
    }
    let _ = sys::kill(shim, libc::SIGKILL);
}

/// Kills the shim itself, once it has no children.
pub fn kill_shim(process: &Process) {
    // Only this thread reaps it, so until then its pid cannot be reused.
    if !process.shim_is_gone() {
        let _ = sys::kill(process.facts.shim, libc::SIGKILL);
    }
}

/// Stops the whole tree, repeatedly until no new member appears, so that none can fork away.
fn stop_all(process: &Process) {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_PASSES {
        let before = stopped.len();
        for member in members(process) {
            if stopped.insert(member.key()) {
                // A member that is gone already is no error.
                let _ = signal_member(&member, libc::SIGSTOP);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_hide_the_parent() {
        let stat = b"42 (a) S 1 2) (\n) Z 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0";
        let found = parse_stat(42, stat).unwrap();
        assert_eq!(
            (found.parent, found.session, found.start_time, found.zombie),
            (7, 9, 123456, true)
        );
        assert_eq!(found.ticks, 5 + 6 + 7 + 8);
        assert!(parse_stat(1, b"").is_none());
        assert!(parse_stat(1, b"1 (x)").is_none());
    }

    #[test]
    fn this_process_is_found() {
        let scan = Scan::now();
        assert!(
            scan.members
                .iter()
                .any(|member| member.pid == std::process::id() as i32)
        );
    }
}
