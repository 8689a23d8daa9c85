//! The border of a sandbox: which secrets stay outside of it, and what stands for them inside.
//!
//! ```text
//!   store:    variable, secret, placeholder; the authority, its key sealed
//!   gateway:  the same plus the values, sent over its socket at its start and at each change
//! ```
//!
//! Values are read when they are sent to a gateway, and are written nowhere.

use crate::blocking::blocking;
use crate::home::Home;
use crate::secrets;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use motu_border::agent::{Key, KnownHost};
use motu_border::authority::{self, Authority};
use motu_border::{Secret, Value, h1, placeholder};
use motu_core::call::SecretRef;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::{Error, ErrorKind, Result, limits};
use motu_egress::border::{Border, Bound};
use motu_egress::host::Host;
use motu_egress::judge;
use motu_egress::rules::Rules;
use motu_link::network;
use motu_workspaces::secrets::Vault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

// The table of limits must agree with the constant that the border uses.
const _: () = assert!(limits::BORDER_BODY_BYTES.max == h1::BODY as u64);

/// The variable that names the socket of an SSH agent.
const AGENT: &str = "SSH_AUTH_SOCK";
/// The scope and name that sealed private keys of authorities are bound to.
const SEALED: (&str, &str) = ("authorities of sandboxes", "key");

/// The secrets of one sandbox that stay outside. A fork has the same: its memory is a copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bindings {
    /// The authority's certificate, DER in base64.
    certificate: String,
    /// The authority's private key, sealed by the vault, in base64.
    key: String,
    all: Vec<Stand>,
}

/// One secret and its placeholder inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stand {
    variable: String,
    secret: String,
    /// The value of the variable inside. For an SSH key: the socket of the agent.
    placeholder: String,
    /// True for an SSH key: the agent signs with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    agent: bool,
}

impl Bindings {
    /// The variables that every command gets.
    pub fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let agent = (AGENT.to_string(), network::AGENT_SOCKET.to_string());
        let agent = self.has_agent().then_some(agent);
        let pair = |one: &Stand| (one.variable.clone(), one.placeholder.clone());
        agent.into_iter().chain(self.all.iter().map(pair))
    }

    /// Whether the sandbox has an SSH agent.
    pub fn has_agent(&self) -> bool {
        self.all.iter().any(|one| one.agent)
    }

    /// Whether the gateway terminates TLS for some host.
    pub fn ends_tls(&self) -> bool {
        self.all.iter().any(|one| !one.agent)
    }

    /// Its variables, each with the name of its secret.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all
            .iter()
            .map(|one| (one.variable.as_str(), one.secret.as_str()))
    }

    pub fn has(&self, secret: &str) -> bool {
        self.all.iter().any(|one| one.secret == secret)
    }

    /// The certificate of the sandbox's authority as PEM.
    pub fn pem(&self) -> String {
        authority::pem(&self.certificate)
    }
}

/// Makes the border of a new sandbox; none if it refers to no secret.
pub async fn bind(
    home: &Home,
    wanted: &BTreeMap<String, SecretRef>,
    rules: Option<&Rules>,
) -> Result<Option<Bindings>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let limit = limits::SECRETS;
    if wanted.len() as u64 > limit.max {
        return Err(Error::limit(format!(
            "more than {} secrets are referred to, which is {}",
            limit.max, limit.name
        )));
    }
    let mut all = Vec::new();
    for (variable, secret) in wanted {
        let agent = check(home, variable, &secret.name, rules).await?;
        all.push(Stand {
            variable: variable.clone(),
            secret: secret.name.clone(),
            placeholder: match agent {
                true => network::AGENT_SOCKET.to_string(),
                false => placeholder().ok_or_else(|| Error::internal("no random numbers"))?,
            },
            agent,
        });
    }
    let vault = Vault::open(home.path())?;
    let made = Authority::make().map_err(|error| Error::internal(error.to_string()))?;
    let key = vault.seal(SEALED.0, SEALED.1, made.key.as_str())?;
    Ok(Some(Bindings {
        certificate: made.certificate,
        key: STANDARD.encode(key),
        all,
    }))
}

/// Whether these rules let a sandbox use the secret. Returns whether it is an SSH key.
async fn check(home: &Home, variable: &str, name: &str, rules: Option<&Rules>) -> Result<bool> {
    let mut letters = variable.chars();
    let first = letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let variable: String = variable.chars().take(64).collect();
        return Err(Error::invalid(format!(
            "{variable:?} is no name of a variable"
        )));
    }
    let kept = secrets::find(home, name).await?;
    let kept = kept.ok_or_else(|| secrets::refers_to_none(variable))?;
    let Some(binding) = kept.binding() else {
        return Err(Error::invalid(format!(
            "secret {name:?} is bound to no host, so it would have to be inside of the sandbox"
        ))
        .hint(hint![
            "bind it (",
            verb("set_secret")
                .with("name", name)
                .with("hosts", vec!["api.example.com"]),
            "), or give it to a workspace",
        ]));
    };
    let Some(rules) = rules else {
        return Err(Error::new(
            ErrorKind::Denied,
            format!("secret {name:?} is of no use to a sandbox without a network"),
        )
        .hint("give it a policy that allows the hosts the secret is bound to"));
    };
    if let Some(ssh) = &binding.ssh {
        return match ssh.known.iter().any(|host| is_opaque(rules, host)) {
            true => Ok(true),
            false => Err(no_ssh(name, &ssh.known, rules)),
        };
    }
    if binding.hosts.iter().any(|host| is_allowed(rules, host)) {
        return Ok(false);
    }
    let hosts: Vec<String> = binding.hosts.iter().map(Host::to_string).collect();
    let (hosts, policy) = (hosts.join(", "), &rules.policy);
    Err(Error::new(
        ErrorKind::Denied,
        format!("secret {name:?} is bound to {hosts}, which the policy {policy} does not allow"),
    )
    .hint(hint![
        verb("get_policy").with("name", policy.as_str()),
        " says what it allows; name another policy, or bind the secret to another host",
    ]))
}

