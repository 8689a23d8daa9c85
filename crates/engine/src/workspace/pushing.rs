//! Pushes content of the host into a running workspace.
//!
//! The contents of the destination are known without walking it in the machine: the baseline is a
//! tree on this host, and the guest lists the differences from it.

use super::Workspaces;
use super::checks;
use super::room::in_words;
use crate::blocking::blocking;
use crate::driver::Handle;
use crate::kept::owner;
use crate::pipe;
use bytes::Bytes;
use motu_core::workspace::{SyncPush, SyncReport, WORKSPACE, WorkspaceId};
use motu_core::{Error, Result, limits};
use motu_link::message::{ChangedEntry, RESTORING};
use motu_workspaces::archive::{self, Limits};
use motu_workspaces::diff::Kind;
use motu_workspaces::sync::{self, Listed, Options, Plan};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NANOSECONDS: i64 = 1_000_000_000;

impl Workspaces {
    pub(super) async fn push(&self, id: &WorkspaceId, push: SyncPush) -> Result<SyncReport> {
        let source = checks::on_host(&push.source_path, "source_path")?;
        let below = match &push.dest {
            Some(dest) => checks::inside(dest)?,
            None => None,
        };
        let (room, handle) = self.room(id).await?;
        let _alone = room.edit.lock().await;
        let guest = handle.guest().map_err(in_words)?;
        let options = Options {
            gitignore: push.gitignore,
            owner: self.owner_inside(&handle).await?,
            limits: Limits {
                bytes: limits::SEED_BYTES.max,
                entries: limits::SEED_ENTRIES.max,
            },
        };
        if let Some(below) = &below {
            let place = checks::in_machine(&self.workdir(&handle), Some(below))?;
            guest.mkdir(&place, None).await?;
        }
        let prefix = below.map(|path| path.into_bytes()).unwrap_or_default();
        let mut report = SyncReport {
            workspace_id: id.clone(),
            mode: "directory".to_string(),
            source_path: push.source_path,
            destination: destination(&prefix),
            entry_count: 0,
            sent_count: 0,
            unchanged_count: 0,
            bytes_written: 0,
        };
        let is_directory = is_directory(&source)?;
        let changes = guest.changes(limits::SEED_ENTRIES.max).await?;
        if is_directory {
            let baseline = handle.launch().await?.kept.map(|kept| kept.baseline);
            let (plan, remove, prefix) = blocking(move || {
                let there = listing(&baseline.unwrap_or_default(), &changes, &prefix);
                let plan = sync::plan(&source, &there, options)?;
                let mut remove = in_the_way(&plan, &source, &there, &prefix);
                remove.extend(unfinished(&changes));
                Ok((plan, remove, prefix))
            })
            .await?;
            report.entry_count = plan.entries;
            report.unchanged_count = plan.unchanged;
            report.bytes_written = plan.bytes;
            if plan.is_empty() && remove.is_empty() {
                return Ok(report);
            }
            let archive = pipe::written(move |out| Ok(plan.write_to(&prefix, out).map(drop)?));
            let sent = guest.restore(remove, archive).await;
            report.sent_count = sent.map_err(|error| handle.explain(error))?.entries;
            return Ok(report);
        }
        report.mode = "tar_archive".to_string();
        let totals = {
            let source = source.clone();
            // Check the whole archive first, so that a bad entry is found before anything is
            // changed.
            blocking(move || {
                let archive = archive::open(&source)?;
                Ok(archive::read(archive, options.limits, |_, _| Ok(()))?)
            })
            .await?
        };
        let archive =
            pipe::written(move |out| Ok(sync::repack(&source, &prefix, options, out).map(drop)?));
        guest
            .restore(unfinished(&changes).collect(), archive)
            .await?;
        report.entry_count = totals.entries;
        report.sent_count = totals.entries;
        report.bytes_written = totals.bytes;
        Ok(report)
    }

    /// The owner of new files, as the machine sees it.
    async fn owner_inside(&self, handle: &Handle) -> Result<(u32, u32)> {
        let sandbox = handle.sandbox();
        if sandbox.on_host_files() {
            let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
            return Ok((uid.as_raw(), gid.as_raw()));
        }
        let owner = owner(&handle.launch().await?.root, &sandbox.user);
        Ok((owner.uid, owner.gid))
    }
}

