//! Facts about the host: resolvers, memory, process times.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The name servers of a `resolv.conf`.
pub(super) fn resolvers(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let word = words.next().filter(|word| *word == "nameserver");
        word.and_then(|_| words.next())
    });
    // An address with a zone (`fe80::1%eth0`) is not supported.
    let addresses = servers.filter_map(|server| server.parse::<IpAddr>().ok());
    let found: Vec<SocketAddr> = addresses
        .map(|address| SocketAddr::new(address, super::DNS))
        .take(3)
        .collect();
    if found.is_empty() {
        // The default of the C library if the file names none.
        vec![SocketAddr::from(([127, 0, 0, 1], super::DNS))]
    } else {
        found
    }
}

/// The open `statm` file: after confinement no file can be opened.
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

/// The start time of a process, from its `stat` file.
pub(super) fn start_time(stat: &str) -> io::Result<u64> {
    let stat = std::fs::read_to_string(stat)?;
    // The program's name may contain anything, even spaces and parentheses.
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
