//! The host's side of a connection while it is being made: the kernel connects, and a proxy is told
//! the destination.

use crate::judge::Reason;
use crate::proxy::{Dialogue, Heard, MOST};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::SocketAddr;

#[derive(Debug)]
pub(super) struct Dial {
    host: OwnedFd,
    /// The sandbox's SYN packet, handled when the outcome is known.
    syn: Vec<u8>,
    /// Whether the TCP connection is established.
    connected: bool,
    proxy: Option<Dialogue>,
}

impl Dial {
    /// Starts connecting: to the destination, or to the proxy.
    pub(super) fn begin(
        to: SocketAddr,
        proxy: Option<Dialogue>,
        syn: &[u8],
    ) -> Result<Self, Reason> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let connect = || {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
            match rustix::net::connect(&socket, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        };
        let host = connect().map_err(|error| failure(error, proxy.is_some()))?;
        Ok(Self {
            host,
            syn: syn.to_vec(),
            connected: false,
            proxy,
        })
    }

    pub(super) fn host(&self) -> &OwnedFd {
        &self.host
    }

    pub(super) fn syn(&self) -> &[u8] {
        &self.syn
    }

    /// The socket and the SYN packet that waited for it.
    pub(super) fn into_parts(self) -> (OwnedFd, Vec<u8>) {
        (self.host, self.syn)
    }

    /// The outcome; `None` while connecting. Called when the socket is ready.
    pub(super) fn outcome(&mut self, writable: bool) -> Option<Result<(), Reason>> {
        if !self.connected {
            if !writable {
                return None;
            }
            let proxied = self.proxy.is_some();
            match rustix::net::sockopt::socket_error(&self.host).unwrap_or_else(Err) {
                Ok(()) => self.connected = true,
                Err(error) => return Some(Err(failure(error, proxied))),
            }
            let first = self.proxy.as_ref().map(Dialogue::first);
            if let Some(Err(reason)) = first.map(|first| self.say(&first)) {
                return Some(Err(reason));
            }
        }
        self.listen().transpose()
    }

    /// Sends to the proxy. A few hundred bytes always fit into an unused socket's buffer.
    fn say(&self, bytes: &[u8]) -> Result<(), Reason> {
        match rustix::net::send(&self.host, bytes, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(Reason::ProxyUnreachable),
        }
    }

    /// Reads the proxy's answer. Only the answer itself is taken from the socket: what follows is
    /// for the sandbox.
    fn listen(&mut self) -> Result<Option<()>, Reason> {
        if self.proxy.is_none() {
            return Ok(Some(()));
        }
        let mut buffer = [0; MOST];
        loop {
            let Some(dialogue) = &mut self.proxy else {
                return Ok(Some(()));
            };
            let count = match rustix::net::recv(&self.host, &mut buffer[..], RecvFlags::PEEK) {
                Ok((0, _)) => return Err(Reason::ProxyRefused),
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(_) => return Err(Reason::ProxyUnreachable),
            };
            match dialogue.read(&buffer[..count])? {
                Heard::Part => return Ok(None),
                Heard::Say(taken, bytes) => {
                    self.take(taken)?;
                    self.say(&bytes)?;
                }
                Heard::Done(taken) => {
                    self.take(taken)?;
                    self.proxy = None;
                }
            }
        }
    }

    fn take(&self, count: usize) -> Result<(), Reason> {
        let mut buffer = vec![0; count];
        match rustix::net::recv(&self.host, &mut buffer[..], RecvFlags::empty()) {
            Ok((taken, _)) if taken == count => Ok(()),
            _ => Err(Reason::ProxyUnreachable),
        }
    }
}

fn failure(error: Errno, proxied: bool) -> Reason {
    match error {
        Errno::MFILE | Errno::NFILE => Reason::TooManyConnections,
        _ if proxied => Reason::ProxyUnreachable,
        Errno::CONNREFUSED => Reason::Refused,
        Errno::TIMEDOUT => Reason::TimedOut,
        _ => Reason::Unreachable,
    }
}
