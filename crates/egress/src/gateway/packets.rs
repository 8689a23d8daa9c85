//! Parses and writes all packets by hand, except TCP segments.

use super::device::Device;
use super::{GATEWAY, GATEWAY6, GUEST, GUEST6, MAC};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpHardware, ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv4Packet, Icmpv6Packet,
    Icmpv6Repr, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, TcpControl, TcpPacket, TcpRepr, UdpPacket, UdpRepr,
};
use std::net::{IpAddr, Ipv6Addr};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV6: u16 = 0x86dd;

/// The header of an ICMP echo message.
pub(super) const ECHO: usize = 8;
/// Bytes of the original packet in an ICMP error: enough for any kernel to find the socket.
const REPEATED: usize = 48;
/// The hop limit that neighbour discovery requires.
const ONE_LINK: u8 = 255;

/// A parsed packet.
#[derive(Debug)]
pub(super) enum Packet<'a> {
    Tcp(Segment),
    Udp {
        from: u16,
        to: IpAddr,
        port: u16,
        payload: &'a [u8],
    },
    /// An echo request.
    Ping(Ping<'a>),
    /// A neighbour solicitation for the gateway, from this address.
    Solicitation(Ipv6Addr),
    /// Another ICMP message.
    Icmp(IpAddr),
    /// Anything else.
    Other,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ping<'a> {
    pub(super) to: IpAddr,
    /// The echo identifier, which names the asking program.
    pub(super) ident: u16,
    pub(super) number: u16,
    pub(super) data: &'a [u8],
}

/// The parts of a TCP segment that are needed to find its connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) from: u16,
    pub(super) to: IpAddr,
    pub(super) port: u16,
    pub(super) syn: bool,
    pub(super) ack: bool,
    pub(super) rst: bool,
    number: smoltcp::wire::TcpSeqNumber,
    acknowledged: smoltcp::wire::TcpSeqNumber,
    length: usize,
}

/// Parses a packet of the sandbox. `None` for malformed packets, fragments, and foreign source
/// addresses.
pub(super) fn read(bytes: &[u8]) -> Option<Packet<'_>> {
    match bytes.first()? >> 4 {
        4 => read_v4(bytes),
        6 => read_v6(bytes),
        _ => None,
    }
}

fn read_v4(bytes: &[u8]) -> Option<Packet<'_>> {
    let ip = Ipv4Packet::new_checked(bytes).ok()?;
    let whole = !ip.more_frags() && ip.frag_offset() == 0;
    if ip.src_addr() != GUEST || !whole || !ip.verify_checksum() {
        return None;
    }
    // Slice from `bytes`, so that the payload has its lifetime.
    let payload = bytes.get(usize::from(ip.header_len())..usize::from(ip.total_len()))?;
    let to = IpAddr::V4(ip.dst_addr());
    match ip.next_header() {
        IpProtocol::Tcp => segment(to, payload),
        IpProtocol::Udp => datagram_of(GUEST.into(), to, payload),
        IpProtocol::Icmp => {
            let icmp = Icmpv4Packet::new_checked(payload).ok()?;
            icmp.verify_checksum().then(|| echo_of(8, to, payload))?
        }
        _ => Some(Packet::Other),
    }
}

/// Extension headers, fragments included, are not supported: ordinary programs send none.
fn read_v6(bytes: &[u8]) -> Option<Packet<'_>> {
    let ip = Ipv6Packet::new_checked(bytes).ok()?;
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    let payload = bytes.get(40..ip.total_len())?;
    if ip.next_header() == IpProtocol::Icmpv6 {
        let icmp = Icmpv6Packet::new_checked(payload).ok()?;
        if !icmp.verify_checksum(&from, &to) {
            return None;
        }
        // Also from a link-local address: neighbour discovery stays on this link.
        if let Some(asked) = solicited(payload) {
            let asks = ip.hop_limit() == ONE_LINK && asked == GATEWAY6 && !from.is_unspecified();
            return asks.then_some(Packet::Solicitation(from));
        }
        if from == GUEST6 {
            return echo_of(128, to.into(), payload);
        }
    }
    if from != GUEST6 {
        return None;
    }
    match ip.next_header() {
        IpProtocol::Tcp => segment(to.into(), payload),
        IpProtocol::Udp => datagram_of(GUEST6.into(), to.into(), payload),
        _ => Some(Packet::Other),
    }
}

