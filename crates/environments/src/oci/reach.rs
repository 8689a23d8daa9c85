//! Where connections may lead, by who has asked for them.
//!
//! A caller with a key names registries, and registries name redirects and token services. The
//! daemon stands where such a caller does not: beside services of loopback, in private networks,
//! next to the cloud's metadata. What it fetches for them goes where a sandbox with the policy
//! `public` could go, by the same classes of addresses, and to the places that whoever runs this
//! host has named.
//!
//! Each connection is judged on its own: every redirect, every token service, every new attempt.
//! What was judged is an address, and the connection goes to that address: a name that leads
//! elsewhere a moment later has nothing to gain.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    str::FromStr,
    sync::Arc,
};

use motu_egress::{
    address::{Class, Places},
    host,
};
use tokio::net::lookup_host;

use crate::reference::split_port;

/// A host, and perhaps a port, as the operator names it: `registry.example:5000`, `[::1]:5000`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegistryName {
    host: String,
    /// The usual one of the scheme when missing.
    port: Option<u16>,
}

/// Text that names no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no registry: want HOST or HOST:PORT")]
pub struct NotARegistry(pub String);

impl FromStr for RegistryName {
    type Err = NotARegistry;

    fn from_str(text: &str) -> Result<Self, NotARegistry> {
        let refused = || NotARegistry(text.to_owned());
        let (host, port) = split_port(text);
        let bare = plain(host);
        let is_name = || host::normal(&bare).is_some();
        let has_port = host.len() < text.len();
        if (bare.parse::<IpAddr>().is_err() && !is_name())
            || (has_port && port.is_none_or(|p| p == 0))
        {
            return Err(refused());
        }
        Ok(Self { host: bare, port })
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.host)?;
        match self.port {
            Some(port) => write!(out, ":{port}"),
            None => Ok(()),
        }
    }
}

impl RegistryName {
    fn is(&self, host: &str, port: u16, usual: u16) -> bool {
        let same = match (self.host.parse::<IpAddr>(), host.parse::<IpAddr>()) {
            (Ok(own), Ok(other)) => own == other,
            _ => self.host == host,
        };
        same && self.port.unwrap_or(usual) == port
    }

    /// Whether a registry, as references write it, is this one.
    pub(crate) fn is_registry(&self, registry: &str) -> bool {
        let (host, port) = split_port(registry);
        self.host == plain(host) && self.port == port
    }
}

/// One spelling for every name: small letters, no brackets, no dot at the end.
fn plain(host: &str) -> String {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    host.strip_suffix('.').unwrap_or(&host).to_owned()
}

/// What connections of one pull may reach.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    /// Everything: it is asked for by whoever runs this host.
    Everything,
    /// The public internet, and these.
    Public(Arc<[RegistryName]>),
}

/// Where a connection is to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Without brackets.
    pub host: &'a str,
    pub port: u16,
    /// The port of the scheme.
    pub usual: u16,
}

