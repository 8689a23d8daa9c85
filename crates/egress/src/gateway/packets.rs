//! Packets that are read and written by hand: everything except the segments of a connection.

use super::device::Device;
use super::{GATEWAY, GUEST, MAC};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpHardware, ArpOperation, ArpPacket, ArpRepr, EthernetAddress, Icmpv4Packet, Icmpv4Repr,
    IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, UdpPacket,
    UdpRepr,
};
use std::net::Ipv4Addr;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV6: u16 = 0x86dd;

/// What a packet of IPv4 is.
#[derive(Debug)]
pub(super) enum Packet<'a> {
    Tcp(Segment),
    Udp {
        from: u16,
        to: Ipv4Addr,
        port: u16,
        payload: &'a [u8],
    },
    /// A ping of the gateway itself, and its answer.
    Ping(Icmpv4Repr<'a>),
    /// Anything else, by its protocol.
    Other {
        to: Ipv4Addr,
        protocol: u8,
    },
}

/// What must be known of a segment before its connection is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) from: u16,
    pub(super) to: Ipv4Addr,
    pub(super) port: u16,
    pub(super) syn: bool,
    pub(super) ack: bool,
    pub(super) rst: bool,
    number: smoltcp::wire::TcpSeqNumber,
    acknowledged: smoltcp::wire::TcpSeqNumber,
    length: usize,
}

/// Reads a packet that the sandbox itself sent. Nothing for what is broken, in pieces, or in
/// somebody else's name.
pub(super) fn read(bytes: &[u8]) -> Option<Packet<'_>> {
    let ip = Ipv4Packet::new_checked(bytes).ok()?;
    let whole = !ip.more_frags() && ip.frag_offset() == 0;
    if ip.version() != 4 || ip.src_addr() != GUEST || !whole || !ip.verify_checksum() {
        return None;
    }
    let to = ip.dst_addr();
    let (from_ip, to_ip) = (IpAddress::from(ip.src_addr()), IpAddress::from(to));
    let protocol = ip.next_header();
    // The payload of a slice lives as long as the slice.
    let payload = bytes.get(usize::from(ip.header_len())..usize::from(ip.total_len()))?;
    Some(match protocol {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(payload).ok()?;
            if tcp.src_port() == 0 || tcp.dst_port() == 0 {
                return None;
            }
            Packet::Tcp(Segment {
                from: tcp.src_port(),
                to,
                port: tcp.dst_port(),
                syn: tcp.syn(),
                ack: tcp.ack(),
                rst: tcp.rst(),
                number: tcp.seq_number(),
                acknowledged: tcp.ack_number(),
                length: tcp.segment_len(),
            })
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(payload).ok()?;
            if !udp.verify_checksum(&from_ip, &to_ip) {
                return None;
            }
            Packet::Udp {
                from: udp.src_port(),
                to,
                port: udp.dst_port(),
                payload: payload.get(8..usize::from(udp.len()))?,
            }
        }
        IpProtocol::Icmp if to == GATEWAY => {
            let icmp = Icmpv4Packet::new_checked(payload).ok()?;
            let repr = Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()).ok()?;
            match repr {
                Icmpv4Repr::EchoRequest { ident, seq_no, .. } => {
                    Packet::Ping(Icmpv4Repr::EchoReply {
                        ident,
                        seq_no,
                        data: payload.get(8..)?,
                    })
                }
                _ => return None,
            }
        }
        other => Packet::Other {
            to,
            protocol: other.into(),
        },
    })
}

/// Answers who has the gateway's address.
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

fn send(
    device: &mut Device,
    from: Ipv4Addr,
    protocol: IpProtocol,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
) {
    let ip = Ipv4Repr {
        src_addr: from,
        dst_addr: GUEST,
        next_header: protocol,
        payload_len: length,
        hop_limit: 64,
    };
    let header = ip.buffer_len();
    if header + length > device.mtu {
        return;
    }
    device.send(IPV4, header + length, |out| {
        ip.emit(
            &mut Ipv4Packet::new_unchecked(&mut *out),
            &ChecksumCapabilities::default(),
        );
        fill(&mut out[header..]);
    });
}

pub(super) fn ping(device: &mut Device, reply: &Icmpv4Repr<'_>) {
    send(
        device,
        GATEWAY,
        IpProtocol::Icmp,
        reply.buffer_len(),
        |out| {
            reply.emit(
                &mut Icmpv4Packet::new_unchecked(out),
                &ChecksumCapabilities::default(),
            );
        },
    );
}

pub(super) fn datagram(device: &mut Device, from: (Ipv4Addr, u16), port: u16, payload: &[u8]) {
    let udp = UdpRepr {
        src_port: from.1,
        dst_port: port,
    };
    let length = udp.header_len() + payload.len();
    send(device, from.0, IpProtocol::Udp, length, |out| {
        udp.emit(
            &mut UdpPacket::new_unchecked(out),
            &from.0.into(),
            &GUEST.into(),
            payload.len(),
            |room| room.copy_from_slice(payload),
            &ChecksumCapabilities::default(),
        );
    });
}

/// Refuses a segment that belongs to no connection, or whose connection may not be.
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
                &GUEST.into(),
                &ChecksumCapabilities::default(),
            );
        },
    );
}
