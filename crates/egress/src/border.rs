//! Secrets bound to hosts: what the gateway is told of them, and which apply to which host.

use crate::host::Host;
use motu_border::agent::{Key, KeyError, Ring};
use motu_border::authority::{Authority, Failed};
use motu_border::session::Trust;
use motu_border::{Secret, authority};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A secret and its hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    pub hosts: Vec<Host>,
    pub secret: Secret,
}

/// Everything a gateway needs to put secrets into requests. It is sent over sockets only, and its
/// secrets are never printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Border {
    pub authority: Authority,
    /// Root certificates that servers are verified with, DER in base64.
    pub roots: Vec<String>,
    pub bound: Vec<Bound>,
    /// SSH keys that the agent signs with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
}

/// Why a border cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoBorder {
    #[error(transparent)]
    Authority(#[from] Failed),
    #[error("a key of SSH cannot be used: {0}")]
    Key(#[from] KeyError),
}

/// A border in use.
#[derive(Debug)]
pub(crate) struct Post {
    bound: Vec<Bound>,
    pub(crate) trust: Trust,
    pub(crate) ring: Ring,
}

impl Post {
    pub(crate) fn new(border: Border) -> Result<Self, NoBorder> {
        let decode = |text: &String| authority::der(text).map(CertificateDer::from);
        let roots: Vec<CertificateDer<'static>> = border.roots.iter().filter_map(decode).collect();
        Ok(Self {
            trust: Trust::new(&border.authority, roots)?,
            ring: Ring::new(&border.keys)?,
            bound: border.bound,
        })
    }

    /// Whether the agent has anything to sign with.
    pub(crate) fn has_keys(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether any secret is bound to one of these names.
    pub(crate) fn covers(&self, names: &[String]) -> bool {
        names
            .iter()
            .any(|name| self.bound.iter().any(|one| one.covers(name)))
    }

    /// The secrets bound to a host, by its normalized name.
    pub(crate) fn secrets(&self, name: &str) -> Arc<Vec<Secret>> {
        let mine = self.bound.iter().filter(|one| one.covers(name));
        Arc::new(mine.map(|one| one.secret.clone()).collect())
    }
}

impl Bound {
    fn covers(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host.covers_name(name))
    }
}