/// Why a connection was not made.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It leads where the caller may not reach.
    Closed,
    Failed(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Reach {
    fn names(&self, target: Target<'_>) -> bool {
        let host = plain(target.host);
        match self {
            Self::Everything => true,
            Self::Public(named) => {
                let mut named = named.iter();
                named.any(|one| one.is(&host, target.port, target.usual))
            }
        }
    }

    /// Whether a name may be asked for at all: of resolvers here, or of a proxy, which resolves it
    /// itself. Numbers in any spelling that is not an address's own are no names, and names without
    /// a dot depend on the host's search domain.
    pub fn admits_name(&self, target: Target<'_>) -> Result<(), Stopped> {
        if self.names(target) {
            return Ok(());
        }
        let fine = match target.host.parse::<IpAddr>() {
            Ok(address) => class(address) == Class::Public,
            Err(_) => {
                let name = host::normal(target.host);
                name.is_some_and(|name| host::Host::Public.covers_name(&name))
            }
        };
        if fine { Ok(()) } else { Err(Stopped::Closed) }
    }

    /// The addresses of a target that may be connected to, and no other ones.
    pub async fn addresses(&self, target: Target<'_>) -> Result<Vec<SocketAddr>, Stopped> {
        self.admits_name(target)?;
        let named = self.names(target);
        let found = lookup_host((target.host, target.port)).await?;
        let found: Vec<SocketAddr> = found.collect();
        let open: Vec<SocketAddr> = found
            .iter()
            .copied()
            .filter(|at| self.admits(at.ip(), named))
            .collect();
        match (open.is_empty(), found.is_empty()) {
            (true, false) => Err(Stopped::Closed),
            _ => Ok(open),
        }
    }

    fn admits(&self, address: IpAddr, named: bool) -> bool {
        match (self, class(address)) {
            (Self::Everything, _) | (_, Class::Public) => true,
            // A name of the operator's choice opens what the operator has: never the service that
            // hands out the host's own credentials.
            (_, Class::Metadata | Class::LinkLocal | Class::Reserved) => false,
            _ => named,
        }
    }
}

/// The class of an address, seen from this host as it is now.
fn class(address: IpAddr) -> Class {
    let inner = address.to_canonical();
    let own = [address, inner].into_iter().filter(|one| is_own(*one));
    let places = Places {
        host: own.collect(),
        ..Places::default()
    };
    places.class(address)
}

/// Whether an address is one of this host's: the kernel says which source it would take, and to
/// itself that is the address itself. Nothing is sent.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Any port will do.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    source().is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str, port: u16) -> Target<'_> {
        Target {
            host,
            port,
            usual: 443,
        }
    }

    fn public(places: &[&str]) -> Reach {
        Reach::Public(places.iter().map(|place| place.parse().unwrap()).collect())
    }

    /// Whether a connection would be tried.
    async fn open(reach: &Reach, host: &str, port: u16) -> bool {
        let found = reach.addresses(target(host, port)).await;
        !matches!(found, Err(Stopped::Closed))
    }

    #[tokio::test]
    async fn nothing_of_the_host_or_its_neighbours_is_reached() {
        let reach = public(&[]);
        for host in [
            "127.0.0.1",
            "127.0.0.2",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "0.0.0.0",
            "::",
            "10.0.0.1",
            "172.16.3.4",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "fe80::1",
            "224.0.0.1",
            "255.255.255.255",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "metadata",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
        ] {
            assert!(!open(&reach, host, 443).await, "{host}");
            assert!(reach.admits_name(target(host, 443)).is_err(), "{host}");
            assert!(Reach::Everything.admits_name(target(host, 443)).is_ok());
        }
        for host in ["1.1.1.1", "2606:4700::1111"] {
            assert!(open(&reach, host, 443).await, "{host}");
        }
        assert!(reach.admits_name(target("registry.example", 443)).is_ok());
    }

    #[tokio::test]
    async fn what_the_operator_names_is_reached_at_its_port() {
        let reach = public(&[
            "127.0.0.1:5000",
            "[::1]:5000",
            "localhost",
            "169.254.169.254",
        ]);
        for (host, port, want) in [
            ("127.0.0.1", 5000, true),
            ("127.0.0.1", 5001, false),
            ("127.0.0.1", 443, false),
            ("127.0.0.2", 5000, false),
            ("::1", 5000, true),
            ("0:0:0:0:0:0:0:1", 5000, true),
            ("::ffff:127.0.0.1", 5000, false),
            ("localhost", 443, true),
            ("Localhost", 443, true),
            ("localhost", 5000, false),
            // Whoever names this one means another.
            ("169.254.169.254", 443, false),
        ] {
            assert_eq!(open(&reach, host, port).await, want, "{host}:{port}");
        }
    }

    #[test]
    fn the_hosts_own_addresses_are_known_without_a_list() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own([192, 0, 2, 1].into()));
        // The source that this host would take to somewhere else is its own.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_own(own), "{own}");
            assert!(class(own).is_closed(), "{own}");
        }
    }

    #[test]
    fn places_are_hosts_and_ports() {
        for (text, shown) in [
            ("Registry.Example", "registry.example"),
            ("registry:5000", "registry:5000"),
            ("[::1]:5000", "::1:5000"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(text.parse::<RegistryName>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "https://registry.example",
            "registry.example/team",
            "registry.example:0",
            "registry.example:x",
            "*.example",
            "10.0.0.0/8",
            "a b",
        ] {
            assert!(text.parse::<RegistryName>().is_err(), "{text:?}");
        }
        let place: RegistryName = "r.example:5000".parse().unwrap();
        assert!(place.is_registry("r.example:5000"));
        assert!(!place.is_registry("r.example"));
    }
}
