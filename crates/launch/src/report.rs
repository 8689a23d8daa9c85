//! Reports of the launcher to the daemon: one packet each.
//!
//! The sender never waits for an answer and ignores a daemon that has gone: a machine does not
//! depend on its daemon.

use crate::sys;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest message.
const PACKET: usize = 4096;
/// The most descriptors of one message.
const PACKET_FDS: usize = 5;

/// A step that failed, and the kernel's reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("could not {step}: {}", io::Error::from_raw_os_error(*errno))]
pub struct Failure {
    pub step: String,
    pub errno: i32,
}

impl Failure {
    pub fn new(step: impl ToString, error: impl Into<io::Error>) -> Failure {
        Failure {
            step: step.to_string(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// One message to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Pid 1 exists. Its pidfd is attached, followed by its network and user namespaces: later only
    /// root could open those.
    Started {
        pid: i32,
    },
    /// Pid 1 is about to serve the link.
    Ready,
    Failed(Failure),
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct Reporter {
    socket: OwnedFd,
}

impl Reporter {
    pub(crate) fn new(socket: OwnedFd) -> Reporter {
        Reporter { socket }
    }

    pub(crate) fn started(&self, pid: i32, fds: &[BorrowedFd<'_>]) {
        self.send(&Report::Started { pid }, fds);
    }

    pub(crate) fn ready(&self) {
        self.send(&Report::Ready, &[]);
    }

    pub(crate) fn failed(&self, failure: &Failure) {
        self.send(&Report::Failed(failure.clone()), &[]);
    }

    fn send(&self, report: &Report, fds: &[BorrowedFd<'_>]) {
        if let Ok(bytes) = postcard::to_allocvec(report) {
            // A restarted daemon finds the machine by its own record.
            let _ = send_packet(self.socket.as_fd(), &bytes, fds);
        }
    }
}

/// Receives the next report with its descriptors; `None` when every sender is gone.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
    let mut buffer = [0u8; PACKET];
    let (length, fds) = receive_packet(socket, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let report = postcard::from_bytes(&buffer[..length])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    Ok(Some((report, fds)))
}

/// Sends one packet, with a few descriptors if there are any.
pub fn send_packet(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sys::again(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(())
}

/// Receives one packet and its descriptors.
pub fn receive_packet(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = sys::again(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let mut found = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            found.extend(fds);
        }
    }
    Ok((received.bytes, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn messages_arrive_whole_and_with_their_descriptor() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let reporter = Reporter::new(theirs);
        reporter.started(42, &[ours.as_fd(), ours.as_fd()]);
        reporter.failed(&Failure {
            step: "mount /proc".into(),
            errno: libc::EPERM,
        });
        drop(reporter);

        let (report, fds) = receive(ours.as_fd()).unwrap().unwrap();
        assert_eq!(report, Report::Started { pid: 42 });
        assert_eq!(fds.len(), 2);
        let (report, fds) = receive(ours.as_fd()).unwrap().unwrap();
        let Report::Failed(failure) = report else {
            panic!("{report:?}");
        };
        assert!(fds.is_empty());
        assert_eq!(
            failure.to_string(),
            "could not mount /proc: Operation not permitted (os error 1)"
        );
        assert!(receive(ours.as_fd()).unwrap().is_none());
    }
}
