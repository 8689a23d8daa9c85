//! What the gateway must know of the host it runs on.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The resolvers of a `resolv.conf`.
pub(super) fn resolvers(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let word = words.next().filter(|word| *word == "nameserver");
        word.and_then(|_| words.next())
    });
    // A zone (`fe80::1%eth0`) cannot be told by an address alone.
    let addresses = servers.filter_map(|server| server.parse::<IpAddr>().ok());
    let found: Vec<SocketAddr> = addresses
        .map(|address| SocketAddr::new(address, super::DNS))
        .take(3)
        .collect();
    if found.is_empty() {
        // What the C library takes when the file names none.
        vec![SocketAddr::from(([127, 0, 0, 1], super::DNS))]
    } else {
        found
    }
}

/// Where the resident memory can be read when no file can be opened any more.
#[derive(Debug)]
pub struct Memory {
    statm: File,
    page: u64,
}

impl Memory {
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            statm: File::open("/proc/self/statm")?,
            page: rustix::param::page_size() as u64,
        })
    }

    pub(super) fn resident(&self) -> u64 {
        let mut buffer = [0; 128];
        let read = rustix::io::pread(&self.statm, &mut buffer, 0).unwrap_or_default();
        let text = str::from_utf8(&buffer[..read]).unwrap_or_default();
        let pages = text
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse::<u64>().ok());
        pages.unwrap_or_default() * self.page
    }
}

/// When a process began, as its `stat` tells.
pub(super) fn start_time(stat: &str) -> io::Result<u64> {
    let stat = std::fs::read_to_string(stat)?;
    // The name of the program may hold anything, spaces included.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let time = fields.split_whitespace().nth(19);
    time.and_then(|time| time.parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_as_the_c_library_reads_them() {
        let text =
            "# x\nnameserver 1.2.3.4\nsearch a b\nnameserver\t2001:db8::1 x\nnameserver bad\n";
        let found = resolvers(text);
        assert_eq!(found[0], "1.2.3.4:53".parse().unwrap());
        assert_eq!(found[1], "[2001:db8::1]:53".parse().unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!(resolvers(""), ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn memory_is_read_from_an_open_file() {
        assert!(Memory::open().unwrap().resident() > 100_000);
    }
}
