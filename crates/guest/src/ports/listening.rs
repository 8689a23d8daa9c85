//! Lists listening TCP ports from `/proc`. Best effort: unreadable entries are skipped, and every
//! loop is bounded.

use motu_link::message::{Port, Ports};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Ports reported at most.
const MAX_PORTS: usize = 1024;
/// Bounds: lines per socket table, processes, and descriptors per process.
const MAX_LINES: usize = 65_536;
const MAX_PROCESSES: usize = 8192;
const MAX_DESCRIPTORS: usize = 4096;
/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// All listening ports, sorted.
pub fn listening() -> Ports {
    let mut found: Vec<(Port, u64)> = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = std::fs::read_to_string(path).unwrap_or_default();
        let lines = table.lines().skip(1).take(MAX_LINES).filter_map(parse);
        found.extend(lines.take(MAX_PORTS));
    }
    found.sort_by(|(a, _), (b, _)| (a.port, &a.address).cmp(&(b.port, &b.address)));
    found.dedup_by(|(a, _), (b, _)| a.port == b.port && a.address == b.address);
    found.truncate(MAX_PORTS);
    let wanted: HashMap<u64, usize> = found
        .iter()
        .enumerate()
        .map(|(at, (_, inode))| (*inode, at))
        .collect();
    for (inode, pid) in owners(&wanted) {
        if let Some((port, _)) = wanted.get(&inode).and_then(|at| found.get_mut(*at)) {
            port.pid = pid;
            let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            port.process = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
        }
    }
    Ports {
        ports: found.into_iter().map(|(port, _)| port).collect(),
    }
}

/// One line of a socket table, if it listens: the port and the socket's inode.
fn parse(line: &str) -> Option<(Port, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let port = u32::from_str_radix(port, 16).ok()?;
    Some((
        Port {
            port,
            address: address_of(address)?,
            pid: 0,
            process: String::new(),
        },
        inode,
    ))
}

/// The kernel prints addresses as 32-bit words in the machine's byte order.
fn address_of(hex: &str) -> Option<String> {
    let word = |at: usize| {
        Some(
            u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).to_string()),
        32 => {
            let mut bytes = [0u8; 16];
            for (at, chunk) in bytes.chunks_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(bytes).to_string())
        }
        _ => None,
    }
}

/// The processes that hold these sockets: inode and pid.
fn owners(wanted: &HashMap<u64, usize>) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_PROCESSES)
    {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let descriptors = std::fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        for descriptor in descriptors.take(MAX_DESCRIPTORS) {
            let Ok(target) = std::fs::read_link(descriptor.path()) else {
                continue;
            };
            let inode = target.to_str().and_then(|name| {
                name.strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .parse()
                    .ok()
            });
            found.extend(
                inode
                    .filter(|inode| wanted.contains_key(inode))
                    .map(|inode| (inode, pid)),
            );
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0";
        let (port, inode) = parse(line).unwrap();
        assert_eq!((port.port, inode), (8080, 4711));
        if cfg!(target_endian = "little") {
            assert_eq!(port.address, "127.0.0.1");
        }
        assert!(parse(&line.replace(" 0A ", " 01 ")).is_none());
        assert!(parse("garbage").is_none());
        assert!(address_of("zz").is_none());
    }
}
