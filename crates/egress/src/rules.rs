//! Rules: what a sandbox may reach, as data.
//!
//! Only what some [`Allow`] allows is allowed. Hosts and ports are serialized as the text people
//! write; every field is always serialized, so that postcard and JSON read the same.

use crate::host::Host;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// What one sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The name of the policy, for display.
    pub policy: String,
    #[serde(default)]
    pub allow: Vec<Allow>,
    #[serde(default)]
    pub limits: Limits,
    /// The proxy to use: `none`, or one as [`crate::proxy::Proxy::parse`] reads it, without
    /// credentials. Empty: the host's own.
    #[serde(default)]
    pub proxy: String,
}

impl Rules {
    /// Rules that allow nothing.
    pub fn none() -> Self {
        Self {
            policy: "none".to_owned(),
            allow: Vec::new(),
            limits: Limits::default(),
            proxy: String::new(),
        }
    }

    /// Rules for the public internet over TCP and its names, without private networks.
    pub fn public() -> Self {
        Self {
            policy: "public".to_owned(),
            allow: vec![Allow {
                opaque: true,
                ..Allow::new("public", Host::Public)
            }],
            limits: Limits::default(),
            proxy: String::new(),
        }
    }

    /// Whether some IPv6 address may be reached.
    pub fn lead_to_v6(&self) -> bool {
        self.allow.iter().any(Allow::leads_to_v6)
    }

    /// Whether AAAA records of a name are worth querying.
    pub(crate) fn name_leads_to_v6(&self, name: &str) -> bool {
        // An address that a rule names may be returned under any name.
        let named = |allow: &Allow| matches!(allow.host, Host::Address(_) | Host::Network(_));
        self.allow
            .iter()
            .any(|allow| allow.leads_to_v6() && (named(allow) || allow.host.covers_name(name)))
    }
}

/// One allowed destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// Shown in decisions: which rule it was.
    pub name: String,
    pub host: Host,
    /// Empty: every port.
    #[serde(default)]
    pub ports: Vec<PortRange>,
    #[serde(default)]
    pub protocol: Protocol,
    /// Requests of plain HTTP that are allowed. Empty: any.
    #[serde(default)]
    pub http: Vec<HttpRule>,
    /// Whether a connection may carry what is neither TLS that names its host nor HTTP: for SSH,
    /// databases, Git's own protocol. Such a connection is not looked into at all.
    #[serde(default)]
    pub opaque: bool,
    /// Whether an exact name may lead to a private address. An address or a network that is
    /// private needs no such word: it is named already.
    #[serde(default)]
    pub private: bool,
    /// Whether a name, or `*`, may lead to addresses of IPv6 too. An address or a network of IPv6
    /// needs no such word.
    #[serde(default)]
    pub ipv6: bool,
}

impl Allow {
    /// TCP to a host, on every port.
    pub fn new(name: impl Into<String>, host: Host) -> Self {
        Self {
            name: name.into(),
            host,
            ports: Vec::new(),
            protocol: Protocol::Tcp,
            http: Vec::new(),
            opaque: false,
            private: false,
            ipv6: false,
        }
    }

    /// Whether it covers an address, directly or by a name that resolved to it.
    pub(crate) fn covers(&self, address: IpAddr, names: &[String]) -> bool {
        self.covers_address(address)
            || (self.has_family(address) && names.iter().any(|name| self.host.covers_name(name)))
    }

    /// Whether it covers an address without any name.
    pub fn covers_address(&self, address: IpAddr) -> bool {
        match self.host {
            Host::Public => self.has_family(address),
            _ => self.host.covers_address(address),
        }
    }

    /// Whether names of this rule may resolve to this address family.
    pub(crate) fn has_family(&self, address: IpAddr) -> bool {
        address.is_ipv4() || self.ipv6
    }

    /// Whether it can reach some IPv6 address.
    fn leads_to_v6(&self) -> bool {
        match &self.host {
            Host::Address(address) => address.is_ipv6(),
            Host::Network(network) => network.is_v6(),
            _ => self.ipv6,
        }
    }

    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|range| range.contains(port))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
    Icmp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
        })
    }
}

