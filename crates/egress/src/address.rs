//! Classes of addresses, independent of any rule.
//!
//! Some are never reachable: the host itself, link-local addresses, cloud metadata services.
//! Private networks need a rule that names them. An IPv6 address that embeds an IPv4 address is
//! classified by the embedded one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The public internet.
    Public,
    /// Private networks, and those reserved for documentation and benchmarks.
    Private,
    /// Not a unicast destination: unspecified, multicast, broadcast, reserved.
    Reserved,
    /// Valid on one link only.
    LinkLocal,
    /// A cloud's metadata service, which hands out credentials.
    Metadata,
    /// The network between sandbox and gateway.
    Gateway,
    /// An address of the host the gateway runs on.
    Host,
    Loopback,
}

impl Class {
    /// Whether no rule can open it.
    pub fn is_closed(self) -> bool {
        !matches!(self, Class::Public | Class::Private)
    }
}

/// Addresses in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// Text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network: want ADDRESS/BITS, with no bit set behind the prefix")]
pub struct NotANetwork(pub String);

impl Network {
    pub const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self {
            first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            prefix,
        }
    }

    pub const fn v6(first: Ipv6Addr, prefix: u8) -> Self {
        Self {
            first: IpAddr::V6(first),
            prefix,
        }
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.first.is_ipv6()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let mask = mask(32, self.prefix) as u32;
                first.to_bits() == address.to_bits() & mask
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                first.to_bits() == address.to_bits() & mask(128, self.prefix)
            }
            _ => false,
        }
    }

    fn last(&self) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => {
                Ipv4Addr::from_bits(first.to_bits() | !(mask(32, self.prefix) as u32)).into()
            }
            IpAddr::V6(first) => {
                Ipv6Addr::from_bits(first.to_bits() | !mask(128, self.prefix)).into()
            }
        }
    }

    /// Whether all of it is private. `0.0.0.0/0` contains `10.0.0.0/8`, but its author does not
    /// mean to open that.
    pub fn is_private(&self) -> bool {
        let ends = [self.first, self.last()];
        self.prefix >= 7 && ends.iter().all(|end| fixed(*end) == Class::Private)
    }
}

/// `prefix` ones at the top of `width` bits.
fn mask(width: u32, prefix: u8) -> u128 {
    let empty = width.saturating_sub(u32::from(prefix));
    let all = if width == 128 {
        u128::MAX
    } else {
        (1 << width) - 1
    };
    all.checked_shr(empty)
        .and_then(|ones| ones.checked_shl(empty))
        .unwrap_or(0)
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let refused = || NotANetwork(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(refused)?;
        let first: IpAddr = address.parse().map_err(|_| refused())?;
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = prefix.parse().map_err(|_| refused())?;
        let network = Self { first, prefix };
        let most = if first.is_ipv4() { 32 } else { 128 };
        if digits && prefix <= most && network.contains(first) {
            Ok(network)
        } else {
            Err(refused())
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.first, self.prefix)
    }
}

/// Addresses of the environment the gateway runs in.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The addresses of the host.
    pub host: Vec<IpAddr>,
    /// The networks between sandbox and gateway.
    pub gateway: Vec<Network>,
    /// Synthetic addresses for names that a proxy resolves.
    pub stand_ins: Option<Network>,
}

impl Places {
    /// Whether an address is synthetic and stands for a name.
    pub fn stands_in(&self, address: IpAddr) -> bool {
        self.stand_ins.is_some_and(|net| net.contains(address))
    }

    /// What kind of place an address is.
    pub fn class(&self, address: IpAddr) -> Class {
        if self.stands_in(address) {
            return Class::Public;
        }
        let own = |address: &IpAddr| {
            let mut class = fixed(*address);
            if self.gateway.iter().any(|net| net.contains(*address)) {
                class = class.max(Class::Gateway);
            }
            if self.host.contains(address) {
                class = class.max(Class::Host);
            }
            class
        };
        // The most restricted class of the address and of the addresses embedded in it.
        let carried = carried(address).into_iter().flatten();
        let worst = carried.map(IpAddr::V4).map(|inner| own(&inner)).max();
        match worst {
            // What only wraps another address is no destination of its own.
            Some(inner) if is_wrapper(address) => inner.max(match own(&address) {
                Class::Reserved => Class::Public,
                outer => outer,
            }),
            Some(inner) => inner.max(own(&address)),
            None => own(&address),
        }
    }
}

