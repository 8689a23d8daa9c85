//! The network constants of a machine: all machines have these addresses, each in a network of its
//! own with only its gateway.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The machine's device.
pub const DEVICE: &str = "eth0";
/// The machine's address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 107, 0, 2);
/// Its gateway and name server.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 107, 0, 1);
pub const PREFIX: u8 = 24;
/// The same for IPv6: private addresses, which reach the internet only where a rule allows IPv6.
pub const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd6d, 0x7475, 0, 0, 0, 0, 0, 2);
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd6d, 0x7475, 0, 0, 0, 0, 0, 1);
pub const PREFIX6: u8 = 64;

/// The gateway's port for its SSH agent, for machines with a bound SSH key.
pub const AGENT_PORT: u16 = 1022;
/// The socket of the SSH agent in such a machine. It is on a tmpfs that every machine has: in
/// gVisor one in `/run` was refused after a while (probably the listener is lost when the file
/// leaves its cache).
pub const AGENT_SOCKET: &str = "/dev/shm/motu/ssh-agent.sock";
/// The file with the host keys.
pub const KNOWN_HOSTS: &str = "/etc/motu/known_hosts";
/// Tells git about that file, besides the machine's own.
pub const GIT_SSH_COMMAND: (&str, &str) = (
    "GIT_SSH_COMMAND",
    "ssh -o 'GlobalKnownHostsFile=/etc/ssh/ssh_known_hosts /etc/motu/known_hosts'",
);

/// The file with additional certificates.
pub const CERTIFICATES: &str = "/etc/motu/certificates.pem";
/// Variables that tell programs about the certificates, in addition to or instead of their own.
pub const CERTIFICATE_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
];
