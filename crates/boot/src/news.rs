//! News from the host on a port of its own: the time, fresh randomness, and for a machine with kept
//! disks that they are attached.
//!
//! A machine that was paused or copied cannot know that time has passed or that it is not the only
//! one. The host tells it here, independently of the link. Every message has [`NEWS_BYTES`] bytes
//! and is answered with one line: its number in sixteen hexadecimal digits, then [`DONE`] or a
//! reason. An answer whose host has gone is read by the next host, which recognizes it by the
//! number.
//!
//! ```text
//!   0   8   what: "motuhere" are you there, "motunews" take these, "motudisk" and your disks
//!   8   8   a number, little endian
//!   16  8   the time in nanoseconds since 1970, little endian; 0 leaves the clock alone
//!   24  40  randomness; all zero is none
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
/// The answer to accepted news.
pub const DONE: &str = "done";
/// The longest answer, with its number.
pub const MAX_ANSWER: usize = 512;

const TIME_AT: usize = 16;
const RANDOM_AT: usize = 24;
/// The file with the machine's id (systemd).
const MACHINE_ID: &str = "/etc/machine-id";
/// Stack size of the listening thread.
const STACK: usize = 128 << 10;

/// The subject of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matter {
    /// A ping.
    Here,
    /// Time and randomness.
    News,
    /// Time and randomness, and that the disks of this machine are attached.
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
    pub number: u64,
    pub unix_ns: i64,
    pub randomness: [u8; NEWS_BYTES - RANDOM_AT],
}

impl News {
    /// A ping message.
    pub fn here(number: u64) -> News {
        News {
            matter: Matter::Here,
            number,
            unix_ns: 0,
            randomness: [0; NEWS_BYTES - RANDOM_AT],
        }
    }

    pub fn encode(&self) -> [u8; NEWS_BYTES] {
        let mut bytes = [0; NEWS_BYTES];
        let name = MATTERS.iter().find(|(matter, _)| *matter == self.matter);
        bytes[..8].copy_from_slice(name.map_or(b"motuhere", |(_, name)| *name));
        bytes[8..TIME_AT].copy_from_slice(&self.number.to_le_bytes());
        bytes[TIME_AT..RANDOM_AT].copy_from_slice(&self.unix_ns.to_le_bytes());
        bytes[RANDOM_AT..].copy_from_slice(&self.randomness);
        bytes
    }

    pub fn decode(bytes: &[u8; NEWS_BYTES]) -> Option<News> {
        let (matter, _) = MATTERS.iter().find(|(_, name)| bytes[..8] == **name)?;
        Some(News {
            matter: *matter,
            number: u64::from_le_bytes(bytes[8..TIME_AT].try_into().ok()?),
            unix_ns: i64::from_le_bytes(bytes[TIME_AT..RANDOM_AT].try_into().ok()?),
            randomness: bytes[RANDOM_AT..].try_into().ok()?,
        })
    }

    /// The prefix of the answer.
    pub fn answered_as(&self) -> String {
        format!("{:016x} ", self.number)
    }

    /// The answer to these news.
    fn answer(&self, result: Result<(), impl std::fmt::Display>) -> Vec<u8> {
        let mut answer = self.answered_as();
        match result {
            Ok(()) => answer.push_str(DONE),
            Err(reason) => answer.push_str(&reason.to_string().replace('\n', " ")),
        }
        let mut answer = answer.into_bytes();
        answer.truncate(MAX_ANSWER - 1);
        answer.push(b'\n');
        answer
    }

    /// Sets the clock and adds the randomness, if they are given.
    fn take(&self) -> io::Result<()> {
        if self.unix_ns != 0 {
            sys::set_clock(self.unix_ns)?;
        }
        if self.randomness.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let mut device = std::fs::File::options().write(true).open("/dev/urandom")?;
        device.write_all(&self.randomness)?;
        // Without this ioctl the kernel uses the old state for up to a minute.
        sys::reseed_now(&device)?;
        rename_machine()
    }
}

