//! Public descriptions of environments.
//!
//! Converts records and catalog entries to descriptions. It never reads a disk.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    about::ImageInfo,
    catalog::CatalogEntry,
    error::EnvironmentError,
    store::{BlobRecord, NameRecord},
};

/// Estimated duration of a pull of an image, for messages before it.
const IMAGE_SECONDS: u64 = 30;

/// The description of an environment, installed or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EnvironmentInfo {
    pub name: String,
    /// Whose it is; empty for the host's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The template whose setup made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_for: Option<String>,
    pub description: String,
    pub installed: bool,
    /// Installed, but made from an older recipe: a pull would rebuild it.
    pub outdated: bool,
    /// Content digest, `sha256:<hex>`, when installed.
    pub digest: Option<String>,
    /// Bytes of file contents; an estimate while not installed.
    pub size_bytes: u64,
    /// Estimated duration of a pull.
    pub pull_seconds: u64,
    /// When it was built, RFC 3339.
    pub created_at: Option<String>,
    /// Number of Debian packages in it.
    pub packages_count: Option<u64>,
    /// Versions of the packages the recipe asks for by name.
    pub packages: BTreeMap<String, String>,
    pub default_user: String,
    pub default_workdir: String,
    pub architecture: String,
    pub os: String,
    /// Where its packages, or the whole of it, come from.
    pub source: String,
    /// Sandboxes need working setuid programs.
    pub wants_sudo: bool,
    /// What it was unpacked from, when that was an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageInfo>,
}

/// An installed environment, ready to start sandboxes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub name: String,
    /// Whose it is; empty for the host's.
    pub owner: String,
    /// Content digest, `sha256:<hex>`.
    pub digest: String,
    /// The root filesystem. Nobody may write to it.
    pub root: PathBuf,
    pub default_user: String,
    pub default_workdir: String,
    pub env: BTreeMap<String, String>,
    /// What an image runs before `cmd`, or with it; empty for the catalog's.
    pub entrypoint: Vec<String>,
    /// What an image runs when nothing else is asked for.
    pub cmd: Vec<String>,
    /// Sandboxes need working setuid programs, so `no_new_privs` must stay off.
    pub wants_sudo: bool,
}

/// Describes a catalog entry that is not installed.
pub(crate) fn catalog_info(entry: &CatalogEntry) -> EnvironmentInfo {
    EnvironmentInfo {
        name: entry.name.clone(),
        owner: String::new(),
        made_for: None,
        description: entry.description.clone(),
        installed: false,
        outdated: false,
        digest: None,
        size_bytes: entry.approximate_bytes,
        pull_seconds: entry.approximate_seconds,
        created_at: None,
        packages_count: None,
        packages: BTreeMap::new(),
        default_user: entry.default_user.clone(),
        default_workdir: entry.default_workdir.clone(),
        architecture: std::env::consts::ARCH.to_owned(),
        os: entry.source(),
        source: entry.source(),
        wants_sudo: entry.wants_sudo,
        image: None,
    }
}

/// Describes an installed environment.
pub(crate) fn installed_info(
    record: NameRecord,
    blob: &BlobRecord,
    entry: Option<&CatalogEntry>,
) -> Result<EnvironmentInfo, EnvironmentError> {
    let said = match &record.image {
        Some(image) => image_info(image),
        None => catalog_info(recipe_of(blob, entry)?),
    };
    let recipe = blob.recipe.as_ref();
    let is_asked_for = |name| recipe.is_some_and(|recipe| recipe.packages.contains(name));
    let named = blob
        .packages
        .iter()
        .filter(|package| is_asked_for(&package.name))
        .map(|package| (package.name.clone(), package.version.clone()));
    // That others made the same files before is nobody's business.
    let created_at = match record.owner() {
        "" => blob.created_at.clone(),
        _ => record.pulled_at.clone(),
    };
    Ok(EnvironmentInfo {
        installed: true,
        outdated: entry.is_some_and(|entry| entry.recipe_hash() != record.recipe_hash),
        digest: Some(record.digest),
        size_bytes: blob.size_bytes,
        created_at: Some(created_at),
        owner: record.owner.unwrap_or_default(),
        made_for: record.made_for,
        packages_count: Some(blob.packages.len() as u64),
        packages: named.collect(),
        architecture: blob.architecture.clone(),
        os: blob.os.clone(),
        name: record.name,
        ..said
    })
}

/// What sandboxes need of an installed environment.
pub(crate) fn environment(
    record: NameRecord,
    blob: &BlobRecord,
    entry: Option<&CatalogEntry>,
    root: PathBuf,
) -> Result<Environment, EnvironmentError> {
    let base = Environment {
        name: record.name,
        owner: record.owner.unwrap_or_default(),
        digest: record.digest,
        root,
        default_user: String::new(),
        default_workdir: String::new(),
        env: BTreeMap::new(),
        entrypoint: Vec::new(),
        cmd: Vec::new(),
        wants_sudo: false,
    };
    if let Some(image) = record.image {
        return Ok(Environment {
            default_user: image.default_user,
            default_workdir: image.default_workdir,
            env: image.env,
            entrypoint: image.entrypoint,
            cmd: image.cmd,
            wants_sudo: image.wants_sudo,
            ..base
        });
    }
    let recipe = recipe_of(blob, entry)?.clone();
    Ok(Environment {
        default_user: recipe.default_user,
        default_workdir: recipe.default_workdir,
        env: recipe.env,
        wants_sudo: recipe.wants_sudo,
        ..base
    })
}

/// The recipe of a blob. If an image with the very same files was installed first, the catalog has
/// it.
fn recipe_of<'a>(
    blob: &'a BlobRecord,
    entry: Option<&'a CatalogEntry>,
) -> Result<&'a CatalogEntry, EnvironmentError> {
    blob.recipe
        .as_ref()
        .or(entry)
        .ok_or_else(|| EnvironmentError::Corrupt {
            digest: blob.digest.clone(),
            reason: "nothing says how it is used".to_owned(),
        })
}

fn image_info(image: &ImageInfo) -> EnvironmentInfo {
    EnvironmentInfo {
        name: image.reference.clone(),
        owner: String::new(),
        made_for: None,
        description: image.description(),
        installed: true,
        outdated: false,
        digest: None,
        size_bytes: 0,
        pull_seconds: IMAGE_SECONDS,
        created_at: None,
        packages_count: None,
        packages: BTreeMap::new(),
        default_user: image.default_user.clone(),
        default_workdir: image.default_workdir.clone(),
        architecture: std::env::consts::ARCH.to_owned(),
        os: String::new(),
        source: image.source(),
        wants_sudo: image.wants_sudo,
        image: Some(image.clone()),
    }
}
