//! One question, one verdict. Pure: rules and facts in, a verdict with its reason out.
//!
//! ```text
//!   name ──► answer ──► connect ──► flight ──► request …
//!   may it be    may this     may it be    is it the    may this be
//!   resolved?    address be   opened?      host it      asked?
//!                told?                     said?
//! ```
//!
//! A later question never allows what an earlier one refused, and each one consults the rules anew:
//! changed rules count at once.

mod request;

use crate::address::{Class, Places};
use crate::host::Host;
use crate::rules::{Allow, Protocol, Rules};
pub use request::{Request, request};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Yes or no, by which rule, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    /// The rule that allowed it.
    pub rule: Option<String>,
    pub reason: Reason,
}

impl Verdict {
    pub(crate) fn yes(allow: &Allow) -> Self {
        Self {
            allowed: true,
            rule: Some(allow.name.clone()),
            reason: Reason::Allowed,
        }
    }

    pub fn no(reason: Reason) -> Self {
        Self {
            allowed: false,
            rule: None,
            reason,
        }
    }
}

/// Why. The words are stable: programs read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A rule allows it.
    Allowed,
    /// No rule names this host.
    HostNotAllowed,
    /// A rule names this host, but not this port.
    PortNotAllowed,
    /// A rule names this host, but not this protocol.
    ProtocolNotAllowed,
    /// A rule names this host, but not for IPv6.
    Ipv6NotAllowed,
    /// The host lets nobody ping without privileges (`net.ipv4.ping_group_range`).
    PingNotPermitted,
    /// Not a host name.
    InvalidName,
    /// `localhost` and its like: names that mean the machine that asks.
    LocalName,
    /// A type of DNS question other than for addresses.
    RecordTypeNotAllowed,
    /// The message could not be understood.
    Malformed,
    /// A private address that no rule names.
    PrivateAddress,
    LoopbackAddress,
    LinkLocalAddress,
    MetadataAddress,
    ReservedAddress,
    /// The host the gateway runs on.
    HostAddress,
    /// The net between sandbox and gateway.
    GatewayAddress,
    /// Neither TLS nor HTTP, and the rule does not allow that.
    UnknownProtocol,
    /// TLS or HTTP that does not say which host it is for.
    NoName,
    /// The name in the connection is not one that was resolved to this address.
    NameMismatch,
    /// No rule on requests allows this one.
    RequestNotAllowed,
    /// A path that servers may read in more than one way.
    AmbiguousPath,
    /// A rule on requests applies, and encryption hides them.
    RequestNotVisible,
    /// The name in the connection may be a cover: the real one is encrypted (ECH).
    NameEncrypted,
    /// A request that would turn the connection into something else.
    UpgradeNotAllowed,
    TooManyConnections,
    TooManyConnects,
    /// More names were asked for than a sandbox may ask for in a second.
    TooManyQuestions,
    /// The sandbox has used up its bytes.
    BytesUsedUp,
    /// Rules that came later do not allow it any more.
    RulesChanged,
    /// The proxy of this host carries connections, and only it knows where this name leads.
    ProxyCarriesTcpOnly,
    /// The proxy of this host cannot be reached.
    ProxyUnreachable,
    /// The proxy of this host did not want to carry it.
    ProxyRefused,
    /// The other side did not take the connection.
    Unreachable,
    Refused,
    TimedOut,
    /// Nothing came for too long.
    Idle,
    /// Closed by its ends.
    Closed,
    /// Cut by one of its ends.
    Reset,
    /// The resolver did not answer, or not usefully.
    NoAnswer,
    /// The gateway ended.
    Stopped,
    /// The host's certificate is not one to trust; nothing was sent.
    CertificateNotTrusted,
    /// TLS of the host failed.
    TlsFailed,
    /// The sandbox broke TLS off: a program there does not trust the border's certificates.
    TlsBrokenOff,
    /// Client and host have no protocol in common that can be looked into.
    NoCommonProtocol,
    /// A head or a body that is too large for secrets to be put into it.
    TooLarge,
    /// A presigned request, which is not signed again.
    Presigned,
    /// A body that is signed in chunks, which are not signed again.
    ChunkSigned,
    /// A signature that was not made with the placeholder.
    SignatureMismatch,
    /// The agent: the connection is bound to no session with a host.
    NoSession,
    /// The agent: the connection comes from a host that the agent was forwarded to.
    AgentForwarded,
    /// The agent: the host did not prove the session with its key.
    SessionNotProven,
    /// The agent: the connection or the data is of another session.
    SessionMismatch,
    /// The agent: no secret is bound to a host with this host key.
    HostKeyNotKnown,
    /// The agent: it does not have this key.
    KeyNotKnown,
    /// The agent: the data is no request to log in over SSH.
    NotALogin,
    /// The agent: an algorithm that is not one of the key.
    AlgorithmNotAllowed,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