/// The target of a neighbour solicitation.
fn solicited(message: &[u8]) -> Option<Ipv6Addr> {
    let target = message.get(8..24)?.first_chunk::<16>()?;
    (message[0] == 135).then(|| Ipv6Addr::from(*target))
}

fn segment(to: IpAddr, payload: &[u8]) -> Option<Packet<'_>> {
    let tcp = TcpPacket::new_checked(payload).ok()?;
    if tcp.src_port() == 0 || tcp.dst_port() == 0 {
        return None;
    }
    Some(Packet::Tcp(Segment {
        from: tcp.src_port(),
        to,
        port: tcp.dst_port(),
        syn: tcp.syn(),
        ack: tcp.ack(),
        rst: tcp.rst(),
        number: tcp.seq_number(),
        acknowledged: tcp.ack_number(),
        length: tcp.segment_len(),
    }))
}

fn datagram_of(from: IpAddr, to: IpAddr, payload: &[u8]) -> Option<Packet<'_>> {
    let udp = UdpPacket::new_checked(payload).ok()?;
    if !udp.verify_checksum(&IpAddress::from(from), &IpAddress::from(to)) {
        return None;
    }
    Some(Packet::Udp {
        from: udp.src_port(),
        to,
        port: udp.dst_port(),
        payload: payload.get(8..usize::from(udp.len()))?,
    })
}

/// Parses an ICMP message with a valid checksum; `request` is the type of an echo request.
fn echo_of(request: u8, to: IpAddr, message: &[u8]) -> Option<Packet<'_>> {
    let (head, data) = message.split_first_chunk::<ECHO>()?;
    if head[0] != request || head[1] != 0 {
        return Some(Packet::Icmp(to));
    }
    Some(Packet::Ping(Ping {
        to,
        ident: u16::from_be_bytes([head[4], head[5]]),
        number: u16::from_be_bytes([head[6], head[7]]),
        data,
    }))
}

/// Answers an ARP request for the gateway's address.
pub(super) fn arp(device: &mut Device, bytes: &[u8]) {
    let Ok(packet) = ArpPacket::new_checked(bytes) else {
        return;
    };
    let Ok(ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr: GATEWAY,
        ..
    }) = ArpRepr::parse(&packet)
    else {
        return;
    };
    if packet.hardware_type() != ArpHardware::Ethernet {
        return;
    }
    let reply = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: MAC,
        source_protocol_addr: GATEWAY,
        target_hardware_addr: EthernetAddress(source_hardware_addr.0),
        target_protocol_addr: source_protocol_addr,
    };
    device.send(ARP, reply.buffer_len(), |out| {
        reply.emit(&mut ArpPacket::new_unchecked(out));
    });
}

/// Answers a neighbour solicitation for the gateway's IPv6 address.
pub(super) fn neighbour(device: &mut Device, asker: Ipv6Addr) {
    let advert = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::ROUTER
            | NdiscNeighborFlags::SOLICITED
            | NdiscNeighborFlags::OVERRIDE,
        target_addr: GATEWAY6,
        lladdr: Some(MAC.into()),
    });
    let ip = Ipv6Repr {
        src_addr: GATEWAY6,
        dst_addr: asker,
        next_header: IpProtocol::Icmpv6,
        payload_len: advert.buffer_len(),
        hop_limit: ONE_LINK,
    };
    device.send(IPV6, ip.buffer_len() + advert.buffer_len(), |out| {
        ip.emit(&mut Ipv6Packet::new_unchecked(&mut *out));
        let mut packet = Icmpv6Packet::new_unchecked(&mut out[ip.buffer_len()..]);
        let sums = ChecksumCapabilities::default();
        advert.emit(&GATEWAY6, &asker, &mut packet, &sums);
    });
}

/// The sandbox's own address of the same family.
fn guest(other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => GUEST.into(),
        IpAddr::V6(_) => GUEST6.into(),
    }
}

