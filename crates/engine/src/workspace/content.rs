//! Files of a running workspace: read, write, push, export.

use super::Workspaces;
use super::checks;
use super::patching::{carry_out, write};
use super::room::in_words;
use crate::blocking::blocking;
use crate::guest::Guest;
use crate::guest::workspace::collect;
use crate::kept::Owner;
use crate::pipe;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use motu_core::files::{FileEntry, FileType, GuestPath, ListOptions, ReadRange};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::workspace::*;
use motu_core::{Error, Result, limits};
use motu_link::message as link;
use motu_workspaces::archive::Limits;
use motu_workspaces::output::{Replace, unpack_file, unpack_tree};
use motu_workspaces::seed::{Mode, Options};
use std::path::Path;

/// The depth limit of a guest's listing.
const ALL_LEVELS: u32 = 64;

/// Makes a baseline's tree from a directory or an archive of the host.
pub(super) fn seed(source: &Path, tree: &Path, owner: Owner) -> Result<WorkspaceSeed> {
    let seeded = motu_workspaces::seed::seed(Some(source), tree, options(owner.to_set()))?;
    Ok(WorkspaceSeed {
        mode: match seeded.mode {
            Mode::Empty => "empty",
            Mode::Directory => "directory",
            Mode::TarArchive => "tar_archive",
        }
        .to_string(),
        seed_path: Some(source.display().to_string()),
        destination: WORKSPACE.to_string(),
        entry_count: seeded.entry_count,
        bytes_written: seeded.bytes,
    })
}

fn options(owner: Option<(u32, u32)>) -> Options {
    Options {
        owner,
        limits: Limits {
            bytes: limits::SEED_BYTES.max,
            entries: limits::SEED_ENTRIES.max,
        },
        root: false,
    }
}

impl Workspaces {
    pub(super) async fn list_files(
        &self,
        id: &WorkspaceId,
        path: &str,
        recursive: bool,
    ) -> Result<PathList> {
        let inside = checks::inside(path)?;
        let (_, handle) = self.room(id).await?;
        let top = self.workdir(&handle);
        let place = checks::in_machine(&top, inside.as_ref())?;
        let top = checks::in_machine(&top, None)?;
        let guest = handle.guest().map_err(in_words)?;
        let most = limits::LIST_ENTRIES_MAX.max as usize;
        let (entries, truncated) = match guest.within(top).stat(&place, false).await? {
            found if found.kind != FileType::Directory => (vec![found], false),
            _ => list(&guest, &place, recursive, most).await?,
        };
        Ok(PathList {
            workspace_id: id.clone(),
            path: String::from_utf8_lossy(place.as_bytes()).into_owned(),
            recursive,
            entries: entries.into_iter().map(info).collect(),
            truncated,
        })
    }

    pub(super) async fn read_file(
        &self,
        id: &WorkspaceId,
        path: &str,
        max_bytes: Option<u64>,
    ) -> Result<FileText> {
        let max = limits::FILE_TEXT_BYTES.resolve(max_bytes)?;
        let below = checks::below(path)?;
        let (_, handle) = self.room(id).await?;
        let top = self.workdir(&handle);
        let place = checks::in_machine(&top, Some(&below))?;
        let top = checks::in_machine(&top, None)?;
        let guest = handle.guest().map_err(in_words)?.within(top);
        let range = ReadRange {
            offset: 0,
            length: Some(max),
        };
        let read = guest.read(&place, range).await;
        let (file, stream) = read.map_err(|error| handle.explain(error))?;
        let bytes = collect(stream, max).await?;
        text_of(id, place.as_bytes(), file.size_bytes, max, &bytes)
    }

    pub(super) async fn write_file(
        &self,
        id: &WorkspaceId,
        request: WriteText,
    ) -> Result<FileWritten> {
        let limit = limits::FILE_WRITE_BYTES;
        let size = request.text.len() as u64;
        if size > limit.max {
            return Err(Error::limit(format!(
                "the text has {size} bytes; {} allows {}",
                limit.name, limit.max
            ))
            .hint(hint![
                "use ",
                verb("write_file"),
                " or ",
                verb("push_workspace_sync"),
                " for larger files"
            ]));
        }
        let path = checks::below(&request.path)?;
        let (room, handle) = self.room(id).await?;
        let _alone = room.edit.lock().await;
        let guest = handle.guest().map_err(in_words)?;
        let operation = link::Operation {
            size,
            ..write(&path, 0)
        };
        let done = carry_out(&guest, vec![operation], vec![Bytes::from(request.text)]).await;
        done.map_err(|error| handle.explain(error))?;
        let place = checks::in_machine(&self.workdir(&handle), Some(&path))?;
        Ok(FileWritten {
            workspace_id: id.clone(),
            path: String::from_utf8_lossy(place.as_bytes()).into_owned(),
            size_bytes: size,
            bytes_written: size,
        })
    }

