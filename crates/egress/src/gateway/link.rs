//! One TCP connection of a sandbox, terminated by a smoltcp stack of its own.
//!
//! Each connection has its own interface with the address that the sandbox connects to. So a packet
//! costs the same with one connection as with a thousand.

use super::MTU;
use super::device::Device;
use super::packets::{IPV4, IPV6};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};
use std::net::IpAddr;

/// Buffer size per direction, and the smaller one used when many connections are open.
pub(super) const LARGE: usize = 256 * 1024;
pub(super) const SMALL: usize = 16 * 1024;

pub(super) struct Link {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    pub(super) size: usize,
    /// The EtherType of its frames.
    kind: u16,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.sockets.get::<tcp::Socket<'_>>(self.handle).state();
        out.debug_struct("Link").field("state", &state).finish()
    }
}

impl Link {
    /// Listens for the SYN of a connection to this address.
    pub(super) fn new(
        device: &mut Device,
        to: (IpAddr, u16),
        size: usize,
        seed: u64,
        now: Instant,
    ) -> Option<Self> {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let (kind, prefix) = match to.0 {
            IpAddr::V4(_) => (IPV4, 32),
            IpAddr::V6(_) => (IPV6, 128),
        };
        let mut port = Port {
            device,
            packet: None,
            kind,
        };
        let mut interface = Interface::new(config, &mut port, now);
        interface.update_ip_addrs(|addresses| {
            // The list is empty and holds at least one entry.
            let _ = addresses.push(IpCidr::new(to.0.into(), prefix));
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; size]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.listen(IpEndpoint::new(to.0.into(), to.1)).ok()?;
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Some(Self {
            interface,
            sockets,
            handle,
            size,
            kind,
        })
    }

    pub(super) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Handles one packet of the sandbox.
    pub(super) fn take(&mut self, device: &mut Device, packet: &[u8], now: Instant) {
        let mut port = Port {
            device,
            packet: Some(packet),
            kind: self.kind,
        };
        self.interface
            .poll_ingress_single(now, &mut port, &mut self.sockets);
    }

    /// Sends pending segments. Returns when to call again.
    pub(super) fn send(&mut self, device: &mut Device, now: Instant) -> Option<Instant> {
        let mut port = Port {
            device,
            packet: None,
            kind: self.kind,
        };
        while let smoltcp::iface::PollResult::SocketStateChanged =
            self.interface
                .poll_egress(now, &mut port, &mut self.sockets)
        {}
        self.interface.poll_at(now, &self.sockets)
    }
}

/// The device as one connection sees it: at most one packet in, any number out.
struct Port<'a> {
    device: &'a mut Device,
    packet: Option<&'a [u8]>,
    kind: u16,
}

impl phy::Device for Port<'_> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Sending<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let packet = self.packet.take()?;
        Some((Received(packet), Sending(self.device, self.kind)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        (!self.device.is_slow()).then_some(Sending(self.device, self.kind))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.device.mtu.min(MTU);
        capabilities
    }
}

struct Received<'a>(&'a [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

struct Sending<'a>(&'a mut Device, u16);

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        self.0.send(self.1, length, fill)
    }
}
