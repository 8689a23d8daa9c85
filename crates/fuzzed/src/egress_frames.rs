//! Whatever a sandbox puts on its wire, the gateway goes on.
//!
//! The bytes are a list of frames. Some are sent as they are; the others get right addresses and
//! checksums, so that they reach the connections behind them.

use motu_egress::gateway::{GATEWAY, GATEWAY_MAC, GUEST, GUEST_MAC, Gateway, MTU, Parts};
use motu_egress::rules::Rules;
use std::os::unix::net::UnixDatagram;

pub fn egress_frames(data: &[u8]) {
    let Some((mut gateway, other)) = gateway() else {
        return;
    };
    let mut rest = data;
    let mut reply = [0; 2048];
    while let [kind, length, tail @ ..] = rest {
        let (body, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        match kind % 4 {
            0 => gateway.frame(body),
            1 => gateway.frame(&packet(17, udp(body))),
            _ => gateway.frame(&packet(6, tcp(*kind, body))),
        }
        if kind & 64 != 0 {
            gateway.settle();
            while other.recv(&mut reply).is_ok() {}
        }
    }
    gateway.settle();
}

/// A gateway that allows nothing, so that no socket of this host is opened.
fn gateway() -> Option<(Gateway, UnixDatagram)> {
    let (ours, theirs) = UnixDatagram::pair().ok()?;
    ours.set_nonblocking(true).ok()?;
    theirs.set_nonblocking(true).ok()?;
    let parts = Parts {
        frames: theirs.into(),
        mtu: MTU,
        control: None,
        decisions: std::fs::OpenOptions::new()
            .append(true)
            .open("/dev/null")
            .ok()?
            .into(),
        rules: Rules::none(),
        border: None,
        addresses: None,
        resolvers: Vec::new(),
        proxy: None,
        memory: None,
    };
    Some((Gateway::new(parts).ok()?, ours))
}

/// Ports, flags and lengths that lead to the resolver's own connections.
fn tcp(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x10, kind >> 7, 0, 53];
    let (numbers, payload) = body.split_at(body.len().min(12));
    out.extend_from_slice(numbers);
    out.resize(16, 0);
    out[12] = 0x50;
    out.extend([0, 0, 0, 0]);
    out.extend_from_slice(payload);
    let sum = checksum(&[
        &GUEST.octets(),
        &GATEWAY.octets(),
        &[0, 6],
        &(out.len() as u16).to_be_bytes(),
        &out,
    ]);
    out[16..18].copy_from_slice(&sum);
    out
}

fn udp(body: &[u8]) -> Vec<u8> {
    let length = ((8 + body.len()) as u16).to_be_bytes();
    // Without a checksum.
    let mut out = vec![0x10, 0, 0, 53, length[0], length[1], 0, 0];
    out.extend_from_slice(body);
    out
}

fn packet(protocol: u8, body: Vec<u8>) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend(((20 + body.len()) as u16).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    ip.extend(GUEST.octets());
    ip.extend(GATEWAY.octets());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    [&GATEWAY_MAC[..], &GUEST_MAC, &[8, 0], &ip, &body].concat()
}

fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let mut sum = 0u32;
    for two in bytes.chunks(2) {
        sum += u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