/// Replaces the machine id, if there is one.
fn rename_machine() -> io::Result<()> {
    let Ok(id) = std::fs::File::options().write(true).open(MACHINE_ID) else {
        return Ok(());
    };
    id.write_all_at(fresh_id()?.as_bytes(), 0)
}

/// The contents of `/etc/machine-id`: a random UUID without dashes, and a newline.
pub fn fresh_id() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(format!("{:032x}\n", u128::from_be_bytes(bytes)))
}

/// The open port.
#[derive(Debug)]
pub(crate) struct Port {
    port: OwnedFd,
    /// An epoll instance: a port without a host reports hang-up until one connects, so only changes
    /// are awaited.
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
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&changes, &port, epoll::EventData::new_u64(0), wanted)?;
            Ok(Port { port, changes })
        };
        opening().map_err(BootError::step("listen for news"))
    }

    /// Answers until the disks are attached, takes that news and leaves its answer to the caller.
    pub(crate) fn wait_for_disks(&self) -> Result<News, BootError> {
        let hearing = || BootError::step("hear news");
        loop {
            let news = self.next().map_err(hearing())?;
            if news.matter == Matter::Disks {
                news.take().map_err(BootError::step("take news"))?;
                return Ok(news);
            }
            self.say(&news.answer(news.take())).map_err(hearing())?;
        }
    }

    /// Answers the news about the disks.
    pub(crate) fn answer(
        &self,
        news: &News,
        result: Result<(), &BootError>,
    ) -> Result<(), BootError> {
        self.say(&news.answer(result))
            .map_err(BootError::step("answer news"))
    }

    /// Handles news in a thread for the rest of the machine's life, after running `first`.
    pub(crate) fn listen(self, first: impl FnOnce() + Send + 'static) -> Result<(), BootError> {
        let listening = move || {
            sys::block_signals();
            first();
            while let Ok(news) = self.next() {
                if self.say(&news.answer(news.take())).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("news".into())
            .stack_size(STACK)
            .spawn(listening)
            .map(drop)
            .map_err(BootError::step("listen for news"))
    }

    /// The next valid message; invalid ones are skipped.
    fn next(&self) -> io::Result<News> {
        loop {
            if let Some(news) = News::decode(&self.message()?) {
                return Ok(news);
            }
        }
    }

    fn message(&self) -> io::Result<[u8; NEWS_BYTES]> {
        let mut bytes = [0; NEWS_BYTES];
        let mut got = 0;
        while got < NEWS_BYTES {
            match rustix::io::read(&self.port, &mut bytes[got..]) {
                // The host has disconnected: discard its incomplete message.
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
        Ok(bytes)
    }

    fn wait(&self) -> io::Result<()> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
        match epoll::wait(&self.changes, &mut events, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes an answer. News may arrive before the kernel reports that the host has connected:
    /// waits for that.
    fn say(&self, line: &[u8]) -> io::Result<()> {
        let mut rest = line;
        while !rest.is_empty() {
            match rustix::io::write(&self.port, rest) {
                Ok(put) => rest = &rest[put..],
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_survive_the_way() {
        for (matter, _) in MATTERS {
            let news = News {
                matter,
                number: 0xfeed,
                unix_ns: 1_700_000_000_123_456_789,
                randomness: [7; 40],
            };
            assert_eq!(News::decode(&news.encode()), Some(news));
        }
        assert_eq!(News::decode(&[0; NEWS_BYTES]), None);
    }

    #[test]
    fn ids_are_random_uuids() {
        let (one, other) = (fresh_id().unwrap(), fresh_id().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 33);
        assert_eq!(&one[12..13], "4");
        assert!("89ab".contains(&one[16..17]), "{one}");
    }

    #[test]
    fn answers_are_one_line() {
        let news = News::here(255);
        assert_eq!(news.answer(Ok::<(), &str>(())), b"00000000000000ff done\n");
        let said = news.answer(Err("a\nb".repeat(1000)));
        assert_eq!(said.len(), MAX_ANSWER);
        assert_eq!(said.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
