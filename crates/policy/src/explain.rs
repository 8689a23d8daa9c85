//! Evaluates policies without a network.

use crate::file::Known;
use motu_core::call::CallDestination;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::policy::{ExplainPolicy, Explained};
use motu_core::{Error, ErrorKind, Result};
use motu_egress::address::Places;
use motu_egress::host::Host;
use motu_egress::judge::{self, Destination, Reason, Verdict};
use motu_egress::rules::{Allow, PortRange, Protocol, Rules};
use std::net::{IpAddr, Ipv4Addr};

/// A placeholder for the address a name may resolve to.
const SOMEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1));

/// Whether a destination may be reached, by which rule, and why.
pub fn explain(known: &Known, ask: &ExplainPolicy) -> Result<Explained> {
    let protocol = protocol(&ask.protocol)?;
    let verdict = judge(&known.rules, &ask.host, ask.port, protocol);
    Ok(Explained {
        policy: known.reference(),
        host: ask.host.clone(),
        port: ask.port,
        protocol: ask.protocol.clone(),
        allowed: verdict.allowed,
        message: message(known, ask, &verdict),
        rule: verdict.rule,
        reason: verdict.reason.to_string(),
    })
}

fn protocol(text: &str) -> Result<Protocol> {
    let all = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp];
    let found = all.into_iter().find(|one| one.to_string() == text);
    found.ok_or_else(|| {
        Error::invalid(format!("there is no protocol {text:?}")).hint("one of: tcp, udp, icmp")
    })
}

/// Judges a destination. A name is assumed to resolve to a public address; the real address is
/// checked when it is resolved.
fn judge(rules: &Rules, host: &str, port: u16, protocol: Protocol) -> Verdict {
    let places = Places::default();
    let to = |address| Destination {
        address,
        port,
        protocol,
    };
    if let Ok(address) = host.parse() {
        return judge::connect(rules, &places, &to(address), &[]);
    }
    match judge::name(rules, host) {
        (Some(name), verdict) if verdict.allowed => {
            judge::connect(rules, &places, &to(SOMEWHERE), &[name])
        }
        (_, verdict) => verdict,
    }
}

fn message(known: &Known, ask: &ExplainPolicy, verdict: &Verdict) -> String {
    let ExplainPolicy {
        host,
        port,
        protocol,
    } = ask;
    let what = format!("{host}:{port}/{protocol}");
    let policy = &known.policy.name;
    match (&verdict.rule, verdict.reason) {
        (Some(rule), _) => format!("{what} is allowed by {rule}"),
        (None, Reason::HostNotAllowed) => format!("no rule of {policy} names {host}"),
        (None, Reason::PortNotAllowed) => {
            format!("{policy} names {host}, but not its port {port}")
        }
        (None, Reason::ProtocolNotAllowed) => {
            format!("{policy} names {host}, but not for {protocol}")
        }
        (None, Reason::Ipv6NotAllowed) => {
            format!("{policy} names {host}, but not for IPv6")
        }
        (None, Reason::PrivateAddress) => {
            format!("{host} is private, and {policy} does not name it")
        }
        (None, reason) => format!("{what} is closed, whatever a policy says: {reason}"),
    }
}

/// The rules of a call that requests less than its policy allows. A destination that the policy
/// does not allow is refused: a call never widens its policy.
pub fn narrow(known: &Known, wanted: &[CallDestination]) -> Result<Rules> {
    let mut allow = Vec::new();
    for CallDestination { host, port } in wanted {
        let verdict = judge(&known.rules, host, *port, Protocol::Tcp);
        let rule = matching(&known.rules, host, *port).filter(|_| verdict.allowed);
        let Some(rule) = rule else {
            let (policy, reason) = (&known.policy.name, verdict.reason);
            return Err(Error::new(
                ErrorKind::Denied,
                format!("the policy {policy} does not allow {host}:{port}: {reason}"),
            )
            .hint(hint![
                verb("explain_policy")
                    .with("name", policy.as_str())
                    .with("host", host.as_str())
                    .with("port", *port),
                " says more",
            ]));
        };
        let host: Host = host
            .parse()
            .map_err(|error| Error::invalid(format!("network.allow: {error}")))?;
        allow.push(Allow {
            host,
            ports: vec![(*port).into()],
            ..rule.clone()
        });
    }
    Ok(Rules {
        allow,
        ..known.rules.clone()
    })
}

