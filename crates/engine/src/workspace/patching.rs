//! Patches, edits and diffs of `/workspace`.

use super::Workspaces;
use super::checks;
use super::room::in_words;
use crate::guest::Guest;
use crate::guest::workspace::collect;
use bytes::Bytes;
use futures_util::future::try_join_all;
use motu_core::files::{FileType, GuestPath, ReadRange};
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Result, limits};
use motu_link::message as link;
use motu_workspaces::WorkspacePath;
use motu_workspaces::diff::{self, Builder};
use motu_workspaces::patch::{self, Action, Patch};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Files fetched concurrently for a diff.
const AT_ONCE: usize = 16;
/// The permission bits a rename or copy takes along.
const MODE: u32 = 0o777;

/// A file's state before it is changed.
#[derive(Clone, Debug)]
struct Found {
    content: Bytes,
    mode: u32,
}

impl Workspaces {
    pub(super) async fn apply_patch(&self, id: &WorkspaceId, text: &str) -> Result<PatchReport> {
        let limit = limits::PATCH_BYTES;
        if text.len() as u64 > limit.max {
            return Err(Error::limit(format!(
                "the patch has {} bytes; {} allows {}",
                text.len(),
                limit.name,
                limit.max
            ))
            .hint("apply it in parts"));
        }
        let patch = Patch::parse(text.as_bytes())?;
        let (room, handle) = self.room(id).await?;
        let _alone = room.edit.lock().await;
        let guest = handle.guest().map_err(in_words)?;
        let paths = patch.paths().into_iter().cloned().collect();
        let found = read_files(&guest, &self.workdir(&handle), paths).await?;
        let applied = patch::apply(&patch, |path| {
            let file = found.get(path)?.as_ref()?;
            Some(file.content.to_vec())
        })?;
        let mut operations = Vec::new();
        let mut contents = Vec::new();
        for change in &applied.changes {
            let before = found.get(&change.path).and_then(Option::as_ref);
            let (operation, content) = operation(change, before, &found);
            operations.push(operation);
            contents.extend(content);
        }
        let done = carry_out(&guest, operations, contents).await;
        done.map_err(|error| handle.explain(error))?;
        Ok(report(id, &applied.files))
    }

