//! `[registries]`: where pulls for callers with keys may lead, and with which logins.
//!
//! The operator's own pulls, through the local socket, have none of these bounds.

use crate::{Error, Project};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Registries beside those of the public internet. Names are `HOST` or `HOST:PORT`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistriesConfig {
    /// Callers with keys may reach these although they are on this host or in a private network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// At these the operator's own login is used for callers with keys, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lend_login: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub projects: BTreeMap<String, ProjectRegistries>,
}

/// What one project has of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProjectRegistries {
    /// A file with its logins, as `docker login` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logins: Option<PathBuf>,
}

impl RegistriesConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |message: String, hint: &str| {
            Err(Error::invalid(format!("config.toml: [registries] {message}")).hint(hint))
        };
        let lists = [("allow", &self.allow), ("lend_login", &self.lend_login)];
        for (list, names) in lists {
            let mut names = names.iter();
            if let Some(name) = names.find(|name| !is_place(name)) {
                return wrong(
                    format!("{list}: {name:?} is no name of a registry"),
                    "a host and perhaps its port, such as \"registry.example.com\" or \"127.0.0.1:5000\"",
                );
            }
        }
        for (name, project) in &self.projects {
            if let Err(error) = Project::parse(name) {
                return wrong(
                    format!("projects: {}", error.message),
                    "name a project of keys",
                );
            }
            let logins = project.logins.as_ref();
            if logins.is_some_and(|logins| !logins.is_absolute()) {
                return wrong(
                    format!("projects.{name}: logins must be the absolute path of a file"),
                    "such as \"/etc/motu/acme.json\", written by `docker --config DIR login`",
                );
            }
        }
        Ok(())
    }
}

/// A host, in brackets where it has colons, and perhaps a port. Whoever uses it reads it in full.
fn is_place(name: &str) -> bool {
    let odd = |byte: u8| !byte.is_ascii_alphanumeric() && !b"-_.:[]".contains(&byte);
    !name.is_empty() && !name.bytes().any(odd)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn registries_are_hosts_and_logins_are_files() {
        let parse = |text: &str| Config::parse(&format!("[registries]\n{text}"));
        let whole = "allow = [\"127.0.0.1:5000\", \"[::1]:5000\", \"registry.corp.example\"]\n\
                     lend_login = [\"registry.corp.example\"]\n\
                     [registries.projects.acme]\nlogins = \"/etc/motu/acme.json\"";
        let registries = parse(whole).unwrap().registries;
        assert_eq!(registries.allow.len(), 3);
        assert!(registries.projects["acme"].logins.is_some());
        for wrong in [
            "allow = [\"https://registry.example\"]",
            "allow = [\"registry.example/team\"]",
            "allow = [\"*\"]",
            "lend_login = [\"\"]",
            "allow = \"registry.example\"",
            "logins = \"/etc/all.json\"",
            "[registries.projects.acme]\nlogins = \"acme.json\"",
            "[registries.projects.Acme]\nlogins = \"/acme.json\"",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