fn destination(prefix: &[u8]) -> String {
    match prefix {
        [] => WORKSPACE.to_string(),
        path => format!("{WORKSPACE}/{}", String::from_utf8_lossy(path)),
    }
}

fn is_directory(source: &Path) -> Result<bool> {
    match std::fs::metadata(source) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::not_found(
            format!("{} does not exist", source.display()),
        )),
        Err(error) => Err(Error::with_file("cannot look at the source", &error)),
    }
}

/// The entries in the machine below a path: the baseline plus the changes.
fn listing(baseline: &Path, changes: &[ChangedEntry], prefix: &[u8]) -> Vec<Listed> {
    let mut there = BTreeMap::new();
    let mut begin = baseline.to_path_buf();
    if !prefix.is_empty() {
        begin.push(std::ffi::OsStr::from_bytes(prefix));
    }
    walk(&begin, &mut there);
    for entry in changes {
        let Some(path) = relative(&entry.path, prefix) else {
            continue;
        };
        match &entry.after {
            None => drop(there.remove(path)),
            Some(facts) => {
                let listed = Listed {
                    path: path.to_vec(),
                    mode: facts.mode,
                    size: facts.size,
                    modified_unix_ns: facts.modified_unix_ns,
                    symlink_target: facts.symlink_target.to_vec(),
                };
                there.insert(path.to_vec(), listed);
            }
        }
    }
    there.into_values().collect()
}

fn relative<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    match prefix {
        [] => Some(path),
        prefix => path.strip_prefix(prefix)?.strip_prefix(b"/"),
    }
}

/// Lists a tree on the host; unreadable entries are skipped.
fn walk(root: &Path, there: &mut BTreeMap<Vec<u8>, Listed>) {
    let mut rest: Vec<(PathBuf, Vec<u8>)> = vec![(root.to_path_buf(), Vec::new())];
    while let Some((directory, above)) = rest.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let mut path = above.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.file_name().as_bytes());
            if found.is_dir() {
                rest.push((entry.path(), path.clone()));
            }
            let target = match found.is_symlink() {
                true => std::fs::read_link(entry.path()).unwrap_or_default(),
                false => PathBuf::new(),
            };
            let listed = Listed {
                mode: found.mode(),
                size: found.len(),
                modified_unix_ns: found.mtime() * NANOSECONDS + found.mtime_nsec(),
                symlink_target: target.as_os_str().as_bytes().to_vec(),
                path: path.clone(),
            };
            there.insert(path, listed);
        }
    }
}

/// Paths that must be removed first: directories that become something else, and other entries that
/// become directories. Everything else is replaced in place.
fn in_the_way(plan: &Plan, source: &Path, there: &[Listed], prefix: &[u8]) -> Vec<Bytes> {
    let kinds: BTreeMap<&[u8], Kind> = there
        .iter()
        .map(|listed| (listed.path.as_slice(), Kind::of(listed.mode)))
        .collect();
    let differs = plan.paths().filter(|path| {
        let Some(old) = kinds.get(path) else {
            return false;
        };
        let full = source.join(std::ffi::OsStr::from_bytes(path));
        let new = full.symlink_metadata().map(|found| Kind::of(found.mode()));
        new.is_ok_and(|new| new != *old && [new, *old].contains(&Kind::Directory))
    });
    differs
        .map(|path| match prefix {
            [] => Bytes::copy_from_slice(path),
            prefix => Bytes::from([prefix, b"/", path].concat()),
        })
        .collect()
}

/// Temporary files of a push that was interrupted by the machine's end. Pushes take turns, so no
/// other one is running.
fn unfinished(changes: &[ChangedEntry]) -> impl Iterator<Item = Bytes> {
    let named = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next();
        name.is_some_and(|name| name.starts_with(RESTORING))
    };
    changes
        .iter()
        .filter(move |entry| entry.before.is_none() && named(&entry.path))
        .map(|entry| entry.path.clone())
}