/// Sends a packet to the sandbox, if it fits the MTU. Returns whether it does.
fn send(
    device: &mut Device,
    from: IpAddr,
    protocol: IpProtocol,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
) -> bool {
    let header = if from.is_ipv4() { 20 } else { 40 };
    if header + length > device.mtu {
        return false;
    }
    match from {
        IpAddr::V4(from) => {
            let ip = Ipv4Repr {
                src_addr: from,
                dst_addr: GUEST,
                next_header: protocol,
                payload_len: length,
                hop_limit: 64,
            };
            device.send(IPV4, header + length, |out| {
                let sums = ChecksumCapabilities::default();
                ip.emit(&mut Ipv4Packet::new_unchecked(&mut *out), &sums);
                fill(&mut out[header..]);
            });
        }
        IpAddr::V6(from) => {
            let ip = Ipv6Repr {
                src_addr: from,
                dst_addr: GUEST6,
                next_header: protocol,
                payload_len: length,
                hop_limit: 64,
            };
            device.send(IPV6, header + length, |out| {
                ip.emit(&mut Ipv6Packet::new_unchecked(&mut *out));
                fill(&mut out[header..]);
            });
        }
    }
    true
}

/// Sends an ICMP message: a header without checksum, and its payload.
fn icmp(device: &mut Device, from: IpAddr, head: [u8; ECHO], rest: &[u8]) -> bool {
    let protocol = match from {
        IpAddr::V4(_) => IpProtocol::Icmp,
        IpAddr::V6(_) => IpProtocol::Icmpv6,
    };
    send(device, from, protocol, ECHO + rest.len(), |out| {
        out[..ECHO].copy_from_slice(&head);
        out[ECHO..].copy_from_slice(rest);
        match from {
            IpAddr::V4(_) => Icmpv4Packet::new_unchecked(out).fill_checksum(),
            IpAddr::V6(from) => Icmpv6Packet::new_unchecked(out).fill_checksum(&from, &GUEST6),
        }
    })
}

/// Answers an echo request in the name of `ping.to`. Returns whether it fits the MTU.
pub(super) fn pong(device: &mut Device, ping: &Ping<'_>) -> bool {
    let kind = if ping.to.is_ipv4() { 0 } else { 129 };
    let (ident, number) = (ping.ident.to_be_bytes(), ping.number.to_be_bytes());
    let head = [kind, 0, 0, 0, ident[0], ident[1], number[0], number[1]];
    icmp(device, ping.to, head, ping.data)
}

/// Sends "port unreachable" for a packet of the sandbox.
pub(super) fn unreachable(device: &mut Device, to: IpAddr, packet: &[u8]) {
    let (kind, code) = if to.is_ipv4() { (3, 3) } else { (1, 4) };
    let head = [kind, code, 0, 0, 0, 0, 0, 0];
    icmp(device, to, head, &packet[..packet.len().min(REPEATED)]);
}

/// Sends a datagram. Returns whether it fits the MTU.
pub(super) fn datagram(
    device: &mut Device,
    from: (IpAddr, u16),
    port: u16,
    payload: &[u8],
) -> bool {
    let udp = UdpRepr {
        src_port: from.1,
        dst_port: port,
    };
    let length = udp.header_len() + payload.len();
    send(device, from.0, IpProtocol::Udp, length, |out| {
        udp.emit(
            &mut UdpPacket::new_unchecked(out),
            &from.0.into(),
            &guest(from.0).into(),
            payload.len(),
            |room| room.copy_from_slice(payload),
            &ChecksumCapabilities::default(),
        );
    })
}

/// Sends RST for a segment without a connection, or of a refused one.
pub(super) fn reset(device: &mut Device, segment: &Segment) {
    if segment.rst {
        return;
    }
    let (number, acknowledged) = if segment.ack {
        (segment.acknowledged, None)
    } else {
        (Default::default(), Some(segment.number + segment.length))
    };
    let tcp = TcpRepr {
        src_port: segment.port,
        dst_port: segment.from,
        control: TcpControl::Rst,
        seq_number: number,
        ack_number: acknowledged,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    send(
        device,
        segment.to,
        IpProtocol::Tcp,
        tcp.buffer_len(),
        |out| {
            tcp.emit(
                &mut TcpPacket::new_unchecked(out),
                &segment.to.into(),
                &guest(segment.to).into(),
                &ChecksumCapabilities::default(),
            );
        },
    );
}
