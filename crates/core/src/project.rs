//! Projects: whose things are whose.
//!
//! A key belongs to a project, and whoever calls with it sees that project and nothing else.
//! Things that have an owner (sandboxes, workspaces, environments) have the project as theirs, and
//! [`sees`] decides by that field. Names that callers choose have the project before them: `build`
//! of `acme` is `acme--build`. The gate completes them on their way in, so two projects may use the
//! same ones. Whose an environment is, is never read from its name: images have names that others
//! chose.

use crate::{Error, Result, SandboxId, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Between a project and a name. No project has two dashes in a row in its own name.
const SEPARATOR: &str = "--";
/// What environments that setups of templates made began with, before they had owners.
const OF_TEMPLATE: &str = "template-";
/// How labels of host names in other scripts begin (`xn--…`): no project is called so.
const OTHER_SCRIPTS: &str = "xn";
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

    /// A name of this project as the project wrote it.
    pub fn short<'a>(&self, name: &'a str) -> &'a str {
        match self.has(name) {
            true => &name[self.0.len() + SEPARATOR.len()..],
            false => name,
        }
    }

    /// Refuses names that stand for something else in older homes, or in names of hosts.
    pub fn check_new(&self) -> Result<()> {
        let why = match self.as_str() {
            OTHER_SCRIPTS => "reads as the beginning of a registry's name",
            name if name.starts_with(OF_TEMPLATE) => "reads as a template of another project",
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("{self} {why}"))
            .hint("choose a name that is not `xn` and does not begin with `template-`"))
    }
}

/// Whether what has this owner is there for a caller: what is nobody's but the host's is there for
/// everybody, the rest for whose it is. The only place where that is decided for environments.
pub fn sees(project: Option<&Project>, owner: &str) -> bool {
    owner.is_empty() || project.is_some_and(|project| project.owner() == owner)
}

/// Whether a name is written as one of another project. Callers of this one are told that there is
/// nothing of the kind, whether there is or not.
pub fn is_elsewhere(project: Option<&Project>, name: &str) -> bool {
    let said = of_name(name).filter(|said| *said != OTHER_SCRIPTS);
    said.is_some_and(|said| project.is_none_or(|project| project.as_str() != said))
}

/// The owner of what a caller makes under a name: the caller's project, or nobody but the host. A
/// user of the host puts something into a project by its written name, `PROJECT--NAME`.
pub fn owner_of_new(caller: &str, name: &str) -> String {
    let written = || of_name(name).and_then(|project| Project::parse(project).ok());
    let project = Project::of_owner(caller).or_else(written);
    project.map_or(String::new(), |project| project.owner())
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

/// Whose an environment is that was made before environments had owners, and whether the setup of a
/// template made it. All that is known of it is its name, and whether that names a registry or a
/// place on the host: what came from there is the host's.
pub fn of_older(name: &str, came_from_elsewhere: bool) -> (String, bool) {
    if came_from_elsewhere {
        return (String::new(), false);
    }
    let (name, of_template) = match name.strip_prefix(OF_TEMPLATE) {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    (owner_of_new("", name), of_template)
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
    fn an_owner_alone_says_who_sees_it() {
        let acme = Project::parse("acme").unwrap();
        assert!(sees(Some(&acme), &acme.owner()) && sees(Some(&acme), "") && sees(None, ""));
        for other in ["project:beta", "project:acme-2", "acme", "uid:0"] {
            assert!(!sees(Some(&acme), other), "{other}");
        }
        assert!(!sees(None, &acme.owner()));
    }

    #[test]
    fn what_a_user_of_the_host_makes_is_the_hosts_or_where_it_is_put() {
        for (caller, name, owner) in [
            ("project:acme", "acme--team/py:1", "project:acme"),
            // A key's project is never another one, whatever the name says.
            ("project:acme", "beta--py:1", "project:acme"),
            ("uid:0", "py:1", ""),
            ("uid:0", "team/py:1", ""),
            ("uid:0", "acme--py:1", "project:acme"),
            ("uid:0", "acme--team/py:1", "project:acme"),
            ("remote", "py:1", ""),
        ] {
            assert_eq!(owner_of_new(caller, name), owner, "{caller} {name}");
        }
    }

    #[test]
    fn owners_of_older_environments_are_what_is_known_of_them() {
        for (name, came, owner, of_template) in [
            ("acme--team/py:1", false, "project:acme", false),
            ("acme--py:1", false, "project:acme", false),
            ("acme--oci:/x", false, "project:acme", false),
            ("template-acme--py:0123", false, "project:acme", true),
            ("template-py:0123", false, "", true),
            ("debian:12", false, "", false),
            ("docker.io/library/python:3", true, "", false),
            ("a--b.example/x:1", true, "", false),
        ] {
            let expected = (owner.to_string(), of_template);
            assert_eq!(of_older(name, came), expected, "{name}");
        }
    }

    #[test]
    fn names_of_other_projects_are_elsewhere() {
        let acme = Project::parse("acme").unwrap();
        for name in ["beta--py:1", "beta--team/py", "template-acme--py:0"] {
            assert!(is_elsewhere(Some(&acme), name), "{name}");
        }
        let mine = [
            "acme--py:1",
            "py:1",
            "ghcr.io/a--b/x",
            "xn--bcher-kva.example/x",
        ];
        for name in mine {
            assert!(!is_elsewhere(Some(&acme), name), "{name}");
        }
        assert!(is_elsewhere(None, "acme--py:1") && !is_elsewhere(None, "py:1"));
        assert_eq!(acme.short("acme--team/py:1"), "team/py:1");
        assert_eq!(acme.short("beta--py:1"), "beta--py:1");
        for refused in ["xn", "template-a"] {
            assert!(Project::parse(refused).unwrap().check_new().is_err());
        }
        assert!(acme.check_new().is_ok());
    }

    #[test]
    fn an_owner_is_read_back() {
        let acme = Project::parse("acme").unwrap();
        assert_eq!(Project::of_owner(&acme.owner()), Some(acme));
        assert_eq!(Project::of_owner("uid:0"), None);
    }
}
