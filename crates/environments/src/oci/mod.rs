//! Images in registries: asking for them and keeping what was downloaded.
//!
//! Owns the protocol (manifests, blobs, logins, retries), its connections, where they may lead, and
//! the cache of layers. It never looks inside a layer; `layer` does.

mod auth;
pub(crate) mod cache;
mod challenge;
mod credentials;
pub(crate) mod http;
pub(crate) mod manifest;
pub(crate) mod reach;
pub(crate) mod registry;

use std::{collections::HashMap, env, path::PathBuf, time::Duration};

use reach::{Reach, RegistryName};

/// Longest silence of a registry before a pull gives up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait a busy registry may ask for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);

/// On whose account registries are asked: what of the network may be reached, and with which logins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Account {
    /// Whoever runs this host: wherever their own user can go, with the logins of that user.
    Operator,
    /// A project, or any other owner who is not the host's: the public internet, with the logins
    /// that the operator gave them.
    Other(String),
}

/// Options for registries.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegistryOptions {
    /// Longest silence of a registry before a pull gives up.
    pub idle_timeout: Duration,
    /// Longest wait a busy registry may ask for; more is cut down to this.
    pub max_retry_wait: Duration,
    /// The file `docker login` writes, if there may be one.
    pub docker_config: Option<PathBuf>,
    /// Where pulls on other accounts than the operator's may lead beside the public internet.
    pub allowed: Vec<RegistryName>,
    /// Registries at which the operator's login is used for other accounts, too.
    pub lent: Vec<RegistryName>,
    /// Files as `docker login` writes them, by the account's name.
    pub logins: HashMap<String, PathBuf>,
}

impl RegistryOptions {
    /// What connections on an account may reach.
    pub(crate) fn reach(&self, account: &Account) -> Reach {
        match account {
            Account::Operator => Reach::Everything,
            Account::Other(_) => Reach::Public(self.allowed.clone().into()),
        }
    }

    /// Where the login of an account for a registry may be.
    pub(crate) fn login(&self, account: &Account, registry: &str) -> Option<&PathBuf> {
        let own = self.docker_config.as_ref();
        match account {
            Account::Operator => own,
            Account::Other(name) => {
                let lent = || self.lent.iter().any(|place| place.is_registry(registry));
                self.logins.get(name).or_else(|| own.filter(|_| lent()))
            }
        }
    }
}

impl Default for RegistryOptions {
    fn default() -> Self {
        let directory = env::var_os("DOCKER_CONFIG")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".docker")));
        Self {
            idle_timeout: IDLE_TIMEOUT,
            max_retry_wait: MAX_RETRY_WAIT,
            docker_config: directory.map(|directory| directory.join("config.json")),
            allowed: Vec::new(),
            lent: Vec::new(),
            logins: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_its_own_logins_and_those_that_are_lent() {
        let options = RegistryOptions {
            docker_config: Some("/root/config.json".into()),
            lent: vec!["r.example:5000".parse().unwrap()],
            logins: HashMap::from([("acme".to_owned(), "/etc/acme.json".into())]),
            ..RegistryOptions::default()
        };
        let other = |name: &str| Account::Other(name.to_owned());
        for (account, registry, want) in [
            (Account::Operator, "s.example", Some("/root/config.json")),
            (other("beta"), "s.example", None),
            (other("beta"), "r.example", None),
            (other("beta"), "r.example:5000", Some("/root/config.json")),
            (other("acme"), "s.example", Some("/etc/acme.json")),
            (other("acme"), "r.example:5000", Some("/etc/acme.json")),
        ] {
            let found = options.login(&account, registry);
            assert_eq!(
                found,
                want.map(PathBuf::from).as_ref(),
                "{account:?} {registry}"
            );
        }
    }
}
