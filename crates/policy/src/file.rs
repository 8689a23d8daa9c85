//! Parses a policy file.

use motu_core::hint;
use motu_core::hint::verb;
use motu_core::policy::{CallBounds, NetworkBounds, Policy, PolicyAllow, PolicyRef, PolicySummary};
use motu_core::{Error, Isolation, Result, call::Retention, limits};
use motu_egress::host::Host;
use motu_egress::proxy::Proxy;
use motu_egress::rules::{Allow, HttpRule, Limits, PortRange, Protocol, Rules};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The only supported version.
const VERSION: u32 = 1;
/// The maximum number of destinations of a policy, over all hosts.
const DESTINATIONS: usize = 1024;

/// A checked value, or a message about what is wrong.
type Checked<T> = std::result::Result<T, String>;

/// A valid policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// For display.
    pub policy: Policy,
    /// For a gateway.
    pub rules: Rules,
}

impl Known {
    pub fn reference(&self) -> PolicyRef {
        PolicyRef {
            name: self.policy.name.clone(),
            hash: self.policy.hash.clone(),
        }
    }

    pub fn summary(&self) -> PolicySummary {
        let Policy {
            name,
            hash,
            source,
            description,
            allow,
            ..
        } = self.policy.clone();
        let capabilities = allow.into_iter().map(|allow| allow.capability);
        PolicySummary {
            name,
            hash,
            source,
            description,
            capabilities: capabilities.collect(),
            error: None,
        }
    }
}

