use super::*;
use crate::address::Network;
use crate::rules::{Field, HttpRule, PortRange};
use proptest::prelude::*;

fn rules(allow: Vec<Allow>) -> Rules {
    Rules {
        allow,
        ..Rules::none()
    }
}

fn allow(host: &str) -> Allow {
    Allow::new(host, host.parse().unwrap())
}

fn places() -> Places {
    Places {
        host: vec!["11.0.0.1".parse().unwrap()],
        gateway: vec![Network::v4(10, 107, 0, 0, 24)],
        stand_ins: None,
    }
}

fn to(address: &str, port: u16) -> Destination {
    Destination {
        address: address.parse().unwrap(),
        port,
        protocol: Protocol::Tcp,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn reason(verdict: Verdict) -> Reason {
    assert_eq!(verdict.allowed, verdict.reason == Reason::Allowed);
    assert_eq!(verdict.allowed, verdict.rule.is_some());
    verdict.reason
}

#[test]
fn reasons_are_words() {
    assert_eq!(Reason::HostNotAllowed.to_string(), "host_not_allowed");
    assert_eq!(Reason::TooManyConnects.to_string(), "too_many_connects");
}

#[test]
fn only_names_of_the_rules_are_resolved() {
    let rules = rules(vec![
        allow("example.com"),
        allow("*.pypi.org"),
        allow("1.2.3.4"),
    ]);
    for (asked, want) in [
        ("example.com", Reason::Allowed),
        ("EXAMPLE.com.", Reason::Allowed),
        ("files.pypi.org", Reason::Allowed),
        ("pypi.org", Reason::HostNotAllowed),
        ("secret.in.a.name.example.com", Reason::HostNotAllowed),
        ("localhost", Reason::LocalName),
        ("x.localhost", Reason::LocalName),
        ("a b.com", Reason::InvalidName),
        ("", Reason::InvalidName),
        ("2130706433", Reason::InvalidName),
    ] {
        assert_eq!(reason(name(&rules, asked).1), want, "{asked}");
    }
    assert_eq!(
        reason(name(&Rules::public(), "intranet").1),
        Reason::HostNotAllowed
    );
    assert_eq!(
        reason(name(&Rules::public(), "any.thing").1),
        Reason::Allowed
    );
}

#[test]
fn a_name_that_leads_somewhere_private_leads_nowhere() {
    let mut own = allow("registry.corp.example");
    own.private = true;
    let rules = rules(vec![allow("*.example.com"), own, allow("10.9.0.0/16")]);
    let ask =
        |name, address: &str| reason(answer(&rules, &places(), name, address.parse().unwrap()));
    assert_eq!(ask("a.example.com", "11.22.33.44"), Reason::Allowed);
    assert_eq!(ask("a.example.com", "10.0.0.1"), Reason::PrivateAddress);
    assert_eq!(ask("a.example.com", "127.0.0.1"), Reason::LoopbackAddress);
    assert_eq!(
        ask("a.example.com", "169.254.169.254"),
        Reason::MetadataAddress
    );
    assert_eq!(
        ask("a.example.com", "::ffff:127.0.0.1"),
        Reason::LoopbackAddress
    );
    assert_eq!(ask("a.example.com", "11.0.0.1"), Reason::HostAddress);
    assert_eq!(ask("a.example.com", "10.107.0.2"), Reason::GatewayAddress);
    // Private, but allowed by a rule for its network.
    assert_eq!(ask("a.example.com", "10.9.1.1"), Reason::Allowed);
    // Allowed as private by the rule, which does not open addresses that are never open.
    assert_eq!(ask("registry.corp.example", "10.0.0.1"), Reason::Allowed);
    assert_eq!(
        ask("registry.corp.example", "127.0.0.1"),
        Reason::LoopbackAddress
    );
}

#[test]
fn everybody_is_the_public_internet() {
    let rules = Rules::public();
    let ask = |address: &str| reason(connect(&rules, &places(), &to(address, 80), &[]));
    assert_eq!(ask("1.1.1.1"), Reason::Allowed);
    assert_eq!(ask("10.0.0.1"), Reason::PrivateAddress);
    assert_eq!(ask("192.0.2.7"), Reason::PrivateAddress);
    assert_eq!(ask("127.0.0.1"), Reason::LoopbackAddress);
    assert_eq!(ask("169.254.169.254"), Reason::MetadataAddress);
    assert_eq!(ask("::ffff:169.254.169.254"), Reason::MetadataAddress);
    assert_eq!(ask("11.0.0.1"), Reason::HostAddress);
    // IPv6 needs its own permission in a rule, or a rule that names the address.
    assert_eq!(ask("2600::1"), Reason::Ipv6NotAllowed);
    let mut both = rules.clone();
    both.allow[0].ipv6 = true;
    let ask = |address: &str| reason(connect(&both, &places(), &to(address, 80), &[]));
    assert_eq!(ask("2600::1"), Reason::Allowed);
    assert_eq!(ask("::ffff:10.0.0.1"), Reason::PrivateAddress);
    assert_eq!(ask("fd01::1"), Reason::PrivateAddress);
    assert_eq!(ask("64:ff9b::7f00:1"), Reason::LoopbackAddress);
    let datagram = Destination {
        protocol: Protocol::Udp,
        ..to("1.1.1.1", 53)
    };
    assert_eq!(
        reason(connect(&rules, &places(), &datagram, &[])),
        Reason::ProtocolNotAllowed
    );
}

#[test]
fn an_address_that_stands_for_a_name_is_judged_by_the_name_alone() {
    let known = rules(vec![
        Allow {
            ports: vec![443.into()],
            ..allow("a.example")
        },
        allow("198.18.0.0/15"),
        Allow {
            opaque: true,
            ..allow("*")
        },
    ]);
    let there = Places {
        stand_ins: Some(Network::v4(198, 18, 0, 0, 15)),
        ..places()
    };
    let names = ["a.example".to_owned()];
    let ask = |count: usize, names: &[String], port| {
        let mut rules = known.clone();
        rules.allow.truncate(count);
        reason(connect(&rules, &there, &to("198.18.0.1", port), names))
    };
    assert_eq!(ask(1, &names, 443), Reason::Allowed);
    // A rule for the placeholder addresses does not apply to the names behind them.
    assert_eq!(ask(2, &names, 80), Reason::PortNotAllowed);
    assert_eq!(ask(3, &names, 80), Reason::Allowed);
    // Without a name a placeholder address has no meaning.
    assert_eq!(ask(3, &[], 443), Reason::HostNotAllowed);
    // Without a proxy these are ordinary addresses.
    let plain = connect(&known, &places(), &to("198.18.0.1", 80), &[]);
    assert_eq!(reason(plain), Reason::Allowed);
}

#[test]
fn a_name_leads_to_ipv6_only_where_its_rule_says_so() {
    let mut known = rules(vec![allow("a.example"), allow("2600:5::/32")]);
    let told = |rules: &Rules, address: &str| {
        let address = address.parse().unwrap();
        reason(answer(rules, &places(), "a.example", address))
    };
    assert_eq!(told(&known, "2600::1"), Reason::Ipv6NotAllowed);
    // An address that a rule names may be returned for any name.
    assert_eq!(told(&known, "2600:5::1"), Reason::Allowed);
    assert!(known.name_leads_to_v6("a.example") && known.lead_to_v6());
    known.allow.truncate(1);
    assert!(!known.name_leads_to_v6("a.example") && !known.lead_to_v6());
    known.allow[0].ipv6 = true;
    assert!(known.name_leads_to_v6("a.example") && !known.name_leads_to_v6("b.example"));
    assert_eq!(told(&known, "2600::1"), Reason::Allowed);
    assert_eq!(told(&known, "fd01::1"), Reason::PrivateAddress);
    assert_eq!(told(&known, "::1"), Reason::LoopbackAddress);
    let names = ["a.example".to_owned()];
    let ask = |rules: &Rules| reason(connect(rules, &places(), &to("2600::1", 80), &names));
    assert_eq!(ask(&known), Reason::Allowed);
    known.allow[0].ipv6 = false;
    assert_eq!(ask(&known), Reason::Ipv6NotAllowed);
}

#[test]
fn an_address_without_a_name_needs_a_rule_for_addresses() {
    let rules = rules(vec![
        Allow {
            ports: vec![443.into()],
            ..allow("*.example.com")
        },
        allow("11.5.0.0/16"),
        allow("0.0.0.0/1"),
    ]);
    let ask = |address: &str, port, given: &[&str]| {
        reason(connect(
            &rules,
            &places(),
            &to(address, port),
            &names(given),
        ))
    };
    assert_eq!(ask("200.1.1.1", 443, &[]), Reason::HostNotAllowed);
    assert_eq!(ask("200.1.1.1", 443, &["a.example.com"]), Reason::Allowed);
    assert_eq!(
        ask("200.1.1.1", 80, &["a.example.com"]),
        Reason::PortNotAllowed
    );
    assert_eq!(ask("200.1.1.1", 443, &["evil.org"]), Reason::HostNotAllowed);
    assert_eq!(ask("11.5.0.1", 22, &[]), Reason::Allowed);
    // A wide network does not open what is private inside it.
    assert_eq!(ask("10.0.0.1", 22, &[]), Reason::PrivateAddress);
    assert_eq!(
        ask("10.0.0.1", 443, &["a.example.com"]),
        Reason::PrivateAddress
    );
}

#[test]
fn the_first_flight_must_name_a_host_that_was_resolved() {
    let rules = rules(vec![allow("*.example.com"), allow("11.5.0.1")]);
    let pinned = names(&["a.example.com", "b.other.org"]);
    let ask = |first: Flight| {
        reason(flight(
            &rules,
            &places(),
            &to("20.0.0.1", 443),
            &pinned,
            &first,
        ))
    };
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(ask(Flight::Tls(named("a.example.com"))), Reason::Allowed);
    assert_eq!(ask(Flight::Http(named("A.example.com"))), Reason::Allowed);
    // Allowed by the rule, but this name was not resolved to this address.
    assert_eq!(
        ask(Flight::Tls(named("c.example.com"))),
        Reason::NameMismatch
    );
    // Resolved to this address, but not allowed.
    assert_eq!(ask(Flight::Tls(named("b.other.org"))), Reason::NameMismatch);
    // A server may take it for another host.
    assert_eq!(
        ask(Flight::Tls(named("a.example.com."))),
        Reason::NameMismatch
    );
    // The name that is seen is allowed; the one that counts is encrypted.
    assert_eq!(
        ask(Flight::HiddenTls(named("a.example.com"))),
        Reason::NameEncrypted
    );
    assert_eq!(ask(Flight::Tls(None)), Reason::NoName);
    assert_eq!(ask(Flight::Http(None)), Reason::NoName);
    assert_eq!(ask(Flight::Http2), Reason::NoName);
    assert_eq!(ask(Flight::Other), Reason::UnknownProtocol);
    // Allowed by address: a name is not required.
    let by_address = to("11.5.0.1", 443);
    let first = flight(&rules, &places(), &by_address, &[], &Flight::Tls(None));
    assert_eq!(reason(first), Reason::Allowed);
    let hidden = Flight::HiddenTls(named("x.example"));
    let first = flight(&rules, &places(), &by_address, &[], &hidden);
    assert_eq!(reason(first), Reason::Allowed);
    let anybody = self::rules(vec![allow("*")]);
    let first = |first| reason(flight(&anybody, &places(), &by_address, &[], &first));
    assert_eq!(first(Flight::Tls(None)), Reason::NoName);
    assert_eq!(first(Flight::Tls(named("x.example"))), Reason::Allowed);
    assert_eq!(first(hidden), Reason::Allowed);
    assert_eq!(first(Flight::Other), Reason::UnknownProtocol);
    assert!(must_look(&rules, &places(), &by_address, &[]));
    assert!(!must_look(&Rules::public(), &places(), &by_address, &[]));
}

#[test]
fn requests_are_asked_for_one_by_one() {
    let rules = rules(vec![Allow {
        http: vec![
            HttpRule {
                methods: vec!["GET".to_owned()],
                path: "/simple".to_owned(),
                ..HttpRule::default()
            },
            HttpRule {
                path: "/api/*/files".to_owned(),
                query: vec![Field {
                    name: "kind".to_owned(),
                    value: "pub*".to_owned(),
                }],
                header: vec![Field {
                    name: "X-Team".to_owned(),
                    value: "red".to_owned(),
                }],
                ..HttpRule::default()
            },
        ],
        ..allow("a.example")
    }]);
    let pinned = names(&["a.example"]);
    let ask = |method: &str, path: &str, query: &str, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|&(n, v)| (n.to_owned(), v.to_owned()));
        let asked = Request {
            method: method.to_owned(),
            host: Some("a.example".to_owned()),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: headers.collect(),
            ..Request::default()
        };
        reason(request(
            &rules,
            &places(),
            &to("20.0.0.1", 80),
            &pinned,
            &asked,
        ))
    };
    let team: &[(&str, &str)] = &[("x-team", "red")];
    assert_eq!(ask("GET", "/simple/x", "", &[]), Reason::Allowed);
    assert_eq!(ask("POST", "/simple/x", "", &[]), Reason::RequestNotAllowed);
    assert_eq!(ask("GET", "/simpler", "", &[]), Reason::RequestNotAllowed);
    assert_eq!(
        ask("GET", "/simple/../admin", "", &[]),
        Reason::AmbiguousPath
    );
    assert_eq!(
        ask("PUT", "/api/1/files", "kind=public", team),
        Reason::Allowed
    );
    assert_eq!(
        ask("PUT", "/api/1/files", "kind=x", team),
        Reason::RequestNotAllowed
    );
    assert_eq!(
        ask("PUT", "/api/1/files", "kind=public&kind=x", team),
        Reason::RequestNotAllowed
    );
    assert_eq!(
        ask("PUT", "/api/1/files", "kind=public", &[]),
        Reason::RequestNotAllowed
    );
    assert_eq!(
        ask("GET", "/simple", "", &[("upgrade", "websocket")]),
        Reason::UpgradeNotAllowed
    );
    for (port, wanted) in [
        (None, Reason::Allowed),
        (Some(80), Reason::Allowed),
        (Some(81), Reason::NameMismatch),
    ] {
        let asked = Request {
            method: "GET".to_owned(),
            host: Some("a.example".to_owned()),
            port,
            path: "/simple".to_owned(),
            ..Request::default()
        };
        let to = to("20.0.0.1", 80);
        let verdict = request(&rules, &places(), &to, &pinned, &asked);
        assert_eq!(reason(verdict), wanted, "{port:?}");
    }
    let tls = Flight::Tls(Some("a.example".to_owned()));
    let encrypted = flight(&rules, &places(), &to("20.0.0.1", 443), &pinned, &tls);
    assert_eq!(reason(encrypted), Reason::RequestNotVisible);
}

