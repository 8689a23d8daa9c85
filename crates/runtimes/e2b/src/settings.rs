//! The settings of the service.

use crate::wire::envd::PORT;
use crate::wire::{Control, Envd};
use motu_core::{Error, Isolation, limits};
use motu_peer::{Address, Connections, Key, Patience};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What the runtime is made from.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The address of its REST API.
    pub api_url: String,
    /// The address of all agents, distinguished by headers.
    pub sandbox_url: Option<String>,
    /// Otherwise each agent has a host below this domain.
    pub domain: Option<String>,
    /// The file with its key.
    pub key_file: Option<PathBuf>,
    /// The isolation of its machines, as configured by the operator.
    pub isolation: Option<Isolation>,
    /// Templates by environment; other environments are used as template names.
    pub templates: BTreeMap<String, String>,
    /// The timeout of a machine without a daemon, in seconds.
    pub timeout_seconds: Option<u64>,
}

/// Validated settings.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) control: Arc<Control>,
    agents: Agents,
    pub(crate) isolation: Isolation,
    templates: BTreeMap<String, String>,
    pub(crate) timeout: u64,
    patience: Patience,
}

#[derive(Debug)]
enum Agents {
    At(Address),
    Below(String),
}

impl Service {
    pub(crate) fn of(settings: Settings, patience: Patience) -> Result<Service, Error> {
        let address = Address::parse("[e2b] api_url in config.toml", &settings.api_url)?;
        let agents = match (settings.sandbox_url, settings.domain) {
            (Some(url), None) => {
                Agents::At(Address::parse("[e2b] sandbox_url in config.toml", &url)?)
            }
            (None, Some(domain)) => {
                let (host, port) = domain.split_once(':').unwrap_or((&domain, "443"));
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
                let named = !host.is_empty() && !host.starts_with('.') && host.chars().all(plain);
                if !named || port.parse::<u16>().is_err() {
                    return Err(
                        Error::invalid("[e2b] domain in config.toml is no host name")
                            .hint("such as e2b.app, with a port where it needs one"),
                    );
                }
                // If this address is valid, every machine's is.
                Address::parse(
                    "[e2b] domain in config.toml",
                    &format!("https://x.{domain}"),
                )?;
                Agents::Below(domain)
            }
            _ => {
                return Err(Error::invalid(
                    "[e2b] in config.toml needs either sandbox_url or domain",
                )
                .hint("domain = \"e2b.app\" for machines at https://49983-ID.e2b.app"));
            }
        };
        let key = settings.key_file.map(|file| Key {
            header: http::HeaderName::from_static("x-api-key"),
            file,
        });
        let timeout = limits::E2B_TIMEOUT_SECONDS.resolve(settings.timeout_seconds)?;
        Ok(Service {
            control: Arc::new(Control {
                connections: Connections::new(address, key, patience),
            }),
            agents,
            isolation: settings.isolation.unwrap_or(Isolation::None),
            templates: settings.templates,
            timeout,
            patience,
        })
    }

    pub(crate) fn url(&self) -> String {
        self.control.connections.address.to_string()
    }

    /// The template of an environment.
    pub(crate) fn template(&self, environment: &str) -> String {
        let found = self.templates.get(environment);
        found.map_or_else(|| environment.to_string(), String::clone)
    }

    /// The agent of a machine.
    pub(crate) fn agent(&self, id: &str) -> Result<Envd, Error> {
        let address = match &self.agents {
            Agents::At(address) => address.clone(),
            Agents::Below(domain) => Address::parse(
                "[e2b] domain in config.toml",
                &format!("https://{PORT}-{id}.{domain}"),
            )?,
        };
        Ok(Envd::new(address, id.to_string(), self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            api_url: "https://api.example.org".into(),
            ..Settings::default()
        }
    }

    #[test]
    fn a_service_says_where_its_machines_are_in_one_way() {
        let of = |settings| Service::of(settings, Patience::default());
        assert!(of(settings()).is_err());
        let domain = Some("example.org".to_string());
        let below = Settings {
            domain: domain.clone(),
            templates: BTreeMap::from([("debian:12".into(), "base".into())]),
            ..settings()
        };
        let service = of(below.clone()).unwrap();
        assert_eq!(service.template("debian:12"), "base");
        assert_eq!(service.template("mine"), "mine");
        assert_eq!(service.isolation, Isolation::None);
        assert!(service.agent("abc").is_ok());
        let both = Settings {
            sandbox_url: Some("https://sandbox.example.org".into()),
            ..below
        };
        assert!(of(both).is_err());
        for wrong in ["a b", "x@y", "", "x/y", ".org", "x:y"] {
            let wrong = Settings {
                domain: Some(wrong.into()),
                ..settings()
            };
            assert!(of(wrong).is_err());
        }
        let short = Settings {
            domain,
            timeout_seconds: Some(1),
            ..settings()
        };
        assert!(of(short).is_err());
    }
}