/// The format of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    #[serde(default)]
    description: String,
    #[serde(default)]
    allow: Vec<Grant>,
    #[serde(default)]
    network: Network,
    #[serde(default)]
    call: Call,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grant {
    capability: String,
    hosts: Vec<String>,
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default)]
    protocol: Protocol,
    #[serde(default)]
    http: Vec<HttpRule>,
    #[serde(default)]
    opaque: bool,
    #[serde(default)]
    private: bool,
    #[serde(default)]
    ipv6: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Port {
    One(u16),
    Text(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Network {
    connections: Option<u64>,
    connects_per_second: Option<u64>,
    bytes_per_second: Option<u64>,
    bytes: Option<u64>,
    proxy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Call {
    files: Option<u64>,
    file_bytes: Option<u64>,
    all_files_bytes: Option<u64>,
    max_output_bytes: Option<u64>,
    timeout_seconds: Option<u64>,
    max_timeout_seconds: Option<u64>,
    output_files: Option<u64>,
    output_file_bytes: Option<u64>,
    ttl_seconds: Option<u64>,
    max_ttl_seconds: Option<u64>,
    max_vcpu_count: Option<u64>,
    max_mem_mib: Option<u64>,
    max_disk_mib: Option<u64>,
    retention: Option<Vec<Retention>>,
    languages: Option<BTreeMap<String, String>>,
    images: Option<Vec<String>>,
    secrets: Vec<String>,
    min_isolation: Option<Isolation>,
}

/// Parses the text of a policy. Unknown content is an error.
pub fn parse(name: &str, source: &str, text: &str) -> Result<Known> {
    let wrong = |message: String| {
        Error::invalid(format!("policy {name}: {message}")).hint(hint![
            "docs/policies.md describes the file; ",
            verb("check_policy"),
            " reads one"
        ])
    };
    if text.len() as u64 > limits::POLICY_BYTES.max {
        return Err(wrong(format!(
            "it has {} bytes; policy_bytes is {}",
            text.len(),
            limits::POLICY_BYTES.max
        )));
    }
    let written: Written = toml::from_str(text).map_err(|error| wrong(place(&error, text)))?;
    if written.version != VERSION {
        return Err(wrong(format!(
            "version {} is not understood; this motu understands {VERSION}",
            written.version
        )));
    }
    let allow = written.allow.iter().map(shown).collect();
    let rules = rules(name, &written).map_err(wrong)?;
    let network = NetworkBounds {
        connections: rules.limits.connections.into(),
        connects_per_second: rules.limits.connects_per_second.into(),
        bytes_per_second: rules.limits.bytes_per_second,
        bytes: rules.limits.bytes,
    };
    let policy = Policy {
        name: name.to_string(),
        hash: hash(text),
        source: source.to_string(),
        description: written.description,
        allow,
        network,
        call: bounds(written.call).map_err(|error| wrong(error.message))?,
        text: text.to_string(),
    };
    Ok(Known { policy, rules })
}

/// The error message with its line.
fn place(error: &toml::de::Error, text: &str) -> String {
    let message = error.message();
    match error.span() {
        Some(span) => {
            let before = text.get(..span.start).unwrap_or_default();
            format!("line {}: {message}", before.matches('\n').count() + 1)
        }
        None => message.to_string(),
    }
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

fn shown(grant: &Grant) -> PolicyAllow {
    let ports = grant.ports.iter().map(|port| match port {
        Port::One(number) => number.to_string(),
        Port::Text(text) => text.clone(),
    });
    PolicyAllow {
        capability: grant.capability.clone(),
        hosts: grant.hosts.clone(),
        ports: ports.collect(),
        protocol: grant.protocol.to_string(),
        opaque: grant.opaque,
        private: grant.private,
        ipv6: grant.ipv6,
    }
}

fn rules(name: &str, written: &Written) -> Checked<Rules> {
    let mut allow = Vec::new();
    for grant in &written.allow {
        allow.extend(granted(name, grant)?);
        if allow.len() > DESTINATIONS {
            return Err(format!("it names more than {DESTINATIONS} hosts"));
        }
    }
    let number = |value: Option<u64>, usual: u32, what: &str| match value {
        None => Ok(usual),
        Some(value) => u32::try_from(value).map_err(|_| format!("{what} is {value}: too much")),
    };
    let usual = Limits::default();
    let Network {
        connections,
        connects_per_second,
        bytes_per_second,
        bytes,
        ref proxy,
    } = written.network;
    limits::EGRESS_CONNECTIONS
        .resolve(connections)
        .map_err(|error| error.message)?;
    Ok(Rules {
        policy: name.to_string(),
        allow,
        limits: Limits {
            connections: number(connections, usual.connections, "connections")?,
            connects_per_second: number(
                connects_per_second,
                usual.connects_per_second,
                "connects_per_second",
            )?,
            bytes_per_second: bytes_per_second.unwrap_or(usual.bytes_per_second),
            bytes: bytes.unwrap_or(usual.bytes),
        },
        proxy: proxy.as_deref().map_or(Ok(String::new()), named_proxy)?,
    })
}

/// Checks a proxy in a policy. Everybody can read policies, so they must not contain a password.
fn named_proxy(text: &str) -> Checked<String> {
    if text != "none" {
        let proxy = Proxy::parse(text).map_err(|error| format!("proxy: {error}"))?;
        if proxy.has_credentials() {
            return Err(
                "proxy: a policy holds no password; give it to the daemon in HTTPS_PROXY".into(),
            );
        }
    }
    Ok(text.to_string())
}

/// Creates one rule for every host of a capability.
fn granted(policy: &str, grant: &Grant) -> Checked<Vec<Allow>> {
    let capability = &grant.capability;
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if capability.is_empty() || capability.len() > 64 || !capability.chars().all(fine) {
        return Err(format!(
            "{capability:?} is no name of a capability: letters, digits, '-', '_' and '.', at most 64"
        ));
    }
    if grant.hosts.is_empty() {
        return Err(format!("capability {capability}: it names no host"));
    }
    if grant.protocol != Protocol::Tcp && !grant.http.is_empty() {
        return Err(format!(
            "capability {capability}: http is of tcp; {} is not looked into",
            grant.protocol
        ));
    }
    if grant.protocol == Protocol::Icmp && !grant.ports.is_empty() {
        return Err(format!("capability {capability}: icmp has no ports"));
    }
    let mut ports: Vec<PortRange> = Vec::new();
    for port in &grant.ports {
        let text = match port {
            Port::One(number) => number.to_string(),
            Port::Text(text) => text.clone(),
        };
        let parsed = text.parse();
        ports.push(parsed.map_err(|error| format!("capability {capability}: {error}"))?);
    }
    let rule = |host: &String| {
        let parsed = host.parse::<Host>();
        Ok(Allow {
            ports: ports.clone(),
            protocol: grant.protocol,
            http: grant.http.clone(),
            opaque: grant.opaque,
            private: grant.private,
            ipv6: grant.ipv6,
            ..Allow::new(
                format!("{policy}.{capability}"),
                parsed.map_err(|error| format!("capability {capability}: {error}"))?,
            )
        })
    };
    grant.hosts.iter().map(rule).collect()
}

fn bounds(call: Call) -> Result<CallBounds> {
    let retention = call.retention.map(|found| {
        let names = found.into_iter().map(|one| one.as_str().to_string());
        names.collect()
    });
    let usual_languages = || {
        let pairs = [
            ("bash", "debian:12"),
            ("python", "debian:12"),
            ("sh", "busybox"),
        ];
        let pairs = pairs.map(|(language, image)| (language.to_string(), image.to_string()));
        BTreeMap::from(pairs)
    };
    let usual_images = || vec!["busybox".to_string(), "debian:12".to_string()];
    let bounds = CallBounds {
        files: limits::CALL_FILES.resolve(call.files)?,
        file_bytes: limits::CALL_FILE_BYTES.resolve(call.file_bytes)?,
        all_files_bytes: limits::CALL_ALL_FILES_BYTES.resolve(call.all_files_bytes)?,
        max_output_bytes: limits::CALL_OUTPUT_BYTES.resolve(call.max_output_bytes)?,
        timeout_seconds: limits::CALL_TIMEOUT_SECONDS.resolve(call.timeout_seconds)?,
        max_timeout_seconds: limits::CALL_MAX_TIMEOUT_SECONDS.resolve(call.max_timeout_seconds)?,
        output_files: limits::CALL_OUTPUT_FILES.resolve(call.output_files)?,
        output_file_bytes: limits::CALL_OUTPUT_FILE_BYTES.resolve(call.output_file_bytes)?,
        ttl_seconds: limits::CALL_TTL_SECONDS.resolve(call.ttl_seconds)?,
        max_ttl_seconds: limits::CALL_MAX_TTL_SECONDS.resolve(call.max_ttl_seconds)?,
        max_vcpu_count: limits::CALL_VCPU_COUNT.resolve(call.max_vcpu_count)?,
        max_mem_mib: limits::CALL_MEM_MIB.resolve(call.max_mem_mib)?,
        max_disk_mib: limits::CALL_DISK_MIB.resolve(call.max_disk_mib)?,
        retention: retention.unwrap_or_else(|| Retention::NAMES.map(str::to_string).into()),
        languages: call.languages.unwrap_or_else(usual_languages),
        images: call.images.unwrap_or_else(usual_images),
        secrets: call.secrets,
        min_isolation: call.min_isolation.unwrap_or(Isolation::Container),
    };
    for (what, usual, most) in [
        (
            "timeout_seconds",
            bounds.timeout_seconds,
            bounds.max_timeout_seconds,
        ),
        ("ttl_seconds", bounds.ttl_seconds, bounds.max_ttl_seconds),
    ] {
        if usual > most {
            return Err(Error::invalid(format!(
                "{what} is {usual}, more than max_{what}, which is {most}"
            )));
        }
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Known> {
        parse("p", "file", text)
    }

    #[test]
    fn an_empty_policy_opens_nothing_and_has_the_usual_bounds() {
        let known = read("version = 1").unwrap();
        assert_eq!(known.rules.allow, []);
        assert_eq!(known.policy.call.files, 64);
        assert_eq!(known.policy.call.timeout_seconds, 20);
        assert_eq!(known.policy.call.max_timeout_seconds, 600);
        assert_eq!(known.policy.call.min_isolation, Isolation::Container);
        assert_eq!(known.policy.call.secrets, [""; 0]);
    }

    #[test]
    fn a_capability_becomes_one_rule_for_each_host() {
        let known = read(
            "version = 1\n[[allow]]\ncapability = \"db\"\nhosts = [\"a.example\", \"10.0.0.0/8\"]\n\
             ports = [5432, \"8000-8010\"]\nopaque = true",
        )
        .unwrap();
        let names: Vec<_> = known.rules.allow.iter().map(|rule| &*rule.name).collect();
        assert_eq!(names, ["p.db", "p.db"]);
        assert!(known.rules.allow.iter().all(|rule| rule.opaque));
        assert_eq!(known.policy.allow[0].ports, ["5432", "8000-8010"]);
    }

    #[test]
    fn datagrams_echoes_and_ipv6_are_rules_of_their_own() {
        let known = read(
            "version = 1\n[[allow]]\ncapability = \"time\"\nhosts = [\"time.example\"]\n\
             protocol = \"udp\"\nports = [123]\nipv6 = true\n\
             [[allow]]\ncapability = \"echo\"\nhosts = [\"2600::/16\"]\nprotocol = \"icmp\"",
        )
        .unwrap();
        let [time, echo] = &known.rules.allow[..] else {
            panic!("{:?}", known.rules);
        };
        assert_eq!((time.protocol, time.ipv6), (Protocol::Udp, true));
        assert_eq!((echo.protocol, echo.ipv6), (Protocol::Icmp, false));
        assert_eq!(known.policy.allow[0].protocol, "udp");
        assert!(known.policy.allow[0].ipv6);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, words) in [
            ("version = 2", "version 2 is not understood"),
            ("version = 1\ncolour = 3", "line 2"),
            (
                "version = 1\n[[allow]]\ncapability = \"a b\"\nhosts = [\"x\"]",
                "no name of a capability",
            ),
            (
                "version = 1\n[[allow]]\ncapability = \"a\"\nhosts = []",
                "names no host",
            ),
            (
                "version = 1\n[[allow]]\ncapability = \"a\"\nhosts = [\"x y\"]",
                "capability a",
            ),
            (
                "version = 1\n[[allow]]\ncapability = \"a\"\nhosts = [\"x.y\"]\nports = [0]",
                "not a port",
            ),
            (
                "version = 1\n[[allow]]\ncapability = \"a\"\nhosts = [\"x.y\"]\nprotocol = \"icmp\"\nports = [7]",
                "icmp has no ports",
            ),
            (
                "version = 1\n[[allow]]\ncapability = \"a\"\nhosts = [\"x.y\"]\nprotocol = \"udp\"\nhttp = [{ path = \"/\" }]",
                "http is of tcp",
            ),
            (
                "version = 1\n[[allow]]\ncapability = \"a\"\nhosts = [\"x.y\"]\nprotocol = \"sctp\"",
                "line 5",
            ),
            ("version = 1\n[call]\nfiles = 1000000", "call_files"),
            (
                "version = 1\n[call]\ntimeout_seconds = 30\nmax_timeout_seconds = 10",
                "more than max_timeout_seconds",
            ),
            (
                "version = 1\n[call]\nretention = [\"forever\"]",
                "unknown variant",
            ),
            (
                "version = 1\n[network]\nproxy = \"http://me:s3cr3t@p:1\"",
                "holds no password",
            ),
            ("version = 1\n[network]\nproxy = \"ftp://p\"", "not a proxy"),
            (
                "version = 1\n[network]\nconnections = 0",
                "egress_connections",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn the_hash_is_of_the_text() {
        let (one, other) = (read("version = 1").unwrap(), read("version = 1\n").unwrap());
        assert_ne!(one.policy.hash, other.policy.hash);
        assert_eq!(one.policy.hash.len(), "sha256:".len() + 64);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,200}") {
            let _ = read(&text);
        }
    }
}
