//! The catalog: which environments motu can build, as data.
//!
//! Owns parsing and checking of the embedded `catalog.toml`. It never builds
//! anything and does not know what is installed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{digest::hex, name};

const EMBEDDED: &str = include_str!("../catalog.toml");
const FORMAT_VERSION: u32 = 1;

/// Raised when the builder itself changes the result of a recipe, so that the next pull rebuilds
/// installed environments.
const BUILDER_REVISION: u32 = 1;

/// How the root filesystem of an entry is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Variant {
    /// One static program and links to it.
    Busybox,
    /// Debian's required packages and apt, plus the packages of the entry.
    Minbase,
}

/// One environment that can be pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CatalogEntry {
    pub name: String,
    pub description: String,
    /// Debian suite the packages come from.
    pub suite: String,
    pub variant: Variant,
    /// Packages beyond those of the variant.
    pub packages: Vec<String>,
    /// The default user of commands.
    pub default_user: String,
    pub default_workdir: String,
    /// Sandboxes need working setuid programs, so `no_new_privs` must stay off.
    pub wants_sudo: bool,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Size when unpacked, for messages before the pull.
    pub approximate_bytes: u64,
    /// Duration of a pull on an ordinary host, for messages before the pull.
    pub approximate_seconds: u64,
}

impl CatalogEntry {
    /// Identifies the inputs of a build. Descriptions and estimates are left out: they do not
    /// change the result.
    pub(crate) fn recipe_hash(&self) -> String {
        let recipe = serde_json::json!([
            BUILDER_REVISION,
            self.suite,
            self.variant,
            self.packages,
            self.default_user,
            self.default_workdir,
            self.wants_sudo,
            self.env,
        ]);
        hex(&Sha256::digest(recipe.to_string().as_bytes()))
    }

    /// Where the packages come from, for people.
    pub(crate) fn source(&self) -> String {
        format!("debian {}", self.suite)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFile {
    format_version: u32,
    environment: Vec<CatalogEntry>,
}

/// The catalog carried in the program.
pub(crate) fn embedded() -> Vec<CatalogEntry> {
    parse(EMBEDDED).expect("the embedded catalog is checked by a test")
}

fn parse(text: &str) -> Result<Vec<CatalogEntry>, String> {
    let file: CatalogFile = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.format_version != FORMAT_VERSION {
        return Err(format!(
            "format version {} is not known",
            file.format_version
        ));
    }
    let mut seen = BTreeSet::new();
    for entry in &file.environment {
        name::validate(&entry.name).map_err(|error| error.to_string())?;
        if !seen.insert(&entry.name) {
            return Err(format!("{} is listed twice", entry.name));
        }
        // These words are used in command lines.
        for word in entry
            .packages
            .iter()
            .chain([&entry.suite, &entry.default_user])
        {
            if !is_package_word(word) {
                return Err(format!("{}: {word:?} is not a valid word", entry.name));
            }
        }
        if !entry.default_workdir.starts_with('/') {
            return Err(format!("{}: workdir is not absolute", entry.name));
        }
    }
    Ok(file.environment)
}

fn is_package_word(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && word
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+.-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_catalog_is_valid() {
        let names: Vec<_> = parse(EMBEDDED)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["busybox", "debian:12-base", "debian:12"]);
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = EMBEDDED.replace("wants_sudo = true", "wants_sudo = true\nwants_root = true");
        let error = parse(&text).unwrap_err();
        assert!(error.contains("wants_root"), "{error}");
    }

    #[test]
    fn other_versions_duplicates_and_odd_words_are_refused() {
        let newer = EMBEDDED.replace("format_version = 1", "format_version = 2");
        assert!(parse(&newer).unwrap_err().contains("version 2"));
        let twice = EMBEDDED.replace("debian:12-base", "busybox");
        assert!(parse(&twice).unwrap_err().contains("twice"));
        let odd = EMBEDDED.replace("\"git\"", "\"--git\"");
        assert!(parse(&odd).unwrap_err().contains("--git"));
    }

    #[test]
    fn the_recipe_hash_ignores_words_and_sees_packages() {
        let entry = embedded().remove(2);
        let mut reworded = entry.clone();
        reworded.description.push('!');
        reworded.approximate_seconds += 1;
        assert_eq!(entry.recipe_hash(), reworded.recipe_hash());
        let mut changed = entry.clone();
        changed.packages.push("jq".into());
        assert_ne!(entry.recipe_hash(), changed.recipe_hash());
    }
}
