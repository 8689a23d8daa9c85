//! System calls of a container that its filter leaves to the guest.
//!
//! - `sched_getaffinity`: the kernel names every processor of the host. A program is told of as many as the machine has,
//!   unless it has chosen fewer itself; it runs on all of them all the same.
//! - `io_setup`: the host has one pool of asynchronous file operations for everybody. Programs of machines get of it while
//!   half of it is left.
//!
//! A thread of its own answers. It makes none of these calls itself, and so is not one of the standard library's, and
//! allocates nothing: both ask for the number of processors.

use crate::sys::notified::{self, Answer, Call};
use motu_launch::AskedCalls;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

/// The processors that a set has room for, which is the kernel's own largest number.
const MAX: usize = 8192;
/// The first lines of `/proc/PID/status`, up to the processors; a list of groups comes before them.
const STATUS_BYTES: usize = 16 * 1024;
/// Two buffers and some calls.
const STACK_BYTES: usize = 128 * 1024;

/// Starts to answer. Nothing else may run in the machine before.
pub fn answer(asked: AskedCalls) -> io::Result<()> {
    let serve = move || {
        let _ = rustix::thread::set_name(c"motu-calls");
        while let Ok(call) = notified::receive(asked.listener.as_fd()) {
            if let Some(call) = call {
                notified::answer(asked.listener.as_fd(), call.id, decide(&asked, &call));
            }
        }
    };
    Ok(notified::run_apart(STACK_BYTES, Box::new(serve))?)
}

fn decide(asked: &AskedCalls, call: &Call) -> Answer {
    match call.number {
        libc::SYS_sched_getaffinity => affinity(asked, call).map_or(Answer::Go, Answer::Value),
        libc::SYS_io_setup => room(call.arguments[0] as u32),
        _ => Answer::Errno(libc::ENOSYS),
    }
}

/// Writes the set of processors to the caller; `None` where the kernel's own answer is right: nothing to leave out, or
/// arguments that it refuses.
fn affinity(asked: &AskedCalls, call: &Call) -> Option<i64> {
    let [about, length, address, ..] = call.arguments;
    let about = match about as i32 {
        0 => call.pid,
        other => u32::try_from(other).ok()?,
    };
    let set = Set::of(&asked.processors).beside(&Set::allowed(about)?)?;
    let length = usize::try_from(length as u32).ok()?;
    let bytes = length.min(asked.set_bytes).min(MAX / 8);
    if length % size_of::<u64>() != 0 || set.last()? / 8 >= bytes {
        return None;
    }
    let mut path = Path::new();
    let memory = File::options().write(true).open(path.of(call.pid, "mem")?);
    let memory = memory.ok()?;
    // The number may be another's by now; what was opened is the caller's if the call still waits.
    if !notified::waits(asked.listener.as_fd(), call.id) {
        return None;
    }
    let written = memory.write_at(set.bytes().get(..bytes)?, address).ok()?;
    (written == bytes).then_some(bytes as i64)
}