/// The rules for a subset of the hosts that a policy allows: each a name, `*.name` or an address,
/// with `:PORT` or with all ports that the policy allows there. A host that the policy does not
/// allow is refused: a list of hosts never widens the policy.
pub fn only(known: &Known, hosts: &[String]) -> Result<Rules> {
    let mut allow = Vec::new();
    for text in hosts {
        let (host, port) = host_and_port(text)?;
        let before = allow.len();
        for rule in &known.rules.allow {
            let Some(ports) = ports_of(rule, port).filter(|_| covers(rule, &host)) else {
                continue;
            };
            // A rule for an address opens it even if it is private, so check that the policy allows
            // it.
            if let Host::Address(address) = host {
                let port = ports.first().map_or(ANY_PORT, |range| range.first());
                let verdict = judge(&known.rules, &address.to_string(), port, rule.protocol);
                if !verdict.allowed {
                    continue;
                }
            }
            // Connections to named hosts are inspected on ports 80 and 443; on an explicit other
            // port any protocol is allowed if the policy allows it.
            let looked_into = rule.host == Host::Public && matches!(port, None | Some(80 | 443));
            allow.push(Allow {
                host: host.clone(),
                ports,
                opaque: rule.opaque && !looked_into,
                ..rule.clone()
            });
        }
        if allow.len() == before {
            let policy = &known.policy.name;
            return Err(Error::new(
                ErrorKind::Denied,
                format!("the policy {policy} does not allow {text}"),
            )
            .hint(hint![
                verb("get_policy").with("name", policy.as_str()),
                " says what it allows"
            ]));
        }
    }
    Ok(Rules {
        allow,
        ..known.rules.clone()
    })
}

/// The port to check when a rule has none.
const ANY_PORT: u16 = 443;

/// Parses an entry of a list of hosts.
fn host_and_port(text: &str) -> Result<(Host, Option<u16>)> {
    let wrong = || {
        let text: String = text.chars().take(80).collect();
        Error::invalid(format!("{text:?} is not a host that can be allowed"))
            .hint("a name, *.name or an address, perhaps with :PORT, such as api.example.com:443")
    };
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match (bare, text.rsplit_once(':')) {
        (Some((host, "")), _) => (host, None),
        (Some((host, port)), _) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        // More than one colon without brackets: an IPv6 address.
        (None, Some((host, port))) if !host.contains(':') => (host, Some(port)),
        (None, _) => (text, None),
    };
    let port = match port.map(str::parse) {
        None => None,
        Some(Ok(0)) | Some(Err(_)) => return Err(wrong()),
        Some(Ok(port)) => Some(port),
    };
    match host.parse() {
        Ok(Host::Public | Host::Network(_)) | Err(_) => Err(wrong()),
        Ok(host) => Ok((host, port)),
    }
}

/// The ports of a rule, or the requested one if it is among them.
fn ports_of(rule: &Allow, wanted: Option<u16>) -> Option<Vec<PortRange>> {
    let Some(port) = wanted else {
        return Some(rule.ports.clone());
    };
    let open = rule.ports.is_empty() || rule.ports.iter().any(|range| range.contains(port));
    open.then(|| vec![port.into()])
}

/// Whether a rule covers this host completely.
fn covers(rule: &Allow, host: &Host) -> bool {
    match (host, &rule.host) {
        (Host::Name(name), own) => own.covers_name(name),
        (Host::Below(suffix), Host::Public) => suffix.contains('.'),
        (Host::Below(suffix), Host::Below(own)) => suffix == own || rule.host.covers_name(suffix),
        (Host::Address(address), _) => rule.covers_address(*address),
        _ => false,
    }
}

