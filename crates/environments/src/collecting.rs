//! Taking away what nobody needs: names, trees without a name, caches.
//!
//! Owns the rule that nothing goes that a sandbox uses or that work in progress holds. What is held
//! is looked up under the same lock under which it would be removed.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    environments::{Environments, blocking},
    error::{EnvironmentError, IoContext as _},
    name, privilege,
    store::{NameRecord, Store},
};

/// How caches are called that are being removed.
const REMOVED: &str = ".removed-";

/// What a prune or a removal freed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pruned {
    /// Names that are no longer installed.
    pub names: Vec<String>,
    /// Whose each of them was; empty for the host's.
    pub owners: Vec<String>,
    /// Digests that were removed.
    pub digests: Vec<String>,
    /// Disk space freed.
    pub bytes: u64,
}

impl Environments {
    /// Removes one installed environment, unless its digest is in use.
    pub async fn remove(
        &self,
        name: &str,
        in_use: &HashSet<String>,
    ) -> Result<Pruned, EnvironmentError> {
        name::validate(name)?;
        let (store, in_use) = (self.store().clone(), in_use.clone());
        let name = self.stored_name(name);
        blocking(move || remove(&store, name, &in_use)).await
    }

    /// Removes blobs without a name; with `all`, also every installed environment and all cached
    /// packages and layers. A digest in use is never removed, and nothing that work in progress
    /// holds.
    pub async fn prune(
        &self,
        in_use: &HashSet<String>,
        all: bool,
    ) -> Result<Pruned, EnvironmentError> {
        let (store, in_use) = (self.store().clone(), in_use.clone());
        blocking(move || {
            let mut pruned = sweep(
                &store,
                |names| {
                    names.retain(|name| all && !in_use.contains(&name.digest));
                },
                &in_use,
            )?;
            if all {
                pruned.bytes += store.remove_caches()?;
            }
            Ok(pruned)
        })
        .await
    }
}

impl Store {
    /// Removes every cache that no work in progress holds. Answers how much space that frees.
    pub fn remove_caches(&self) -> Result<u64, EnvironmentError> {
        let top = self.caches();
        let mut caches = vec![self.package_cache(), self.layer_cache(), self.build_cache()];
        let projects = self.build_caches_of_projects();
        caches.extend(directories(&projects));
        let mut bytes = 0;
        for cache in caches {
            let aside = top.join(format!("{REMOVED}{}", Uuid::now_v7().simple()));
            let moved = self
                .holds()
                .unless_held(&cache, || fs::rename(&cache, &aside));
            match moved {
                Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).at("removing", &cache);
                }
                _ => {}
            }
        }
        // Also what a daemon that died has left.
        for aside in directories(&top) {
            let name = aside.file_name().unwrap_or_default().as_encoded_bytes();
            if name.starts_with(REMOVED.as_bytes()) {
                bytes += privilege::disk_usage(&aside);
                self.privilege().remove_tree(&aside)?;
            }
        }
        Ok(bytes)
    }
}

/// The directories in a directory; none if it cannot be read.
fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

/// Removes one name, and its blob if that was the last.
fn remove(
    store: &Store,
    name: String,
    in_use: &HashSet<String>,
) -> Result<Pruned, EnvironmentError> {
    // Deleting takes long and happens when `staging` is dropped, after the lock is released.
    let staging = store.stage()?;
    let _guard = store.lock()?;
    let Some(record) = store.name(&name)? else {
        return Err(EnvironmentError::NotInstalled { name });
    };
    let (digest, owner) = (record.digest, record.owner.unwrap_or_default());
    // Another name may still refer to it, as one may that cannot be read.
    let mut others = store.names()?.into_iter().filter(|other| *other != name);
    let named = others.any(|other| match store.name(&other) {
        Ok(other) => other.is_some_and(|other| other.digest == digest),
        Err(_) => true,
    });
    let needed = in_use.contains(&digest) || store.holds().all().contains(&digest);
    if needed && !named {
        return Err(EnvironmentError::InUse { name, digest });
    }
    store.remove_name(&name)?;
    let mut pruned = Pruned {
        names: vec![name],
        owners: vec![owner],
        ..Pruned::default()
    };
    if !needed && !named && store.blob(&digest).exists() {
        pruned.bytes = privilege::disk_usage(&store.blob(&digest));
        store.discard_blob(&digest, &staging)?;
        pruned.digests.push(digest);
    }
    Ok(pruned)
}

/// Removes the names that `choose` leaves in the list, then every blob that no remaining name or
/// sandbox needs.
fn sweep(
    store: &Store,
    choose: impl FnOnce(&mut Vec<NameRecord>),
    in_use: &HashSet<String>,
) -> Result<Pruned, EnvironmentError> {
    // Deleting takes long and happens when `staging` is dropped, after the lock is released.
    let staging = store.stage()?;
    let mut pruned = Pruned::default();
    let _guard = store.lock()?;
    let mut all = Vec::new();
    for name in store.names()? {
        // An unreadable record stops here: its blob might be needed.
        all.extend(store.name(&name)?);
    }
    let mut needed: HashSet<String> = in_use.clone();
    needed.extend(store.holds().all());
    let mut chosen = all.clone();
    choose(&mut chosen);
    chosen.retain(|record| !needed.contains(&record.digest));
    for record in all {
        if chosen.contains(&record) {
            store.remove_name(&record.name)?;
            pruned.names.push(record.name);
            pruned.owners.push(record.owner.unwrap_or_default());
        } else {
            needed.insert(record.digest);
        }
    }
    for digest in store.blobs()? {
        if !needed.contains(&digest) {
            pruned.bytes += privilege::disk_usage(&store.blob(&digest));
            store.discard_blob(&digest, &staging)?;
            pruned.digests.push(digest);
        }
    }
    Ok(pruned)
}

#[cfg(test)]
#[path = "collecting_tests.rs"]
mod tests;