/// The IPv4 addresses embedded in an IPv6 address.
fn carried(address: IpAddr) -> [Option<Ipv4Addr>; 2] {
    let IpAddr::V6(address) = address else {
        return [None, None];
    };
    let bits = address.to_bits();
    let low = Ipv4Addr::from_bits(bits as u32);
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    let segments = address.segments();
    match segments {
        // `::1` and `::` embed nothing.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        // Compatible, mapped, translated, NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => [Some(low), None],
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => [Some(low), None],
        // The same inside of a network.
        [0x64, 0xff9b, 1, _, _, _, _, _] => [Some(low), None],
        // 6to4.
        [0x2002, ..] => [Some(at(80)), None],
        // Teredo: the server's address, and the client's with all bits inverted.
        [0x2001, 0, ..] => [Some(at(64)), Some(Ipv4Addr::from_bits(!(bits as u32)))],
        // ISATAP.
        [.., 0 | 0x200, 0x5efe, _, _] => [Some(low), None],
        _ => [None, None],
    }
}

/// Whether an address is nothing but another one in a form of IPv6.
fn is_wrapper(address: IpAddr) -> bool {
    let IpAddr::V6(address) = address else {
        return false;
    };
    matches!(
        address.segments(),
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _]
            | [0, 0, 0, 0, 0xffff, 0, _, _]
            | [0x64, 0xff9b, 0, 0, 0, 0, _, _]
    )
}

/// The class of an address that is the same on every host.
fn fixed(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => fixed_v4(address),
        IpAddr::V6(address) => fixed_v6(address),
    }
}