/// The first rule for TCP that covers a destination.
fn matching<'a>(rules: &'a Rules, host: &str, port: u16) -> Option<&'a Allow> {
    let covers = |allow: &Allow| match host.parse() {
        Ok(address) => allow.covers_address(address),
        Err(_) => {
            let name = motu_egress::host::normal(host);
            name.is_some_and(|name| allow.host.covers_name(&name))
        }
    };
    rules.allow.iter().find(|allow| {
        let ports = &allow.ports;
        let port = ports.is_empty() || ports.iter().any(|range| range.contains(port));
        allow.protocol == Protocol::Tcp && port && covers(allow)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn known() -> Known {
        parse(
            "p",
            "file",
            "version = 1\n[[allow]]\ncapability = \"api\"\nhosts = [\"api.example.com\", \"*.cdn.example\"]\n\
             ports = [443]\n[[allow]]\ncapability = \"own\"\nhosts = [\"10.1.0.0/16\"]\nopaque = true",
        )
        .unwrap()
    }

    fn ask(host: &str, port: u16) -> (bool, String) {
        let ask = ExplainPolicy {
            host: host.to_string(),
            port,
            ..ExplainPolicy::default()
        };
        let explained = explain(&known(), &ask).unwrap();
        assert!(!explained.message.is_empty());
        (
            explained.allowed,
            explained.rule.unwrap_or(explained.reason),
        )
    }

    #[test]
    fn every_answer_names_its_rule_or_its_reason() {
        for (host, port, allowed, word) in [
            ("api.example.com", 443, true, "p.api"),
            ("API.Example.com.", 443, true, "p.api"),
            ("api.example.com", 80, false, "port_not_allowed"),
            ("x.cdn.example", 443, true, "p.api"),
            ("cdn.example", 443, false, "host_not_allowed"),
            ("other.example", 443, false, "host_not_allowed"),
            ("10.1.2.3", 5432, true, "p.own"),
            ("10.2.2.3", 5432, false, "host_not_allowed"),
            ("localhost", 443, false, "local_name"),
            ("127.0.0.1", 443, false, "loopback_address"),
            ("169.254.169.254", 80, false, "metadata_address"),
            ("::ffff:169.254.169.254", 80, false, "metadata_address"),
        ] {
            assert_eq!(
                ask(host, port),
                (allowed, word.to_string()),
                "{host}:{port}"
            );
        }
    }

    #[test]
    fn protocols_have_names() {
        let ask = |protocol: &str| ExplainPolicy {
            host: "api.example.com".to_string(),
            protocol: protocol.to_string(),
            ..ExplainPolicy::default()
        };
        let explained = explain(&known(), &ask("udp")).unwrap();
        assert_eq!(explained.reason, "protocol_not_allowed");
        assert!(explain(&known(), &ask("quic")).is_err());
    }

    #[test]
    fn a_call_gets_what_it_names_and_no_more() {
        let to = |host: &str, port| CallDestination {
            host: host.to_string(),
            port,
        };
        let rules = narrow(&known(), &[to("x.cdn.example", 443), to("10.1.0.1", 22)]).unwrap();
        assert_eq!(rules.allow.len(), 2);
        assert!(judge(&rules, "x.cdn.example", 443, Protocol::Tcp).allowed);
        assert!(!judge(&rules, "y.cdn.example", 443, Protocol::Tcp).allowed);
        assert!(!judge(&rules, "api.example.com", 443, Protocol::Tcp).allowed);
        assert!(rules.allow[1].opaque && !rules.allow[0].opaque);
        for (host, port) in [
            ("evil.example", 443),
            ("api.example.com", 80),
            ("127.0.0.1", 22),
        ] {
            let error = narrow(&known(), &[to(host, port)]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{host}:{port}");
        }
        assert_eq!(narrow(&known(), &[]).unwrap().allow, []);
    }

    fn hosts(hosts: &[&str]) -> Vec<String> {
        hosts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_of_hosts_opens_what_the_policy_allows_of_them_and_no_more() {
        let named = hosts(&["api.example.com", "*.x.cdn.example:443", "10.1.0.1:22"]);
        let rules = only(&known(), &named).unwrap();
        let allowed = |host, port| judge(&rules, host, port, Protocol::Tcp).allowed;
        assert!(allowed("api.example.com", 443) && !allowed("api.example.com", 80));
        assert!(allowed("a.x.cdn.example", 443) && !allowed("x.cdn.example", 443));
        assert!(allowed("10.1.0.1", 22) && !allowed("10.1.0.1", 23) && !allowed("10.1.0.2", 22));
        for host in [
            "evil.example",
            "api.example.com:80",
            "*.example",
            "cdn.example",
            "10.2.0.1",
        ] {
            let error = only(&known(), &hosts(&[host])).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{host}");
        }
    }

    #[test]
    fn a_list_of_hosts_under_everything_public_opens_nothing_private() {
        let text = "version = 1\n[[allow]]\ncapability = \"all\"\nhosts = [\"*\"]\nopaque = true";
        let public = parse("p", "file", text).unwrap();
        let rules = only(
            &public,
            &hosts(&["example.com", "example.com:22", "1.2.3.4"]),
        )
        .unwrap();
        let opaque: Vec<bool> = rules.allow.iter().map(|allow| allow.opaque).collect();
        assert_eq!(opaque, [false, true, false]);
        for host in ["10.1.2.3", "127.0.0.1", "169.254.169.254", "localhost"] {
            let error = only(&public, &hosts(&[host])).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_as_such() {
        for text in [
            "",
            "*",
            "10.0.0.0/8",
            "a b",
            "x.example:0",
            "x.example:http",
            "[::1",
            "a:b:c",
        ] {
            let error = only(&known(), &hosts(&[text])).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid, "{text}");
        }
    }
}
