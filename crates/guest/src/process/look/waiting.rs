//! Finds out which processes wait for a terminal, by the system calls they are blocked in.

use std::os::unix::fs::MetadataExt as _;

/// Descriptors examined per poll set.
const MAX_WATCHED: u64 = 1024;
/// The size of a `pollfd`.
const POLLFD_BYTES: u64 = 8;
/// Threads examined per process.
const MAX_THREADS: usize = 16;
/// Nesting depth of epoll sets.
const MAX_NESTED: usize = 2;
/// `/dev/tty`, which stands for the controlling terminal of the process that opened it.
const DEV_TTY: (u32, u32) = (5, 0);

/// Whether a process waits for the terminal, by the system call it is blocked in. If its first
/// thread waits for something else (such as another thread), the other threads are examined; if the
/// first thread is computing, the process does not wait.
pub fn reads(pid: i32, terminal: (u32, u32)) -> Option<bool> {
    let watcher = Watcher { pid, terminal };
    let first = watcher.thread(&format!("/proc/{pid}/syscall"))?;
    if first != Waits::Elsewhere {
        return first.on_terminal();
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut others = threads
        .flatten()
        .take(MAX_THREADS)
        .filter_map(|thread| watcher.thread(&thread.path().join("syscall").to_string_lossy()));
    Some(others.any(|waits| waits == Waits::Terminal))
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Terminal,
    /// The terminal and other descriptors, any of which may become ready first.
    Also,
    Elsewhere,
    /// The thread is running.
    Not,
}

impl Waits {
    fn on_terminal(self) -> Option<bool> {
        match self {
            Waits::Terminal => Some(true),
            Waits::Also => None,
            Waits::Elsewhere | Waits::Not => Some(false),
        }
    }
}

struct Watcher {
    pid: i32,
    terminal: (u32, u32),
}

impl Watcher {
    /// `None` if the kernel does not tell.
    fn thread(&self, path: &str) -> Option<Waits> {
        let call = std::fs::read_to_string(path).ok()?;
        Some(match waiting_in(&call)? {
            Call::Read(fd) if self.kind(fd, &[]) == Kind::Terminal => Waits::Terminal,
            Call::Watch(set) => self.among(&watched(self.pid, set)?, 0),
            Call::Epoll(fd) => self.among(&self.interests(fd)?, 0),
            Call::Running => Waits::Not,
            Call::Read(_) | Call::Other => Waits::Elsewhere,
        })
    }

    /// What a thread that watches these descriptors waits for. Timers, signals and self-pipes do
    /// not count.
    fn among(&self, fds: &[u64], depth: usize) -> Waits {
        let own = self.links();
        let (mut terminal, mut others) = (false, false);
        for fd in fds {
            match self.kind(*fd, &own) {
                Kind::Terminal => terminal = true,
                Kind::Own => {}
                Kind::Set if depth < MAX_NESTED => {
                    let inner = self.interests(*fd).unwrap_or_default();
                    match self.among(&inner, depth + 1) {
                        Waits::Terminal => terminal = true,
                        Waits::Also => (terminal, others) = (true, true),
                        Waits::Elsewhere | Waits::Not => others |= !inner.is_empty(),
                    }
                }
                Kind::Set | Kind::Other => others = true,
            }
        }
        match (terminal, others) {
            (true, false) => Waits::Terminal,
            (true, true) => Waits::Also,
            (false, _) => Waits::Elsewhere,
        }
    }

    /// The descriptors that an epoll instance watches for input.
    fn interests(&self, fd: u64) -> Option<Vec<u64>> {
        let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.pid)).ok()?;
        Some(interests(&info))
    }

    fn links(&self) -> Vec<(u64, String)> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid));
        let entries = entries.into_iter().flatten().flatten();
        let link = |entry: std::fs::DirEntry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            Some((fd, target.to_str()?.to_owned()))
        };
        entries
            .take(MAX_WATCHED as usize)
            .filter_map(link)
            .collect()
    }

    fn kind(&self, fd: u64, own: &[(u64, String)]) -> Kind {
        let path = format!("/proc/{}/fd/{fd}", self.pid);
        let device = std::fs::metadata(path).map(|found| super::device(found.rdev()));
        if device.is_ok_and(|device| device == self.terminal || device == DEV_TTY) {
            return Kind::Terminal;
        }
        kind(fd, own)
    }
}