    pub(super) async fn edit(&self, id: &WorkspaceId, edits: Vec<Edit>) -> Result<PatchReport> {
        if edits.is_empty() {
            return Err(Error::invalid("there is nothing to edit"));
        }
        let mut by_path: BTreeMap<WorkspacePath, Vec<motu_workspaces::edit::Edit>> =
            BTreeMap::new();
        for edit in edits {
            let wanted = motu_workspaces::edit::Edit {
                old: edit.old,
                new: edit.new,
                count: edit.count.unwrap_or(1) as usize,
            };
            by_path
                .entry(checks::below(&edit.path)?)
                .or_default()
                .push(wanted);
        }
        let (room, handle) = self.room(id).await?;
        let _alone = room.edit.lock().await;
        let guest = handle.guest().map_err(in_words)?;
        let found = read_files(
            &guest,
            &self.workdir(&handle),
            by_path.keys().cloned().collect(),
        )
        .await?;
        let (mut operations, mut contents, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for (path, edits) in &by_path {
            let Some(Some(file)) = found.get(path) else {
                return Err(Error::not_found(format!("{path}: the file does not exist")));
            };
            let after = motu_workspaces::edit::apply(&file.content, edits).map_err(|error| {
                let error = Error::from(error);
                Error {
                    message: format!("{path}: {}", error.message),
                    ..error
                }
            })?;
            operations.push(link::Operation {
                size: after.len() as u64,
                expect_sha256: sha256(&file.content),
                ..write(path, 0)
            });
            contents.push(Bytes::from(after));
            entries.push(PatchedFile {
                path: path.to_string(),
                status: "modified".to_string(),
                from: None,
            });
        }
        let done = carry_out(&guest, operations, contents).await;
        done.map_err(|error| handle.explain(error))?;
        Ok(PatchReport {
            workspace_id: id.clone(),
            changed: true,
            added: 0,
            modified: entries.len() as u64,
            deleted: 0,
            renamed: 0,
            entries,
        })
    }

    pub(super) async fn diff(&self, id: &WorkspaceId, options: DiffOptions) -> Result<DiffReport> {
        let budget = limits::DIFF_BYTES.resolve(options.max_bytes)?;
        let (room, handle) = self.room(id).await?;
        let guest = handle.guest().map_err(in_words)?;
        let changes = guest.changes(limits::SEED_ENTRIES.max).await?;
        let mut builder = Builder::new(budget as usize);
        let root = self.workdir(&handle);
        for batch in changes.chunks(AT_ONCE) {
            let reads = batch.iter().map(|entry| {
                let wants = builder.wants(entry);
                both_sides(&guest, &root, entry.path.clone(), wants)
            });
            let contents = try_join_all(reads.collect::<Vec<_>>()).await?;
            for (entry, (before, after)) in batch.iter().zip(contents) {
                builder.push(entry, before.as_deref(), after.as_deref());
            }
        }
        let report = diff_report(id, BASELINE, "current", builder.finish());
        Ok(DiffReport {
            // Secrets written to files appear in the diff, so redact it.
            patch: room.secrets.redact(&report.patch),
            ..report
        })
    }
}

/// Both versions of a changed path, as far as the report needs them.
async fn both_sides(
    guest: &Guest,
    root: &str,
    path: Bytes,
    wants: diff::Wants,
) -> Result<(Option<Bytes>, Option<Bytes>)> {
    let max = diff::MAX_COMPARED_BYTES;
    let before = match wants.before {
        true => Some(guest.read_base(&path, max).await?),
        false => None,
    };
    let after = match wants.after {
        true => {
            let path = WorkspacePath::parse(&path)
                .map_err(|_| Error::transport("the guest named a path that is none"))?;
            // A file that was removed meanwhile reads as empty; the next diff shows its removal.
            Some(
                read_file(guest, root, &path, max)
                    .await?
                    .map_or(Bytes::new(), |file| file.content),
            )
        }
        false => None,
    };
    Ok((before, after))
}

pub(super) fn diff_report(
    id: &WorkspaceId,
    from: &str,
    to: &str,
    report: diff::Report,
) -> DiffReport {
    let most = limits::DIFF_ENTRIES.max as usize;
    let truncated = report.truncated || report.entries.len() > most;
    let totals = report.totals;
    let patch = report.patch();
    let entries = report
        .entries
        .into_iter()
        .take(most)
        .map(diff_entry)
        .collect();
    DiffReport {
        workspace_id: id.clone(),
        from: from.to_string(),
        to: to.to_string(),
        changed: totals != diff::Totals::default(),
        added: totals.added as u64,
        modified: totals.modified as u64,
        deleted: totals.deleted as u64,
        type_changed: totals.type_changed as u64,
        mode_changed: totals.mode_changed as u64,
        entries,
        patch,
        truncated,
    }
}

fn diff_entry(entry: diff::Entry) -> DiffEntry {
    let side = entry.after.as_ref().or(entry.before.as_ref());
    let kind = match side.map(|side| side.kind) {
        Some(diff::Kind::File) => FileType::File,
        Some(diff::Kind::Directory) => FileType::Directory,
        Some(diff::Kind::Symlink) => FileType::Symlink,
        Some(diff::Kind::Other) | None => FileType::Other,
    };
    DiffEntry {
        path: entry.path,
        status: match entry.status {
            diff::Status::Added => DiffStatus::Added,
            diff::Status::Modified => DiffStatus::Modified,
            diff::Status::Deleted => DiffStatus::Deleted,
            diff::Status::TypeChanged => DiffStatus::TypeChanged,
            diff::Status::ModeChanged => DiffStatus::ModeChanged,
        },
        kind,
        size_before: entry.before.as_ref().map(|side| side.size),
        size_after: entry.after.as_ref().map(|side| side.size),
        mode_before: entry.before.as_ref().map(|side| side.mode & MODE),
        mode_after: entry.after.as_ref().map(|side| side.mode & MODE),
        binary: entry.binary,
        omitted: entry.truncated,
    }
}

/// The guest's operation for a change of a patch, and its content.
fn operation(
    change: &patch::Change,
    before: Option<&Found>,
    found: &BTreeMap<WorkspacePath, Option<Found>>,
) -> (link::Operation, Option<Bytes>) {
    let expect_sha256 = before.map(|file| sha256(&file.content)).unwrap_or_default();
    match &change.action {
        Action::Delete => {
            let operation = link::Operation {
                kind: link::OperationKind::Delete as i32,
                path: Bytes::copy_from_slice(change.path.as_bytes()),
                expect_sha256,
                ..link::Operation::default()
            };
            (operation, None)
        }
        Action::Write {
            contents,
            mode,
            created,
            mode_from,
        } => {
            let like = mode_from
                .as_ref()
                .and_then(|path| found.get(path)?.as_ref())
                .map(|file| file.mode & MODE);
            let operation = link::Operation {
                size: contents.len() as u64,
                expect_absent: *created,
                expect_sha256,
                ..write(&change.path, mode.or(like).unwrap_or(0))
            };
            (operation, Some(Bytes::copy_from_slice(contents)))
        }
    }
}

pub(super) fn write(path: &WorkspacePath, mode: u32) -> link::Operation {
    link::Operation {
        kind: link::OperationKind::Write as i32,
        path: Bytes::copy_from_slice(path.as_bytes()),
        mode,
        ..link::Operation::default()
    }
}

/// Makes the guest execute the operations, all or none.
pub(super) async fn carry_out(
    guest: &Guest,
    operations: Vec<link::Operation>,
    contents: Vec<Bytes>,
) -> Result<()> {
    let Some(refused) = guest.apply(operations, contents).await? else {
        return Ok(());
    };
    let path = String::from_utf8_lossy(&refused.path).into_owned();
    let details = serde_json::json!({ "path": path });
    let error = match link::RefusedWhy::try_from(refused.why) {
        Ok(link::RefusedWhy::Present) => Error::conflict(format!("{path}: something is there")),
        Ok(link::RefusedWhy::Absent) => Error::conflict(format!("{path}: it is gone")),
        Ok(link::RefusedWhy::Differs) => {
            Error::conflict(format!("{path}: the file changed meanwhile"))
        }
        Ok(link::RefusedWhy::NotAFile) => Error::invalid(format!("{path}: it is not a file")),
        _ => Error::internal(format!("{path}: the guest could not write it")),
    };
    Err(error
        .hint("nothing was changed; read the file again")
        .details(details))
}

async fn read_files(
    guest: &Guest,
    root: &str,
    paths: Vec<WorkspacePath>,
) -> Result<BTreeMap<WorkspacePath, Option<Found>>> {
    let max = patch::MAX_PATCHED_BYTES as u64;
    let mut found = BTreeMap::new();
    for batch in paths.chunks(AT_ONCE) {
        let reads = batch.iter().map(|path| read_file(guest, root, path, max));
        let files = try_join_all(reads.collect::<Vec<_>>()).await?;
        found.extend(batch.iter().cloned().zip(files));
    }
    Ok(found)
}

/// A regular file, or nothing where there is none; anything else cannot be edited as text.
async fn read_file(
    guest: &Guest,
    root: &str,
    path: &WorkspacePath,
    max: u64,
) -> Result<Option<Found>> {
    let place: GuestPath = checks::in_machine(root, Some(path))?;
    let entry = match guest.stat(&place, false).await {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let what = match entry.kind {
        FileType::File => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Other => Some("not a regular file"),
    };
    if let Some(what) = what {
        return Err(Error::invalid(format!("{path}: it is {what}"))
            .hint("nothing was changed; only regular files can be patched"));
    }
    if entry.size_bytes > max {
        return Err(Error::limit(format!(
            "{path}: it has {} bytes; files up to {max} can be patched",
            entry.size_bytes
        )));
    }
    let range = ReadRange {
        offset: 0,
        length: Some(max),
    };
    let (file, stream) = guest.read(&place, range).await?;
    Ok(Some(Found {
        content: collect(stream, max).await?,
        mode: file.mode,
    }))
}

pub(super) fn sha256(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&Sha256::digest(bytes))
}

fn report(id: &WorkspaceId, files: &[patch::FileSummary]) -> PatchReport {
    let count = |status: &str| files.iter().filter(|file| file.status == status).count() as u64;
    let entries = files.iter().map(|file| PatchedFile {
        path: file.path.clone(),
        status: file.status.to_string(),
        from: file.from.clone(),
    });
    PatchReport {
        workspace_id: id.clone(),
        changed: !files.is_empty(),
        added: count("added") + count("copied"),
        modified: count("modified"),
        deleted: count("deleted"),
        renamed: count("renamed"),
        entries: entries.collect(),
    }
}