fn fixed_v4(address: Ipv4Addr) -> Class {
    match address.octets() {
        [169, 254, 169, 254]
        | [169, 254, 170, 2 | 23]
        | [100, 100, 100, 200]
        | [168, 63, 129, 16]
        | [192, 0, 0, 192] => Class::Metadata,
        [127, ..] => Class::Loopback,
        [169, 254, ..] => Class::LinkLocal,
        [0, ..] | [224..=255, ..] => Class::Reserved,
        [10, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..]
        | [100, 64..=127, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Class::Private,
        _ => Class::Public,
    }
}

fn fixed_v6(address: Ipv6Addr) -> Class {
    match address.segments() {
        // AWS (its services for instances share one net), Google, Oracle, Scaleway.
        [0xfd00, 0xec2, ..]
        | [0xfd20, 0xce, ..]
        | [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
        | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42] => Class::Metadata,
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        [0xfc00..=0xfdff, ..]
        | [0x2001, 0xdb8, ..]
        | [0x2001, 2, 0, ..]
        | [0x3fff, 0..=0xfff, ..]
        | [0x64, 0xff9b, 1, ..] => Class::Private,
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(text: &str) -> Class {
        let places = Places {
            host: ["11.22.33.1", "2600::1", "127.0.0.1", "::1"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            gateway: vec![
                Network::v4(10, 107, 0, 0, 24),
                Network::v6(Ipv6Addr::new(0xfd6d, 0x7475, 0, 0, 0, 0, 0, 0), 64),
            ],
            stand_ins: None,
        };
        places.class(text.parse().unwrap())
    }

    #[test]
    fn every_kind_of_place_is_known() {
        for (text, want) in [
            ("1.1.1.1", Class::Public),
            ("11.22.33.44", Class::Public),
            ("2606:4700::1111", Class::Public),
            ("10.0.0.1", Class::Private),
            ("172.16.0.1", Class::Private),
            ("172.32.0.1", Class::Public),
            ("192.168.1.1", Class::Private),
            ("100.64.0.1", Class::Private),
            ("192.0.2.1", Class::Private),
            ("198.19.255.255", Class::Private),
            ("203.0.113.9", Class::Private),
            ("fd12::1", Class::Private),
            ("2001:db8::1", Class::Private),
            ("127.0.0.1", Class::Loopback),
            ("127.255.255.254", Class::Loopback),
            ("::1", Class::Loopback),
            ("169.254.1.1", Class::LinkLocal),
            ("fe80::1", Class::LinkLocal),
            ("169.254.169.254", Class::Metadata),
            ("100.100.100.200", Class::Metadata),
            ("168.63.129.16", Class::Metadata),
            ("192.0.0.192", Class::Metadata),
            ("fd00:ec2::254", Class::Metadata),
            ("fd00:ec2::23", Class::Metadata),
            ("fd20:ce::254", Class::Metadata),
            ("fd00:c1::a9fe:a9fe", Class::Metadata),
            ("fd00:42::42", Class::Metadata),
            ("fd00:42::43", Class::Private),
            ("0.0.0.0", Class::Reserved),
            ("0.1.2.3", Class::Reserved),
            ("::", Class::Reserved),
            ("224.0.0.1", Class::Reserved),
            ("240.0.0.1", Class::Reserved),
            ("255.255.255.255", Class::Reserved),
            ("ff02::1", Class::Reserved),
            ("fec0::1", Class::Reserved),
            ("11.22.33.1", Class::Host),
            ("2600::1", Class::Host),
            ("10.107.0.1", Class::Gateway),
            ("fd6d:7475::1", Class::Gateway),
            ("fd6d:7475:0:1::1", Class::Private),
        ] {
            assert_eq!(class(text), want, "{text}");
        }
    }

    #[test]
    fn an_address_in_an_address_is_judged_by_the_inner_one() {
        for (text, want) in [
            ("::ffff:127.0.0.1", Class::Loopback),
            ("::ffff:169.254.169.254", Class::Metadata),
            ("::ffff:10.107.0.1", Class::Gateway),
            ("::ffff:11.22.33.1", Class::Host),
            ("::ffff:1.1.1.1", Class::Public),
            ("::127.0.0.1", Class::Loopback),
            ("::ffff:0:127.0.0.1", Class::Loopback),
            ("64:ff9b::10.0.0.1", Class::Private),
            ("64:ff9b::7f00:1", Class::Loopback),
            ("64:ff9b:1::7f00:1", Class::Loopback),
            ("64:ff9b:1:5:6:7:a9fe:a9fe", Class::Metadata),
            ("64:ff9b:1::101:101", Class::Private),
            ("2002:7f00:1::", Class::Loopback),
            ("2002:a9fe:a9fe::1", Class::Metadata),
            ("2002:0101:0101::1", Class::Public),
            // Teredo: client 127.0.0.1 inverted; server 10.0.0.1.
            ("2001:0:101:101:0:0:80ff:fffe", Class::Loopback),
            ("2001:0:a00:1:0:0:fefe:fefe", Class::Private),
            ("2600:1::5efe:7f00:1", Class::Loopback),
            ("2600:1::5efe:101:101", Class::Public),
            // A private or reserved network stays that, whatever it carries.
            ("fd12::5efe:101:101", Class::Private),
            ("fd00:ec2::5efe:101:101", Class::Metadata),
            ("fe80::5efe:101:101", Class::LinkLocal),
            ("fec0::5efe:101:101", Class::Reserved),
            ("ff02::5efe:101:101", Class::Reserved),
        ] {
            assert_eq!(class(text), want, "{text}");
        }
    }

    #[test]
    fn a_network_that_is_private_as_a_whole_says_so() {
        for (text, want) in [
            ("10.0.0.0/8", true),
            ("10.1.2.0/24", true),
            ("192.168.0.0/16", true),
            ("fc00::/7", true),
            ("0.0.0.0/0", false),
            ("10.0.0.0/7", false),
            ("::/0", false),
            ("1.0.0.0/8", false),
            ("169.254.0.0/16", false),
        ] {
            assert_eq!(
                text.parse::<Network>().unwrap().is_private(),
                want,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn wrapping_never_makes_an_address_more_open(bits: u32) {
            let inner = Ipv4Addr::from_bits(bits);
            let want = Places::default().class(inner.into());
            prop_assume!(bits > 1);
            let low = u128::from(bits);
            for outer in [
                (0xffff << 32) | low,
                low,
                (0x0064_ff9b << 96) | low,
                (0x2002 << 112) | (low << 80),
            ] {
                let outer = IpAddr::V6(Ipv6Addr::from_bits(outer));
                prop_assert_eq!(Places::default().class(outer), want, "{}", outer);
            }
        }

        #[test]
        fn a_network_holds_its_ends(bits: u32, prefix in 0u8..=32) {
            let first = Ipv4Addr::from_bits(bits & mask(32, prefix) as u32);
            let network: Network = format!("{first}/{prefix}").parse().unwrap();
            prop_assert!(network.contains(first.into()) && network.contains(network.last()));
            prop_assert!(network.contains(Ipv4Addr::from_bits(bits).into()));
        }
    }
}
