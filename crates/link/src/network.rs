//! The network of a machine that has one: every machine has these addresses, in a network of its
//! own whose only other member is its gateway.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The machine's device.
pub const DEVICE: &str = "eth0";
/// The machine.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 107, 0, 2);
/// Its gateway, which is its name server too.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 107, 0, 1);
pub const PREFIX: u8 = 24;
/// The same over IPv6: addresses of a private net, which lead out only where a rule says so.
pub const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd6d, 0x7475, 0, 0, 0, 0, 0, 2);
pub const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd6d, 0x7475, 0, 0, 0, 0, 0, 1);
pub const PREFIX6: u8 = 64;

/// The port of the gateway's own address where it answers as an SSH agent, for machines that a key
/// is bound to a host for.
pub const AGENT_PORT: u16 = 1022;
/// The socket by which programs of such a machine reach the agent. It is on a file system that every
/// machine has in memory: in gVisor one in `/run` was refused after a while (probably it forgets who
/// listens when the file leaves its cache).
pub const AGENT_SOCKET: &str = "/dev/shm/motu/ssh-agent.sock";
/// Where such a machine finds the keys of the hosts.
pub const KNOWN_HOSTS: &str = "/etc/motu/known_hosts";
/// The variable by which git is told of that file, beside the machine's own.
pub const GIT_SSH_COMMAND: (&str, &str) = (
    "GIT_SSH_COMMAND",
    "ssh -o 'GlobalKnownHostsFile=/etc/ssh/ssh_known_hosts /etc/motu/known_hosts'",
);

/// Where a machine finds the certificates that its host gave it.
pub const CERTIFICATES: &str = "/etc/motu/certificates.pem";
/// Variables by which programs are told of certificates, beside or in the place of their own.
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
