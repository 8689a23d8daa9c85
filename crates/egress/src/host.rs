//! The subject of a rule: a name, a family of names, an address, a network, or everyone.

use crate::address::Network;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The longest name DNS can carry, as text.
const NAME: usize = 253;
const LABEL: usize = 63;

/// The hosts a rule allows. Parsed from text and printed as the same text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    /// `*`: the public internet.
    Public,
    /// `example.com`: this name and no other.
    Name(String),
    /// `*.example.com`: every name below it, not itself.
    Below(String),
    /// One address.
    Address(IpAddr),
    /// A network in CIDR notation.
    Network(Network),
}

/// Text that is none of the forms of a [`Host`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host: want *, a name, *.name, an address or a network such as 10.0.0.0/8")]
pub struct NotAHost(pub String);

impl Host {
    /// Whether it covers a normalized name (see [`normal`]).
    ///
    /// `*` does not include names without a dot: those depend on the host's search domain.
    pub fn covers_name(&self, name: &str) -> bool {
        match self {
            Host::Public => name.contains('.'),
            Host::Name(own) => own == name,
            Host::Below(suffix) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Host::Address(_) | Host::Network(_) => false,
        }
    }

    /// Whether it covers an address without any name.
    pub fn covers_address(&self, address: IpAddr) -> bool {
        match self {
            Host::Public => true,
            Host::Address(own) => *own == address,
            Host::Network(network) => network.contains(address),
            Host::Name(_) | Host::Below(_) => false,
        }
    }
}

impl FromStr for Host {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        let refused = || NotAHost(text.to_owned());
        if text == "*" {
            return Ok(Host::Public);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Host::Address(address));
        }
        if text.contains('/') {
            return text.parse().map(Host::Network).map_err(|_| refused());
        }
        match text.strip_prefix("*.") {
            Some(suffix) => normal(suffix).map(Host::Below),
            None => normal(text).map(Host::Name),
        }
        .ok_or_else(refused)
    }
}

impl TryFrom<String> for Host {
    type Error = NotAHost;

    fn try_from(text: String) -> Result<Self, NotAHost> {
        text.parse()
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Public => out.write_str("*"),
            Host::Name(name) => out.write_str(name),
            Host::Below(suffix) => write!(out, "*.{suffix}"),
            Host::Address(address) => write!(out, "{address}"),
            Host::Network(network) => write!(out, "{network}"),
        }
    }
}

/// Normalizes a name: lower case, no trailing dot. `None` if it is no host name: odd characters,
/// empty or overlong labels, and numbers that programs parse as addresses.
pub fn normal(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > NAME {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let plain = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
    };
    if !name.split('.').all(plain) {
        return None;
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    // `1.2.3.4`, `0x7f000001`, `2130706433`: forms of an address.
    let number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    (!number).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_prints_as_it_was_read() {
        for text in [
            "*",
            "example.com",
            "*.example.com",
            "1.2.3.4",
            "2001:db8::1",
            "10.0.0.0/8",
            "fd00::/8",
        ] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
        }
        assert_eq!(
            "Example.COM.".parse::<Host>().unwrap().to_string(),
            "example.com"
        );
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "**",
            "a*.example.com",
            "*.*.com",
            "exa mple.com",
            "a..b",
            "-a.com",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.1/8",
            "2130706433",
            "0x7f000001",
            "1.2.3",
            "é.com",
            "http://example.com",
            "example.com:443",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn below_is_not_beside() {
        let host: Host = "*.example.com".parse().unwrap();
        assert!(host.covers_name("a.example.com"));
        assert!(host.covers_name("a.b.example.com"));
        assert!(!host.covers_name("example.com"));
        assert!(!host.covers_name(".example.com"));
        assert!(!host.covers_name("evilexample.com"));
        assert!(!host.covers_name("example.com.evil.org"));
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_printing_reads_back(text in ".{0,300}") {
            if let Ok(host) = text.parse::<Host>() {
                prop_assert_eq!(host.to_string().parse::<Host>().unwrap(), host);
            }
        }

        #[test]
        fn a_normal_name_is_its_own_normal_form(text in "[a-zA-Z0-9_.-]{1,80}") {
            if let Some(name) = normal(&text) {
                let again = normal(&name);
                prop_assert_eq!(again.as_deref(), Some(name.as_str()));
            }
        }
    }
}