/// The role of a descriptor for a process that waits for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Terminal,
    /// A wake-up of its own: a timer, a signalfd, a pipe to itself.
    Own,
    /// An epoll instance.
    Set,
    Other,
}

fn kind(fd: u64, own: &[(u64, String)]) -> Kind {
    let Some((_, link)) = own.iter().find(|(known, _)| *known == fd) else {
        return Kind::Other;
    };
    let elsewhere = |wanted: &str| own.iter().any(|(at, link)| *at != fd && link == wanted);
    match link.as_str() {
        "anon_inode:[eventfd]"
        | "anon_inode:[timerfd]"
        | "anon_inode:[signalfd]"
        | "anon_inode:[io_uring]" => Kind::Own,
        "anon_inode:[eventpoll]" => Kind::Set,
        pipe if pipe.starts_with("pipe:") && elsewhere(pipe) => Kind::Own,
        // The two ends of a socket pair have adjacent inode numbers.
        socket => {
            let number = socket
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            let number: Option<u64> = number.and_then(|number| number.parse().ok());
            let beside = |number: u64| {
                elsewhere(&format!("socket:[{}]", number + 1))
                    || elsewhere(&format!("socket:[{}]", number.saturating_sub(1)))
            };
            if number.is_some_and(beside) {
                Kind::Own
            } else {
                Kind::Other
            }
        }
    }
}

/// The descriptors of `fdinfo` of an epoll that are watched for input.
fn interests(info: &str) -> Vec<u64> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let fd = words.next()?.parse().ok()?;
        words.next().filter(|word| *word == "events:")?;
        let events = u32::from_str_radix(words.next()?, 16).ok()?;
        (events & (libc::EPOLLIN | libc::EPOLLRDNORM) as u32 != 0).then_some(fd)
    };
    info.lines()
        .filter_map(line)
        .take(MAX_WATCHED as usize)
        .collect()
}

/// The system call that a process is blocked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Read(u64),
    /// `poll`, `select` and their relatives.
    Watch(Set),
    /// A set that the kernel keeps (epoll).
    Epoll(u64),
    Running,
    Other,
}

/// A set of descriptors in the memory of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// An array of this many `pollfd`.
    Array { at: u64, count: u64 },
    /// An `fd_set` for descriptors below this number.
    Bits { at: u64, below: u64 },
}

/// Parses `/proc/PID/syscall`; `None` if it has no information.
fn waiting_in(line: &str) -> Option<Call> {
    let mut words = line.split_whitespace();
    let number: i64 = match words.next()? {
        "running" => return Some(Call::Running),
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
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => first.map(Call::Epoll),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => first.map(Call::Epoll),
        _ => Some(Call::Other),
    }
}

/// The descriptors of a set that are watched for input. Permission to read `/proc/PID/syscall`
/// implies permission to read the process's memory.
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

/// Decodes an `fd_set`, whose words are little-endian on every supported machine.
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
        assert_eq!(waiting_in(&epoll), Some(Call::Epoll(5)));
        assert_eq!(waiting_in("running"), Some(Call::Running));
        assert_eq!(waiting_in("-1 0x0 0x0"), Some(Call::Other));
        for nothing in ["", "x", "99999999999999999999999"] {
            assert_eq!(waiting_in(nothing), None, "{nothing:?}");
        }
        // A read without a known descriptor gives no answer.
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
    fn ways_to_wake_oneself_up_are_known() {
        let links = [
            (3, "anon_inode:[eventpoll]"),
            (4, "pipe:[70]"),
            (5, "pipe:[70]"),
            (6, "pipe:[80]"),
            (7, "anon_inode:[eventfd]"),
            (8, "socket:[90]"),
            (9, "socket:[91]"),
            (10, "socket:[99]"),
        ];
        let links = links.map(|(fd, link)| (fd, link.to_string()));
        let kinds = (3..=11).map(|fd| kind(fd, &links)).collect::<Vec<_>>();
        use Kind::{Other, Own, Set};
        assert_eq!(kinds, [Set, Own, Own, Other, Own, Own, Own, Other, Other]);
    }

    #[test]
    fn the_interests_of_an_epoll_are_read() {
        let info = "pos:\t0\nflags:\t02000002\n\
            tfd:       12 events:       19 data: ffff  pos:0 ino:5 sdev:e\n\
            tfd:        0 events:        4 data: 0  pos:0 ino:5 sdev:e\n";
        assert_eq!(interests(info), [12]);
    }
}