/// Whether there is room for so many operations in the host's pool.
fn room(operations: u32) -> Answer {
    let number = |file: &str| {
        let mut text = [0; 32];
        let length = File::open(file).ok()?.read(&mut text).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let taken = number("/proc/sys/fs/aio-nr");
    let pool = number("/proc/sys/fs/aio-max-nr");
    match taken.zip(pool) {
        Some((taken, pool)) if fits(u64::from(operations), taken, pool) => Answer::Go,
        _ => Answer::Errno(libc::EAGAIN),
    }
}

fn fits(operations: u64, taken: u64, pool: u64) -> bool {
    taken.saturating_add(operations) <= pool / 2
}

/// A path below `/proc`, without the allocator.
struct Path([u8; 40]);

impl Path {
    fn new() -> Path {
        Path([0; 40])
    }

    fn of(&mut self, pid: u32, file: &str) -> Option<&str> {
        let mut rest = &mut self.0[..];
        write!(rest, "/proc/{pid}/{file}").ok()?;
        let length = self.0.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(self.0.get(..length)?).ok()
    }
}

/// A set of processors.
#[derive(Clone)]
struct Set([u64; MAX / 64]);

impl Set {
    fn empty() -> Set {
        Set([0; MAX / 64])
    }

    fn of(numbers: &[u16]) -> Set {
        let mut set = Set::empty();
        numbers.iter().for_each(|number| set.add((*number).into()));
        set
    }

    /// Those that a thread may run on.
    fn allowed(pid: u32) -> Option<Set> {
        const NAME: &[u8] = b"Cpus_allowed_list:";
        let mut text = [0; STATUS_BYTES];
        let mut path = Path::new();
        let mut file = File::open(path.of(pid, "status")?).ok()?;
        let mut length = 0;
        // The kernel may give it in pieces.
        loop {
            match file.read(text.get_mut(length..)?).ok()? {
                0 => break,
                more => length += more,
            }
        }
        // The program's name, which comes first, may be any bytes.
        let mut lines = text.get(..length)?.split(|byte| *byte == b'\n');
        let list = lines.find_map(|line| line.strip_prefix(NAME))?;
        Set::parse(std::str::from_utf8(list).ok()?.trim())
    }

    /// The kernel's form: `0-2,5`.
    fn parse(list: &str) -> Option<Set> {
        let mut set = Set::empty();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if last >= MAX {
                return None;
            }
            (first..=last).for_each(|number| set.add(number));
        }
        Some(set)
    }

    /// Of what a thread may run on, as many as are in this set: these, or the first ones if it has chosen others.
    /// `None` if it may not run on more.
    fn beside(&self, allowed: &Set) -> Option<Set> {
        let most = self.count();
        if most == 0 || allowed.count() <= most {
            return None;
        }
        let mut both = Set::empty();
        for (to, (own, other)) in both.0.iter_mut().zip(self.0.iter().zip(&allowed.0)) {
            *to = own & other;
        }
        for number in (0..MAX).filter(|number| allowed.has(*number)) {
            if both.count() == most {
                break;
            }
            both.add(number);
        }
        Some(both)
    }

    fn add(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn has(&self, number: usize) -> bool {
        let word = self.0.get(number / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn last(&self) -> Option<usize> {
        (0..MAX).rev().find(|number| self.has(*number))
    }

    fn bytes(&self) -> [u8; MAX / 8] {
        let mut bytes = [0; MAX / 8];
        for (to, word) in bytes.chunks_exact_mut(8).zip(&self.0) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(set: &Set) -> Vec<usize> {
        (0..MAX).filter(|number| set.has(*number)).collect()
    }

    #[test]
    fn a_program_is_shown_no_more_than_the_machine_has() {
        let shown = Set::of(&[3, 64]);
        let of = |list: &str| {
            let set = shown.beside(&Set::parse(list).unwrap());
            set.map(|set| numbers(&set))
        };
        assert_eq!(of("0-127"), Some(vec![3, 64]));
        // It has chosen others, or fewer.
        assert_eq!(of("0-2"), Some(vec![0, 1]));
        assert_eq!(of("3-5"), Some(vec![3, 4]));
        assert_eq!(of("0,9"), None);
        assert_eq!(of("7"), None);
        assert!(Set::of(&[]).beside(&Set::parse("0-3").unwrap()).is_none());
        assert!(Set::parse("0-8192").is_none());
        assert!(Set::parse("x").is_none());
    }

    #[test]
    fn sets_have_the_form_of_the_kernel() {
        let set = Set::of(&[0, 9, 64]);
        assert_eq!(&set.bytes()[..9], &[1, 2, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(set.last(), Some(64));
        let own = Set::allowed(std::process::id()).unwrap();
        assert!(own.count() >= 1);
    }

    #[test]
    fn half_of_the_pool_is_the_hosts() {
        assert!(fits(1024, 0, 65_536));
        assert!(fits(32_768, 0, 65_536));
        assert!(!fits(1, 32_768, 65_536));
        assert!(!fits(u64::from(u32::MAX), 0, 65_536));
    }
}