/// Whether the rules pass SSH to this host unread (`opaque`), at one of its known ports.
fn is_opaque(rules: &Rules, host: &KnownHost) -> bool {
    let mut ports = host.ports.iter();
    ports.any(|port| judge::is_opaque(rules, &host.name, *port))
}

fn no_ssh(name: &str, known: &[KnownHost], rules: &Rules) -> Error {
    let places = known.iter().flat_map(|host| {
        let place = |port: &u16| format!("{}:{port}", host.name);
        host.ports.iter().map(place)
    });
    let (places, policy) = (places.collect::<Vec<_>>().join(", "), &rules.policy);
    Error::new(
        ErrorKind::Denied,
        format!(
            "secret {name:?} is bound to {places}, where the policy {policy} does not let SSH pass"
        ),
    )
    .hint("name a policy that allows one of these hosts and ports with `opaque = true`")
}

fn is_allowed(rules: &Rules, host: &Host) -> bool {
    match host {
        Host::Name(name) => judge::name(rules, name).1.allowed,
        // A wildcard: allowed if the rules allow any name below the suffix.
        Host::Below(suffix) => {
            let any = judge::name(rules, &format!("any.{suffix}")).1.allowed;
            let below = |host: &Host| matches!(host, Host::Name(name) if name.ends_with(&format!(".{suffix}")));
            any || rules.allow.iter().any(|allow| below(&allow.host))
        }
        Host::Public | Host::Address(_) | Host::Network(_) => false,
    }
}

/// The border with its values, as it is sent to a gateway. A secret that has been removed since, or
/// has lost its binding, is left out: the placeholder is then sent as it is.
pub async fn values(home: &Home, bindings: Option<&Bindings>) -> Result<Option<Border>> {
    let Some(bindings) = bindings else {
        return Ok(None);
    };
    let (mut bound, mut keys) = (Vec::new(), Vec::new());
    for one in &bindings.all {
        let Some(kept) = secrets::find(home, &one.secret).await? else {
            continue;
        };
        let Some(binding) = kept.binding() else {
            continue;
        };
        // The secret was set again as another kind (SSH key or value): the placeholder cannot stand
        // for it.
        if binding.ssh.is_some() != one.agent {
            continue;
        }
        let value = kept.value(home, &one.secret).await?;
        if let Some(ssh) = &binding.ssh {
            keys.push(Key {
                name: one.secret.clone(),
                key: Value::new(value.as_str()),
                hosts: ssh.known.clone(),
            });
            continue;
        }
        bound.push(Bound {
            hosts: binding.hosts.clone(),
            secret: Secret {
                name: one.secret.clone(),
                placeholder: one.placeholder.clone(),
                value: Value::new(value.as_str()),
                body: binding.body,
                aws: binding.aws,
            },
        });
    }
    let damaged = || Error::internal("the authority of the sandbox is damaged");
    let sealed = STANDARD.decode(&bindings.key).map_err(|_| damaged())?;
    let key = Vault::open(home.path())?.unseal(SEALED.0, SEALED.1, &sealed)?;
    Ok(Some(Border {
        authority: Authority {
            certificate: bindings.certificate.clone(),
            key: Value::new(key.as_str()),
        },
        roots: match bindings.ends_tls() {
            true => blocking(roots).await?.0,
            false => Vec::new(),
        },
        bound,
        keys,
    }))
}

/// The `known_hosts` lines of the hosts that the sandbox's SSH keys are bound to.
pub async fn known_hosts(home: &Home, bindings: &Bindings) -> Result<Bytes> {
    let mut lines = String::new();
    for one in bindings.all.iter().filter(|one| one.agent) {
        let kept = secrets::find(home, &one.secret).await?;
        let ssh = kept.as_ref().and_then(|kept| kept.binding()?.ssh.as_ref());
        for host in ssh.into_iter().flat_map(|ssh| &ssh.known) {
            lines.push_str(&host.lines());
        }
    }
    Ok(lines.into())
}

/// Root certificates that servers are verified with, DER in base64.
#[derive(Debug)]
pub struct Roots(Vec<String>);

impl Roots {
    /// All certificates as one PEM file.
    pub fn pem(&self) -> Bytes {
        let all: Vec<String> = self.0.iter().map(|one| authority::pem(one)).collect();
        all.concat().into()
    }
}

/// The root certificates of this host: of the daemon's `SSL_CERT_FILE`, else of the system.
pub fn roots() -> Result<Roots> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        return Err(Error::unavailable(format!(
            "this host has no certificates to verify others by: {}",
            why.unwrap_or_else(|| "there are none".to_string())
        ))
        .hint("install the package ca-certificates, or start the daemon with SSL_CERT_FILE"));
    }
    let encoded = found.certs.iter().map(|one| STANDARD.encode(one));
    Ok(Roots(encoded.collect()))
}
