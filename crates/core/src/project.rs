//! Projects: whose things are whose.
//!
//! A key belongs to a project, and whoever calls with it sees that project and nothing else.
//! Things that have an owner (sandboxes, workspaces) have the project as theirs. Things that
//! are known by a name alone (templates, terminal sessions, secrets, environments that were built,
//! ids that a caller chose) have the project in the name: `build` of `acme` is `acme--build`. The gate
//! completes such names on their way in, so two projects may use the same ones.

use crate::{Error, Result, SandboxId, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Between a project and a name. No project has two dashes in a row in its own name.
const SEPARATOR: &str = "--";
/// What environments that setups of templates made begin with.
const OF_TEMPLATE: &str = "template-";
/// How the owner of a project's things begins.
const OWNER: &str = "project:";

/// The name of a project: `[a-z0-9]`, with single dashes between.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Project(String);

impl Project {
    /// The project of whoever calls through the local socket. No key belongs to it.
    pub const LOCAL: &'static str = "local";
    /// The project of a key that names none.
    pub const DEFAULT: &'static str = "default";

    pub fn parse(text: &str) -> Result<Project> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fine = !text.is_empty()
            && text.len() as u64 <= limits::PROJECT_CHARS.max
            && text.bytes().all(plain)
            && !text.starts_with('-')
            && !text.ends_with('-')
            && !text.contains(SEPARATOR);
        if !fine {
            let shown: String = text.chars().take(60).collect();
            return Err(
                Error::invalid(format!("{shown:?} is no name of a project")).hint(format!(
                    "a-z, 0-9 and single dashes between them, at most {} characters ({})",
                    limits::PROJECT_CHARS.max,
                    limits::PROJECT_CHARS.name
                )),
            );
        }
        if text == Project::LOCAL {
            return Err(Error::invalid("no key belongs to the project `local`").hint(
                "it is that of callers of the local socket, who need no key; choose another name",
            ));
        }
        Ok(Project(text.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The owner of what the project makes.
    pub fn owner(&self) -> String {
        format!("{OWNER}{}", self.0)
    }

    /// The project that an owner is, if it is one.
    pub fn of_owner(owner: &str) -> Option<Project> {
        Project::parse(owner.strip_prefix(OWNER)?).ok()
    }

    /// Whether a name is one of this project.
    pub fn has(&self, name: &str) -> bool {
        of_name(name) == Some(self.as_str())
    }

    /// A name of this project, written out. One that is stays as it is.
    pub fn complete(&self, name: &str) -> String {
        match self.has(name) {
            true => name.to_string(),
            false => format!("{}{SEPARATOR}{name}", self.0),
        }
    }

    /// Completes a name in place.
    pub fn complete_name(&self, name: &mut String) {
        *name = self.complete(name);
    }

    /// Completes names in place, if there are any.
    pub fn complete_names<'a>(&self, names: impl IntoIterator<Item = &'a mut String>) {
        names.into_iter().for_each(|name| self.complete_name(name));
    }

    /// Completes an id that a caller chose.
    pub fn complete_id(&self, id: &mut SandboxId) -> Result<()> {
        *id = SandboxId::parse(&self.complete(id.as_str())).map_err(|_| {
            Error::invalid(format!(
                "the id {id} is too long in the project {self}, whose name is put before it"
            ))
            .hint("choose a shorter one, or leave it out")
        })?;
        Ok(())
    }

    /// Whether an environment may be seen: it is this project's, or nobody's and so everybody's.
    pub fn sees_environment(&self, name: &str) -> bool {
        of_environment(name).is_none_or(|project| project == self.as_str())
    }
}

impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Project {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Project::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The project that a name says it is of.
pub fn of_name(name: &str) -> Option<&str> {
    let (project, rest) = name.split_once(SEPARATOR)?;
    let fine = !rest.is_empty() && Project::parse(project).is_ok();
    fine.then_some(project)
}

/// Whether an environment was made by the setup of a template, and goes with it.
pub fn is_of_template(name: &str) -> bool {
    name.starts_with(OF_TEMPLATE)
}

/// The project that an environment is of. What comes from a registry, whose names have slashes, is of none.
pub fn of_environment(name: &str) -> Option<&str> {
    match name.contains('/') {
        true => None,
        false => of_name(name.strip_prefix(OF_TEMPLATE).unwrap_or(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_projects_are_plain() {
        for good in ["acme", "a", "team-7", "0"] {
            assert_eq!(Project::parse(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(limits::PROJECT_CHARS.max as usize + 1);
        for bad in ["", "-a", "a-", "a--b", "A", "a b", "a/b", "local", &long] {
            assert!(Project::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_completed_once_and_is_of_one_project() {
        let (acme, other) = (
            Project::parse("acme").unwrap(),
            Project::parse("acme-2").unwrap(),
        );
        assert_eq!(acme.complete("build"), "acme--build");
        assert_eq!(acme.complete("acme--build"), "acme--build");
        // The name of another project's thing is a name like any other.
        assert_eq!(other.complete("acme--build"), "acme-2--acme--build");
        assert!(acme.has("acme--build") && !other.has("acme--build"));
        assert!(!acme.has("acme--") && !acme.has("acme") && !acme.has("acme-2--x"));
    }

    #[test]
    fn environments_of_the_host_are_everybodys() {
        let acme = Project::parse("acme").unwrap();
        for seen in [
            "debian:12",
            "docker.io/library/python:3",
            "acme--py:1",
            "template-acme--py:0123",
        ] {
            assert!(acme.sees_environment(seen), "{seen}");
        }
        for hidden in ["beta--py:1", "template-beta--py:0123"] {
            assert!(!acme.sees_environment(hidden), "{hidden}");
        }
    }

    #[test]
    fn an_owner_is_read_back() {
        let acme = Project::parse("acme").unwrap();
        assert_eq!(Project::of_owner(&acme.owner()), Some(acme));
        assert_eq!(Project::of_owner("uid:0"), None);
    }
}
