//! Reads a process's output into its rings.
//!
//! One pump per channel. It stops reading while a lossless follower has no room,
//! and never waits for anybody else. After the program's exit it learns from the
//! kernel how many of its bytes are still in the pipe: when those are read the
//! channel is *settled*, even if a daemon keeps the pipe open; the pump reads on
//! until the real end.

use crate::running::{Channel, Process};
use crate::sys;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// Largest single read.
const READ: usize = 256 * 1024;
/// A pty's output passes through a kernel work queue, so its buffer may look empty too early: the
/// channel is settled once it has been quiet for this long after the exit.
const TERMINAL_QUIET: Duration = Duration::from_millis(20);

/// Output after which the allocator is asked to release free pages.
const MUCH: u64 = 1024 * 1024;

/// Which channel a pump fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Out,
    Err,
}

/// Reads one channel until its end.
pub async fn pump(process: Arc<Process>, which: Which, fd: Arc<AsyncFd<OwnedFd>>) {
    let channel = match which {
        Which::Out => &process.out,
        Which::Err => &process.err,
    };
    let mut buffer = Vec::new();
    let mut target = None;
    loop {
        if process.has_exited() && !channel.is_settled() {
            try_settle(&process, channel, &fd, &mut target);
        }
        let room = wait_for_room(channel).await;
        match read_some(&process, channel, &fd, &mut buffer, room.min(READ)).await {
            Read::Some => {
                channel.with(|ring| ring.push(&mut buffer));
                process.announce();
            }
            Read::Exited => {}
            Read::Quiet => {
                channel.settle(channel.end());
                process.announce();
            }
            Read::End => break,
        }
    }
    channel.finish();
    if channel.end() > MUCH {
        sys::trim_memory();
    }
    if process.facts.pty {
        process.close_terminal();
    }
    process.announce();
}

/// After the exit: settles the channel once everything that was in the pipe at that time has been
/// read.
fn try_settle(
    process: &Process,
    channel: &Channel,
    fd: &AsyncFd<OwnedFd>,
    target: &mut Option<u64>,
) {
    if process.facts.pty {
        return;
    }
    let at = *target.get_or_insert_with(|| {
        channel.end() + rustix::io::ioctl_fionread(fd.get_ref()).unwrap_or(0)
    });
    if channel.end() >= at {
        channel.settle(at);
        process.announce();
    }
}

async fn wait_for_room(channel: &Channel) -> usize {
    loop {
        let (room, expiry) = channel.with(|ring| (ring.room(Instant::now()), ring.next_expiry()));
        match (room, expiry) {
            (None, _) => return usize::MAX,
            (Some(room), _) if room > 0 => return room,
            (Some(_), None) => channel.room.notified().await,
            (Some(_), Some(expiry)) => {
                let _ = tokio::time::timeout_at(expiry.into(), channel.room.notified()).await;
            }
        }
    }
}

enum Read {
    Some,
    /// The program exited before any output came.
    Exited,
    /// No output came for a while.
    Quiet,
    End,
}

/// Reads once into the empty buffer.
async fn read_some(
    process: &Process,
    channel: &Channel,
    fd: &AsyncFd<OwnedFd>,
    buffer: &mut Vec<u8>,
    most: usize,
) -> Read {
    let exited = process.has_exited();
    let quiet_ends = exited && process.facts.pty && !channel.is_settled();
    loop {
        let mut ready = tokio::select! {
            biased;
            ready = fd.readable() => match ready {
                Ok(ready) => ready,
                Err(_) => return Read::End,
            },
            () = process.exit(), if !exited => return Read::Exited,
            () = tokio::time::sleep(TERMINAL_QUIET), if quiet_ends => return Read::Quiet,
        };
        // Allocate on demand: an idle channel holds no buffer.
        buffer.clear();
        buffer.reserve_exact(READ);
        let got = ready.try_io(|fd| Ok(read_into(fd.get_ref(), buffer, most)?));
        match got {
            Ok(Ok(0)) => return Read::End,
            Ok(Ok(_)) => return Read::Some,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A pty master returns EIO when the last slave is closed.
            Ok(Err(_)) => return Read::End,
            Err(_) => *buffer = Vec::new(),
        }
    }
}

fn read_into(fd: &OwnedFd, buffer: &mut Vec<u8>, most: usize) -> Result<usize, Errno> {
    let spare = rustix::buffer::spare_capacity(buffer);
    if most >= READ {
        return rustix::io::read(fd, spare);
    }
    // The ring has less room than a whole buffer: read exactly that much.
    let mut small = vec![0; most];
    let got = rustix::io::read(fd, &mut small[..])?;
    small.truncate(got);
    *buffer = small;
    Ok(got)
}
