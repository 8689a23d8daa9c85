//! Starts a gateway: sends its setup and descriptors, and waits until it is ready.

use crate::border::Border;
use crate::proxy::Proxy;
use crate::rules::Rules;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use zeroize::Zeroizing;

/// Longest setup message.
const MOST: usize = 16 << 20;
/// Most descriptors in it.
const DESCRIPTORS: usize = 4;
/// The byte that accompanies the leash.
const HOLD: &[u8] = b"h";

/// Where the sandbox's frames come from.
#[derive(Debug)]
pub enum Frames {
    /// A network namespace, in which the gateway makes the sandbox's device, with its owning user
    /// namespace if that is not ours.
    Namespace { net: OwnedFd, user: Option<OwnedFd> },
    /// A connected socket of AF_UNIX, one frame per message.
    Socket(OwnedFd),
}

/// The setup of a gateway.
#[derive(Debug)]
pub struct Begin {
    pub frames: Frames,
    pub rules: Rules,
    /// Secrets that are bound to hosts.
    pub border: Option<Border>,
    /// A file opened for appending.
    pub decisions: OwnedFd,
    /// A listening socket of AF_UNIX.
    pub control: OwnedFd,
    /// The user to become, if it starts as root.
    pub user: Option<(u32, u32)>,
    /// Name servers; empty: those of `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
    /// The proxy; `None`: connections are made directly.
    pub proxy: Option<Proxy>,
}

/// A running gateway whose device is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub pid: i32,
    /// From `/proc/PID/stat`: together with the pid it identifies one process.
    pub start_time: u64,
}

impl Started {
    /// A pidfd of the gateway, if that very process still runs.
    pub fn open(&self) -> Option<OwnedFd> {
        // Open the pidfd first: from then on the pid cannot be reused unnoticed.
        let pid = Pid::from_raw(self.pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let found = super::host::start_time(&format!("/proc/{}/stat", self.pid));
        (found.ok()? == self.start_time).then_some(pidfd)
    }
}

/// The serialized part of the setup; the descriptors are sent with it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub(super) frames: Kind,
    pub(super) rules: Rules,
    pub(super) border: Option<Border>,
    pub(super) user: Option<(u32, u32)>,
    pub(super) resolvers: Vec<SocketAddr>,
    pub(super) proxy: Option<Proxy>,
}

/// The kind of the first descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    Namespace,
    NamespaceOfUser,
    Socket,
}

/// The gateway's only answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ready {
    Ready { pid: i32, start_time: u64 },
    Failed(String),
}

/// A gateway whose device is up and that passes nothing yet. It ends when this value, or the
/// process that holds it, is gone.
#[derive(Debug)]
pub struct Pending {
    stream: UnixStream,
    pub started: Started,
}

impl Pending {
    /// Lets it pass frames for as long as the process behind this pidfd lives.
    pub fn hold(self, leash: &impl AsFd) -> io::Result<Started> {
        send(&self.stream, HOLD, &[leash.as_fd()])?;
        Ok(self.started)
    }
}

/// Starts `program args…`, which must call [`super::run`], and waits until its device is up.
///
/// The gateway is daemonized: it outlives the caller and ends with its leash.
pub fn spawn(
    program: &Path,
    args: &[&str],
    start: Begin,
    leash: &impl AsFd,
) -> io::Result<Started> {
    begin(program, args, start)?.hold(leash)
}

/// Starts a gateway before the process that it will be leashed to exists.
pub fn begin(program: &Path, args: &[&str], begin: Begin) -> io::Result<Pending> {
    Standby::start(program, args)?.begin(begin)
}

/// A process that waits for its setup. It ends when this value, or the process that holds it, is
/// gone.
#[derive(Debug)]
pub struct Standby {
    stream: Option<UnixStream>,
    child: Child,
}

impl Standby {
    /// Starts `program args…`, which must call [`super::run`].
    pub fn start(program: &Path, args: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let child = Command::new(program)
            .args(args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            stream: Some(UnixStream::from(ours)),
            child,
        })
    }

    /// Whether it still waits and has not been killed.
    pub fn waits(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends the setup, and waits until the device is up.
    pub fn begin(mut self, begin: Begin) -> io::Result<Pending> {
        let mut stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        let told = tell(&mut stream, begin).and_then(|()| {
            let mut answer = String::new();
            // The answer is exactly one line.
            BufReader::new(&stream).read_line(&mut answer)?;
            Ok(answer)
        });
        // The child exits as soon as the gateway is daemonized.
        let left = self.child.wait();
        let answer = told?;
        left?;
        if answer.is_empty() {
            return Err(io::Error::other("the gateway ended before it was ready"));
        }
        match serde_json::from_str(&answer)? {
            Ready::Ready { pid, start_time } => Ok(Pending {
                stream,
                started: Started { pid, start_time },
            }),
            Ready::Failed(reason) => Err(io::Error::other(reason)),
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // Closing the stream ends the process; wait for it, to leave no zombie.
        drop(self.stream.take());
        let _ = self.child.wait();
    }
}

/// Sends the setup: its length together with the descriptors, then the setup itself.
fn tell(stream: &mut UnixStream, start: Begin) -> io::Result<()> {
    let mut descriptors = Vec::with_capacity(DESCRIPTORS);
    let kind = match start.frames {
        Frames::Socket(socket) => {
            descriptors.push(socket);
            Kind::Socket
        }
        Frames::Namespace { net, user: None } => {
            descriptors.push(net);
            Kind::Namespace
        }
        Frames::Namespace {
            net,
            user: Some(user),
        } => {
            descriptors.extend([net, user]);
            Kind::NamespaceOfUser
        }
    };
    descriptors.extend([start.decisions, start.control]);
    // Zeroized: the setup may contain secrets.
    let setup = serde_json::to_vec(&Setup {
        frames: kind,
        rules: start.rules,
        border: start.border,
        user: start.user,
        resolvers: start.resolvers,
        proxy: start.proxy,
    })
    .map(Zeroizing::new)?;
    let length = (setup.len() as u32).to_le_bytes();
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(OwnedFd::as_fd).collect();
    send(stream, &length, &borrowed)?;
    stream.write_all(&setup)
}

/// Sends bytes and descriptors in one message.
pub(super) fn send(
    stream: &impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::net::sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Receives bytes and descriptors of one message.
pub(super) fn receive(stream: &impl AsFd, bytes: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let wanted = bytes.len();
    let message = rustix::net::recvmsg(
        stream,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if message.bytes != wanted {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(given) = message {
            descriptors.extend(given);
        }
    }
    Ok(descriptors)
}

/// Waits for the leash; `None` if the starter is gone.
pub(super) fn held(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0; HOLD.len()];
    match receive(stream, &mut byte) {
        Ok(descriptors) => Ok(descriptors.into_iter().next()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what [`begin`] sends.
pub(super) fn told(stream: &mut UnixStream) -> io::Result<(Setup, Vec<OwnedFd>)> {
    let mut length = [0; 4];
    let descriptors = receive(stream, &mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut setup = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut setup)?;
    Ok((serde_json::from_slice(&setup)?, descriptors))
}