/// `443`, or `8000-8100`, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Text that is no port and no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a port: want a number from 1 to 65535, or FIRST-LAST")]
pub struct NotAPort(pub String);

impl PortRange {
    pub fn first(self) -> u16 {
        self.first
    }

    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }
}

impl FromStr for PortRange {
    type Err = NotAPort;

    fn from_str(text: &str) -> Result<Self, NotAPort> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        match (number(first), number(last)) {
            (Some(first), Some(last)) if 0 < first && first <= last => Ok(Self { first, last }),
            _ => Err(NotAPort(text.to_owned())),
        }
    }
}

impl TryFrom<String> for PortRange {
    type Error = NotAPort;

    fn try_from(text: String) -> Result<Self, NotAPort> {
        text.parse()
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(out, "{}", self.first)
        } else {
            write!(out, "{}-{}", self.first, self.last)
        }
    }
}

/// Requests of plain HTTP. Everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRule {
    /// Empty: any.
    #[serde(default)]
    pub methods: Vec<String>,
    /// A prefix at a `/`, or with `*` a pattern of the whole path, in which `*` stands for anything.
    /// Empty: any.
    #[serde(default)]
    pub path: String,
    /// Each must be in the query.
    #[serde(default)]
    pub query: Vec<Field>,
    /// Each must be among the headers.
    #[serde(default)]
    pub header: Vec<Field>,
}

/// A name and what its value must look like; `*` stands for anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    pub name: String,
    pub value: String,
}

/// How much of it. Zero means no limit, except for `connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: u32,
    /// New connections in one second.
    pub connects_per_second: u32,
    /// Both directions together.
    pub bytes_per_second: u64,
    /// Both directions together, over the life of the sandbox's gateway.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connects_per_second: 0,
            bytes_per_second: 0,
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read_and_defaults_are_filled_in() {
        let rules: Rules = serde_json::from_str(
            r#"{"policy": "packages", "allow": [
                {"name": "pypi", "host": "*.pypi.org", "ports": ["443", "8000-8100"]},
                {"name": "own", "host": "10.1.0.0/16", "protocol": "udp", "http": [{"methods": ["GET"]}]}
            ], "limits": {"bytes": 10}}"#,
        )
        .unwrap();
        assert!(rules.allow[0].has_port(8050) && !rules.allow[0].has_port(80));
        assert_eq!(rules.allow[1].protocol, Protocol::Udp);
        assert_eq!(rules.limits.connections, 1024);
        assert_eq!(rules.limits.bytes, 10);
    }

    #[test]
    fn both_formats_give_back_what_they_were_given() {
        let mut rules = Rules::public();
        rules.allow.push(Allow {
            ports: vec![443.into(), "1-9".parse().unwrap()],
            http: vec![HttpRule {
                path: "/v1/*".to_owned(),
                header: vec![Field {
                    name: "accept".to_owned(),
                    value: "*".to_owned(),
                }],
                ..HttpRule::default()
            }],
            ..Allow::new("x", "a.example".parse().unwrap())
        });
        let bytes = postcard::to_allocvec(&rules).unwrap();
        assert_eq!(postcard::from_bytes::<Rules>(&bytes).unwrap(), rules);
        let text = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            r#"{"policy": "p", "alow": []}"#,
            r#"{"policy": "p", "allow": [{"name": "n", "host": "a b"}]}"#,
            r#"{"policy": "p", "allow": [{"name": "n", "host": "*", "ports": ["0"]}]}"#,
            r#"{"policy": "p", "allow": [{"name": "n", "host": "*", "ports": ["9-1"]}]}"#,
            r#"{"policy": "p", "allow": [{"name": "n", "host": "*", "ports": ["+1"]}]}"#,
            r#"{"policy": "p", "limits": {"speed": 1}}"#,
        ] {
            assert!(serde_json::from_str::<Rules>(text).is_err(), "{text}");
        }
    }
}