/// The destination of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Destination {
    pub address: IpAddr,
    pub port: u16,
    pub protocol: Protocol,
}

/// The protocol of a connection's first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flight {
    /// TLS, with the name in its ClientHello.
    Tls(Option<String>),
    /// The same, with another ClientHello encrypted inside, which may name another host.
    HiddenTls(Option<String>),
    /// HTTP/1, with the host that the request names.
    Http(Option<String>),
    /// HTTP/2 without TLS: the name comes later, compressed.
    Http2,
    /// Anything else.
    Other,
}

/// Whether a name may be resolved. Also returns its normalized form.
pub fn name(rules: &Rules, name: &str) -> (Option<String>, Verdict) {
    let Some(name) = crate::host::normal(name) else {
        return (None, Verdict::no(Reason::InvalidName));
    };
    if name == "localhost" || name.ends_with(".localhost") || name.ends_with(".localdomain") {
        return (Some(name), Verdict::no(Reason::LocalName));
    }
    let allow = rules
        .allow
        .iter()
        .find(|allow| allow.host.covers_name(&name));
    let verdict = allow.map_or(Verdict::no(Reason::HostNotAllowed), Verdict::yes);
    (Some(name), verdict)
}

/// Whether some rule lets a connection to this name and port carry any protocol, such as SSH.
pub fn is_opaque(rules: &Rules, name: &str, port: u16) -> bool {
    rules.allow.iter().any(|allow| {
        allow.host.covers_name(name)
            && allow.protocol == Protocol::Tcp
            && allow.has_port(port)
            && sees_nothing(allow)
    })
}

/// Whether a name that may be resolved may lead to this address.
pub fn answer(rules: &Rules, places: &Places, name: &str, address: IpAddr) -> Verdict {
    let class = places.class(address);
    let mut reason = Reason::HostNotAllowed;
    for allow in rules
        .allow
        .iter()
        .filter(|allow| allow.host.covers_name(name))
    {
        match open(allow, class, address) {
            Ok(()) if !allow.has_family(address) => reason = Reason::Ipv6NotAllowed,
            Ok(()) => return Verdict::yes(allow),
            Err(why) => reason = why,
        }
    }
    // An address that a rule names may be returned under any name that may be resolved.
    let by_address = |allow: &&Allow| {
        !matches!(allow.host, Host::Public)
            && allow.host.covers_address(address)
            && open(allow, class, address).is_ok()
    };
    match rules.allow.iter().find(by_address) {
        Some(allow) if matches!(reason, Reason::PrivateAddress | Reason::Ipv6NotAllowed) => {
            Verdict::yes(allow)
        }
        _ => Verdict::no(reason),
    }
}

/// Whether a connection may be opened. `names` are those that were resolved to its address.
pub fn connect(rules: &Rules, places: &Places, to: &Destination, names: &[String]) -> Verdict {
    match allows(rules, places, to, names) {
        Ok(allows) => Verdict::yes(allows[0]),
        Err(reason) => Verdict::no(reason),
    }
}

/// Whether the first bytes of a connection must be inspected before any of them is sent.
pub fn must_look(rules: &Rules, places: &Places, to: &Destination, names: &[String]) -> bool {
    allows(rules, places, to, names).map_or(true, |allows| {
        !allows.iter().any(|allow| sees_nothing(allow))
    })
}

/// Whether a connection may continue, now that its protocol is known. For HTTP/1, [`request`] also
/// judges every request.
pub fn flight(
    rules: &Rules,
    places: &Places,
    to: &Destination,
    names: &[String],
    flight: &Flight,
) -> Verdict {
    let allows = match allows(rules, places, to, names) {
        Ok(allows) => allows,
        Err(reason) => return Verdict::no(reason),
    };
    let mut reason = None;
    for allow in allows {
        match carries(allow, to, names, flight) {
            Ok(()) => return Verdict::yes(allow),
            Err(why) => reason = reason.or(Some(why)),
        }
    }
    Verdict::no(reason.unwrap_or(Reason::HostNotAllowed))
}

