//! Finds policies.

use crate::file::{Known, parse};
use motu_core::policy::PolicySummary;
use motu_core::{Error, ErrorKind, Result, limits};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Built-in policies; a file of the same name overrides one.
const SHIPPED: [(&str, &str); 3] = [
    (
        motu_core::policy::NONE,
        include_str!("../shipped/none.toml"),
    ),
    ("packages", include_str!("../shipped/packages.toml")),
    (
        motu_core::policy::PUBLIC,
        include_str!("../shipped/public.toml"),
    ),
];

const ENDING: &str = ".toml";

/// The policies of one state directory. Files are read on every use, so a change applies from the
/// next call on.
#[derive(Clone, Debug)]
pub struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    pub fn new(dir: PathBuf) -> Shelf {
        Shelf { dir }
    }

    /// The current policy of this name. Blocks.
    pub fn get(&self, name: &str) -> Result<Known> {
        check_name(name)?;
        match self.read(name)? {
            Some(text) => parse(name, "file", &text),
            None => match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
                Some((_, text)) => parse(name, "shipped", text),
                None => Err(self.unknown(name)),
            },
        }
    }

    /// Lists all policies by name; an invalid one has the reason. Blocks.
    pub fn list(&self) -> Result<Vec<PolicySummary>> {
        let names = SHIPPED.iter().map(|(name, _)| name.to_string());
        let mut names: Vec<String> = names.chain(self.files()?).collect();
        names.sort();
        names.dedup();
        let summary = |name: String| match self.get(&name) {
            Ok(known) => known.summary(),
            Err(error) => PolicySummary {
                name,
                hash: String::new(),
                source: "file".to_string(),
                description: String::new(),
                capabilities: Vec::new(),
                error: Some(error.message),
            },
        };
        Ok(names.into_iter().map(summary).collect())
    }

    fn read(&self, name: &str) -> Result<Option<String>> {
        let path = self.dir.join(format!("{name}{ENDING}"));
        let file = match std::fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| Error::io(path.display().to_string(), &error))?,
        };
        let mut text = String::new();
        let bounded = io::Read::take(file, limits::POLICY_BYTES.max + 1);
        io::read_to_string(bounded)
            .map(|read| text.push_str(&read))
            .map_err(|error| Error::io(path.display().to_string(), &error))?;
        Ok(Some(text))
    }

    /// The names of policy files, up to a limit.
    fn files(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| Error::io(self.dir.display().to_string(), &error))?,
        };
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(ENDING)?;
            check_name(name).ok()?;
            Some(name.to_string())
        });
        Ok(names.take(limits::POLICIES.max as usize).collect())
    }

    fn unknown(&self, name: &str) -> Error {
        let names = self.list().unwrap_or_default();
        let names: BTreeMap<_, ()> = names.into_iter().map(|one| (one.name, ())).collect();
        let names: Vec<_> = names.into_keys().collect();
        Error::new(ErrorKind::NotFound, format!("there is no policy {name:?}")).hint(format!(
            "one of: {}; or write {}",
            names.join(", "),
            self.dir.join(format!("{name}{ENDING}")).display()
        ))
    }
}

/// Checks a name, which becomes part of a path and must not lead elsewhere.
fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match !name.is_empty() && name.len() <= 64 && name.chars().all(fine) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{:?} is no name of a policy",
            name.chars().take(70).collect::<String>()
        ))
        .hint("letters, digits, '-' and '_', at most 64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_shipped_can_be_used() {
        let shelf = Shelf::new("/nowhere".into());
        let names: Vec<_> = shelf.list().unwrap();
        assert!(
            names.iter().all(|policy| policy.error.is_none()),
            "{names:?}"
        );
        let names: Vec<_> = names.iter().map(|policy| &*policy.name).collect();
        assert_eq!(names, ["none", "packages", "public"]);
    }

    #[test]
    fn a_file_is_used_in_the_place_of_what_is_shipped_and_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().to_path_buf());
        let shipped = shelf.get("public").unwrap();
        assert_eq!(shipped.policy.source, "shipped");
        std::fs::write(dir.path().join("public.toml"), "version = 1").unwrap();
        let own = shelf.get("public").unwrap();
        assert_eq!(own.policy.source, "file");
        assert_eq!(own.rules.allow, []);
        assert_ne!(own.policy.hash, shipped.policy.hash);
    }

    #[test]
    fn a_broken_file_is_listed_with_the_reason_and_never_replaced_by_what_is_shipped() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(dir.path().to_path_buf());
        std::fs::write(dir.path().join("public.toml"), "version =").unwrap();
        assert!(shelf.get("public").is_err());
        let listed = shelf.list().unwrap();
        let broken = listed.iter().find(|policy| policy.name == "public");
        assert!(broken.unwrap().error.is_some());
        assert_eq!(listed.len(), 3);
    }

    #[test]
    fn names_lead_nowhere_else() {
        let shelf = Shelf::new("/etc".into());
        for name in ["../passwd", "", "a/b", "a.b", "ä", &"x".repeat(65)] {
            assert_eq!(shelf.get(name).unwrap_err().kind, ErrorKind::Invalid);
        }
        let error = shelf.get("packages2").unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert!(error.hint.unwrap().contains("packages"));
    }
}