    /// Exports to the host: to a new name or an empty directory, or over a regular file if asked
    /// to.
    pub(super) async fn export(
        &self,
        id: &WorkspaceId,
        path: &str,
        output_path: &str,
        options: ExportOptions,
    ) -> Result<Exported> {
        let output = checks::on_host(output_path, "output_path")?;
        let most = limits::EXPORT_BYTES.resolve(options.max_bytes)?;
        let replace = Replace::from(options.force);
        let inside = checks::inside(path)?;
        let (_, handle) = self.room(id).await?;
        let top = self.workdir(&handle);
        let place = checks::in_machine(&top, inside.as_ref())?;
        let top = checks::in_machine(&top, None)?;
        let guest = handle.guest().map_err(in_words)?.within(top);
        let found = guest.stat(&place, false).await?;
        let (entry_count, bytes_written) = match found.kind {
            FileType::File => {
                let reader = pipe::reader(guest.read_tree(&place).await?);
                let written = blocking(move || {
                    make_parents(&output)?;
                    unpack_file(reader, &output, replace, most)
                });
                (1, written.await?)
            }
            FileType::Directory => {
                let reader = pipe::reader(guest.read_tree(&place).await?);
                // A tree is never exported over an existing one: the caller could not see what
                // would be replaced.
                let nothing = Replace::Nothing;
                let unpacked = blocking(move || {
                    make_parents(&output)?;
                    unpack_tree(reader, &output, nothing, most)
                });
                let totals = unpacked.await?;
                (totals.entries, totals.bytes)
            }
            FileType::Symlink | FileType::Other => {
                return Err(Error::invalid(format!(
                    "{} is neither a file nor a directory",
                    found.path
                ))
                .hint("export what it points to, or the directory it is in"));
            }
        };
        Ok(Exported {
            workspace_id: id.clone(),
            workspace_path: found.path,
            output_path: output_path.to_string(),
            kind: found.kind,
            entry_count,
            bytes_written,
        })
    }
}

/// Makes the directories above what is exported, on the host.
fn make_parents(output: &Path) -> Result<()> {
    let Some(parent) = output.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(parent)
        .map_err(|error| Error::with_file(format!("make {}", parent.display()), &error))
}

/// The beginning of a text file, or an error if it is not text.
pub(super) fn text_of(
    id: &WorkspaceId,
    path: &[u8],
    size: u64,
    max: u64,
    bytes: &[u8],
) -> Result<FileText> {
    let path = String::from_utf8_lossy(path).into_owned();
    let truncated = size > bytes.len() as u64;
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // Drop a character that the budget has cut in two.
        Err(error) if truncated && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => {
            return Err(
                Error::invalid(format!("{path} is not a text file")).hint(hint![
                    verb("read_file"),
                    " or ",
                    verb("export_workspace"),
                    " takes any file"
                ]),
            );
        }
    };
    Ok(FileText {
        workspace_id: id.clone(),
        path,
        size_bytes: size,
        max_bytes: max,
        content: whole.to_string(),
        truncated,
    })
}

async fn list(
    guest: &Guest,
    place: &GuestPath,
    recursive: bool,
    most: usize,
) -> Result<(Vec<FileEntry>, bool)> {
    let mut entries = Vec::new();
    let mut after = None;
    loop {
        let page = guest
            .files(None)
            .list(
                place,
                ListOptions {
                    depth: Some(if recursive { ALL_LEVELS } else { 1 }),
                    after: after.take(),
                    limit: None,
                },
            )
            .await?;
        entries.extend(page.entries);
        let Some(next) = page.next else {
            return Ok((entries, false));
        };
        if entries.len() >= most {
            entries.truncate(most);
            return Ok((entries, true));
        }
        let next = BASE64.decode(next);
        after = Some(Bytes::from(next.map_err(|_| {
            Error::transport("the guest's listing goes on nowhere")
        })?));
    }
}

fn info(entry: FileEntry) -> PathInfo {
    PathInfo {
        path: entry.path,
        kind: entry.kind,
        size_bytes: entry.size_bytes,
        mode: entry.mode,
        modified_at: entry.modified_at,
        link_target: entry.link_target,
    }
}
