//! What an environment is called, and whose it is.
//!
//! Names are unique in a store; whose an environment is, is a field of its record and is never read
//! from the name. This crate does not decide who sees what: callers ask for the owner.

use crate::error::EnvironmentError;

/// A name and its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Title {
    /// What it is called in the store. Names of a project are written with the project before them.
    pub name: String,
    /// The part of the name that its owner wrote.
    pub short: String,
    /// Whose it is; empty for the host's.
    pub owner: String,
    /// The template whose setup made it, which it goes with.
    pub made_for: Option<String>,
}

impl Title {
    /// What is the host's.
    pub fn of_host(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            short: name.clone(),
            name,
            owner: String::new(),
            made_for: None,
        }
    }

    /// Refuses a name that is somebody else's already.
    pub(crate) fn check(&self, owner: Option<&str>) -> Result<(), EnvironmentError> {
        match owner == Some(self.owner.as_str()) {
            true => Ok(()),
            false => Err(EnvironmentError::NameTaken {
                name: self.name.clone(),
            }),
        }
    }
}

/// Says of an environment that is older than owners whose it is, and whether a template's setup made
/// it: from its name, and whether that names a registry or a place on the host.
pub type OfOlder = fn(&str, bool) -> (String, bool);
