//! News from the host, on a port of their own: what time it is, fresh
//! randomness, and for a machine with kept disks that these are there now.
//!
//! A machine that was paused or copied cannot know that time has passed or
//! that it is not the only one. The host tells it here, beside whatever is being
//! said on the link. Every message has [`NEWS_BYTES`] bytes and is answered with
//! one line, [`DONE`] or a reason.
//!
//! ```text
//!   0   8   what: "motuhere" are you there, "motunews" take these, "motudisk" and your disks
//!   8   8   the time in nanoseconds since 1970, little endian; 0 leaves the clock alone
//!   16  48  randomness; all zero is none
//! ```

use crate::{BootError, NEWS_PORT, devices, sys};
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

pub const NEWS_BYTES: usize = 64;
/// The answer to news that were taken.
pub const DONE: &[u8] = b"done\n";
/// The longest answer.
pub const MAX_ANSWER: usize = 512;

const RANDOM_AT: usize = 16;
/// Where programs look for the id of the machine they run on.
const MACHINE_ID: &str = "/etc/machine-id";
/// Room for a thread that calls nothing deep.
const STACK: usize = 128 << 10;

/// What the host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matter {
    /// Nothing: it wants to know whether somebody listens.
    Here,
    /// Time and randomness.
    News,
    /// The same, and the disks of this machine are attached.
    Disks,
}

const MATTERS: [(Matter, &[u8; 8]); 3] = [
    (Matter::Here, b"motuhere"),
    (Matter::News, b"motunews"),
    (Matter::Disks, b"motudisk"),
];

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub matter: Matter,
    pub unix_ns: i64,
    pub randomness: [u8; NEWS_BYTES - RANDOM_AT],
}

impl News {
    pub fn here() -> News {
        News {
            matter: Matter::Here,
            unix_ns: 0,
            randomness: [0; NEWS_BYTES - RANDOM_AT],
        }
    }

    pub fn encode(&self) -> [u8; NEWS_BYTES] {
        let mut bytes = [0; NEWS_BYTES];
        let name = MATTERS.iter().find(|(matter, _)| *matter == self.matter);
        bytes[..8].copy_from_slice(name.map_or(b"motuhere", |(_, name)| *name));
        bytes[8..RANDOM_AT].copy_from_slice(&self.unix_ns.to_le_bytes());
        bytes[RANDOM_AT..].copy_from_slice(&self.randomness);
        bytes
    }

    pub fn decode(bytes: &[u8; NEWS_BYTES]) -> Option<News> {
        let (matter, _) = MATTERS.iter().find(|(_, name)| bytes[..8] == **name)?;
        Some(News {
            matter: *matter,
            unix_ns: i64::from_le_bytes(bytes[8..RANDOM_AT].try_into().ok()?),
            randomness: bytes[RANDOM_AT..].try_into().ok()?,
        })
    }

    /// Sets the clock and mixes the randomness in, as far as there is any.
    fn take(&self) -> io::Result<()> {
        if self.unix_ns != 0 {
            sys::set_clock(self.unix_ns)?;
        }
        if self.randomness.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let mut device = std::fs::File::options().write(true).open("/dev/urandom")?;
        device.write_all(&self.randomness)?;
        // Without this the kernel goes on from the old state for up to a minute.
        sys::reseed_now(&device)?;
        rename_machine()
    }
}

/// A new id in place of the old one, where there is one.
fn rename_machine() -> io::Result<()> {
    let Ok(id) = std::fs::File::options().write(true).open(MACHINE_ID) else {
        return Ok(());
    };
    id.write_all_at(fresh_id()?.as_bytes(), 0)
}

/// An id as in `/etc/machine-id`.
pub(crate) fn fresh_id() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(id.trim().replace('-', ""))
}

/// The open port.
#[derive(Debug)]
pub(crate) struct Port {
    port: OwnedFd,
    /// A port without a host is hung up, and not for ever: only changes are waited for.
    changes: OwnedFd,
}

impl Port {
    pub(crate) fn open() -> Result<Port, BootError> {
        let opening = || -> io::Result<Port> {
            let path = devices::find_port(Path::new("/dev"), NEWS_PORT)
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let port = rustix::fs::open(path, flags, Mode::empty())?;
            let changes = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&changes, &port, epoll::EventData::new_u64(0), wanted)?;
            Ok(Port { port, changes })
        };
        opening().map_err(BootError::step("listen for news"))
    }

    /// Answers until the disks are there, and takes what comes with that news.
    pub(crate) fn wait_for_disks(&self) -> Result<(), BootError> {
        loop {
            let news = self.next().map_err(BootError::step("hear news"))?;
            match news {
                Some(news) if news.matter == Matter::Disks => {
                    return news.take().map_err(BootError::step("take news"));
                }
                news => self.answer(&heard(news)),
            }
        }
    }

    /// Says how the disks were.
    pub(crate) fn answer_disks(&self, result: Result<(), &BootError>) {
        match result {
            Ok(()) => self.answer(DONE),
            Err(error) => self.answer(&line(error)),
        }
    }

    /// Takes news for the rest of the machine's life, beside the guest.
    pub(crate) fn listen(self) -> Result<(), BootError> {
        let listening = move || {
            sys::block_signals();
            while let Ok(news) = self.next() {
                self.answer(&heard(news));
            }
        };
        std::thread::Builder::new()
            .name("news".into())
            .stack_size(STACK)
            .spawn(listening)
            .map(drop)
            .map_err(BootError::step("listen for news"))
    }

    /// The next message; `None` if it is none we know.
    fn next(&self) -> io::Result<Option<News>> {
        let mut bytes = [0; NEWS_BYTES];
        let mut got = 0;
        while got < NEWS_BYTES {
            match rustix::io::read(&self.port, &mut bytes[got..]) {
                // Nobody is there; what they began to say was all of it.
                Ok(0) => {
                    got = 0;
                    self.wait()?;
                }
                Ok(more) => got += more,
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(News::decode(&bytes))
    }

    fn wait(&self) -> io::Result<()> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
        match epoll::wait(&self.changes, &mut events, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn answer(&self, line: &[u8]) {
        // A host that went away meanwhile needs no answer.
        let _ = rustix::io::write(&self.port, line);
    }
}

fn heard(news: Option<News>) -> Vec<u8> {
    let Some(news) = news else {
        return line(&"these news are unknown here");
    };
    match news.take() {
        Ok(()) => DONE.to_vec(),
        Err(error) => line(&error),
    }
}

/// A reason as an answer.
fn line(reason: &dyn std::fmt::Display) -> Vec<u8> {
    let mut line = reason.to_string().replace('\n', " ").into_bytes();
    line.truncate(MAX_ANSWER - 1);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_survive_the_way() {
        for (matter, _) in MATTERS {
            let news = News {
                matter,
                unix_ns: 1_700_000_000_123_456_789,
                randomness: [7; 48],
            };
            assert_eq!(News::decode(&news.encode()), Some(news));
        }
        assert_eq!(News::decode(&[0; NEWS_BYTES]), None);
    }

    #[test]
    fn answers_are_one_line() {
        let said = line(&"a\nb".repeat(1000));
        assert_eq!(said.len(), MAX_ANSWER);
        assert_eq!(said.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