/// The rules that allow a connection (at least one), or the reason why there is none.
fn allows<'a>(
    rules: &'a Rules,
    places: &Places,
    to: &Destination,
    names: &[String],
) -> Result<Vec<&'a Allow>, Reason> {
    let class = places.class(to.address);
    if let Some(reason) = closed(class) {
        return Err(reason);
    }
    let mut found = Vec::new();
    // Report the reason of the rule that matched best.
    let mut reason = Reason::HostNotAllowed;
    for allow in &rules.allow {
        let named = names.iter().any(|name| allow.host.covers_name(name));
        let stands_in = places.stands_in(to.address);
        if !allow.covers(to.address, names) || (stands_in && !named) {
            if named || (allow.host.covers_address(to.address) && !stands_in) {
                reason = nearest(reason, Reason::Ipv6NotAllowed);
            }
            continue;
        }
        if allow.protocol != to.protocol {
            reason = nearest(reason, Reason::ProtocolNotAllowed);
        } else if to.protocol != Protocol::Icmp && !allow.has_port(to.port) {
            reason = nearest(reason, Reason::PortNotAllowed);
        } else if let Err(why) = open(allow, class, to.address) {
            reason = why;
        } else {
            found.push(allow);
        }
    }
    if found.is_empty() {
        Err(reason)
    } else {
        Ok(found)
    }
}

fn nearest(before: Reason, now: Reason) -> Reason {
    match before {
        Reason::HostNotAllowed => now,
        _ => before,
    }
}

/// Whether a rule that covers an address may open its class.
fn open(allow: &Allow, class: Class, address: IpAddr) -> Result<(), Reason> {
    if let Some(reason) = closed(class) {
        return Err(reason);
    }
    let named = match &allow.host {
        Host::Address(own) => *own == address,
        Host::Network(network) => network.is_private(),
        Host::Name(_) => allow.private,
        Host::Public | Host::Below(_) => false,
    };
    if class == Class::Private && !named {
        return Err(Reason::PrivateAddress);
    }
    Ok(())
}

/// The reason why no rule can open a class.
fn closed(class: Class) -> Option<Reason> {
    Some(match class {
        Class::Public | Class::Private => return None,
        Class::Reserved => Reason::ReservedAddress,
        Class::LinkLocal => Reason::LinkLocalAddress,
        Class::Metadata => Reason::MetadataAddress,
        Class::Gateway => Reason::GatewayAddress,
        Class::Host => Reason::HostAddress,
        Class::Loopback => Reason::LoopbackAddress,
    })
}

/// Whether a rule allows any protocol, so that nothing need be inspected.
fn sees_nothing(allow: &Allow) -> bool {
    allow.opaque && allow.http.is_empty()
}

fn carries(
    allow: &Allow,
    to: &Destination,
    names: &[String],
    flight: &Flight,
) -> Result<(), Reason> {
    if sees_nothing(allow) {
        return Ok(());
    }
    if !allow.http.is_empty() {
        match flight {
            Flight::Http(_) => {}
            Flight::Tls(_) | Flight::HiddenTls(_) | Flight::Http2 => {
                return Err(Reason::RequestNotVisible);
            }
            Flight::Other => return Err(Reason::UnknownProtocol),
        }
    }
    match flight {
        Flight::Other => Err(Reason::UnknownProtocol),
        // With `*` a connection must still name its host.
        Flight::Tls(None) | Flight::HiddenTls(None) | Flight::Http(None)
            if allow.host == Host::Public =>
        {
            Err(Reason::NoName)
        }
        // A host allowed by address may have any name, or none.
        _ if allow.covers_address(to.address) => Ok(()),
        Flight::Http2 | Flight::Tls(None) | Flight::Http(None) => Err(Reason::NoName),
        // A rule by name cannot be kept where the name is not to be seen.
        Flight::HiddenTls(_) => Err(Reason::NameEncrypted),
        Flight::Tls(Some(name)) | Flight::Http(Some(name)) => {
            named(allow, names, name).ok_or(Reason::NameMismatch)
        }
    }
}

/// Whether a name resolved to this address and is covered by the rule. It must be written as it is
/// compared: a server may take `example.com.` for another host than `example.com`.
fn named(allow: &Allow, names: &[String], given: &str) -> Option<()> {
    let name = crate::host::normal(given).filter(|name| name.eq_ignore_ascii_case(given))?;
    (names.contains(&name) && allow.host.covers_name(&name)).then_some(())
}

/// Why a connection that was allowed is not any more: the rules, or the address is the host's now.
pub(crate) fn why_ended(places: &Places, to: &Destination) -> Reason {
    closed(places.class(to.address)).unwrap_or(Reason::RulesChanged)
}

#[cfg(test)]
mod tests;