fn any_allow() -> impl Strategy<Value = Allow> {
    let host = prop_oneof![
        Just("*".to_owned()),
        Just("a.example".to_owned()),
        Just("*.example".to_owned()),
        Just("10.0.0.0/8".to_owned()),
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        (any::<u32>(), 0u32..=32).prop_map(|(bits, prefix)| {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            format!("{}/{prefix}", std::net::Ipv4Addr::from_bits(bits & mask))
        }),
    ];
    (host, any::<bool>(), any::<bool>(), any::<Option<u16>>()).prop_map(
        |(host, opaque, private, port)| Allow {
            opaque,
            private,
            ports: port
                .into_iter()
                .filter(|port| *port > 0)
                .map(PortRange::from)
                .collect(),
            ..allow(&host)
        },
    )
}

proptest! {
    #[test]
    fn no_rules_open_what_is_never_open(
        allows in prop::collection::vec(any_allow(), 0..6),
        inside in prop_oneof![Just([127u8, 0]), Just([169, 254]), Just([0, 0]), Just([224, 0])],
        rest: [u8; 2],
        port: u16,
    ) {
        let rules = rules(allows);
        let address = IpAddr::from([inside[0], inside[1], rest[0], rest[1]]);
        let to = Destination { address, port, protocol: Protocol::Tcp };
        let pinned = names(&["a.example", "b.example"]);
        prop_assert!(!connect(&rules, &places(), &to, &pinned).allowed);
        prop_assert!(!answer(&rules, &places(), "a.example", address).allowed);
    }

    #[test]
    fn a_later_question_allows_nothing_an_earlier_one_refused(
        allows in prop::collection::vec(any_allow(), 0..6),
        address: std::net::Ipv4Addr,
        port: u16,
        pinned in prop::sample::subsequence(vec!["a.example", "b.example", "c.org"], 0..3),
        host in prop::option::of(Just("a.example".to_owned())),
    ) {
        let rules = rules(allows);
        let to = Destination { address: address.into(), port, protocol: Protocol::Tcp };
        let pinned = names(&pinned);
        let opened = connect(&rules, &places(), &to, &pinned).allowed;
        let first = flight(&rules, &places(), &to, &pinned, &Flight::Http(host.clone())).allowed;
        let asked = Request { method: "GET".into(), path: "/".into(), host, ..Request::default() };
        let sent = request(&rules, &places(), &to, &pinned, &asked).allowed;
        prop_assert!(opened || !first);
        prop_assert!(first || !sent);
    }
}

#[test]
fn ssh_passes_where_a_rule_looks_at_nothing() {
    let opaque = |host: &str, ports: Vec<PortRange>| Allow {
        opaque: true,
        ports,
        ..allow(host)
    };
    let own = rules(vec![
        opaque("git.example", vec![22.into()]),
        allow("web.example"),
        Allow {
            protocol: Protocol::Udp,
            ..opaque("time.example", Vec::new())
        },
    ]);
    assert!(is_opaque(&own, "git.example", 22));
    for (name, port) in [
        ("git.example", 2222),
        ("web.example", 22),
        ("time.example", 22),
        ("other.example", 22),
    ] {
        assert!(!is_opaque(&own, name, port), "{name}:{port}");
    }
    assert!(is_opaque(&Rules::public(), "any.example", 2222));
}
