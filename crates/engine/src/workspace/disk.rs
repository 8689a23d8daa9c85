//! Reads the disks of a stopped workspace without a machine.

use super::Workspaces;
use super::checks;
use super::content::text_of;
use crate::blocking::blocking;
use jiff::Timestamp;
use motu_core::files::FileType;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::{AtRest, RestLayer};
use motu_core::sandbox::State;
use motu_core::workspace::{
    DiskExported, ExportOptions, FileText, PathInfo, PathList, WorkspaceId,
};
use motu_core::{Error, Result, limits};
use motu_disks::{DirectoryLayer, Entry, Ext4Layer, Kind, Layer, Merged, Placed, export_ext4};
use motu_workspaces::output::{OutputFile, Replace};
use std::path::Path;

/// Where `/workspace` is mounted.
const MOUNT: &[u8] = b"workspace";

impl Workspaces {
    /// The disks, if they may be read now.
    async fn at_rest(&self, id: &WorkspaceId) -> Result<AtRest> {
        let (_, handle) = self.room(id).await?;
        let sandbox = handle.sandbox();
        if sandbox.on_host_files() {
            return Err(Error::unsupported(format!(
                "workspace {id} works on the host itself: it has no disk"
            ))
            .hint("its files are under its workspace_path on the host"));
        }
        if sandbox.state != State::Stopped {
            return Err(Error::conflict(format!(
                "workspace {id} is {}: its disk can be read only while it is stopped",
                sandbox.state
            ))
            .hint(hint![
                verb("stop_workspace").with("id", id.as_str()),
                " stops it"
            ]));
        }
        let launch = handle.launch().await?;
        let kept = launch
            .kept
            .ok_or_else(|| Error::internal("the workspace has no disks"))?;
        let runtime = self.sandboxes.runtimes.named(&sandbox.runtime);
        let runtime = runtime.ok_or_else(|| Error::internal("its runtime is not in this build"))?;
        runtime.at_rest(&kept, &launch.root)
    }

    pub(super) async fn export_disk(
        &self,
        id: &WorkspaceId,
        output: &str,
        options: ExportOptions,
    ) -> Result<DiskExported> {
        let path = checks::on_host(output, "output_path")?;
        let most = limits::EXPORT_BYTES.resolve(options.max_bytes)?;
        let replace = Replace::from(options.force);
        let (room, _) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let rest = self.at_rest(id).await?;
        let home = self.sandboxes.shared.home.path().to_path_buf();
        let bytes_written = blocking(move || {
            let disk = OutputFile::create(&path, replace)?;
            let staging = tempfile::Builder::new()
                .prefix("export-")
                .tempdir_in(home)
                .map_err(|error| Error::io("cannot stage a disk", &error))?;
            let mut view = view(&rest)?;
            let size = export_ext4(&mut view, staging.path(), disk.path(), most)?;
            disk.finish(0o644)?;
            Ok(size)
        })
        .await?;
        Ok(DiskExported {
            workspace_id: id.clone(),
            output_path: output.to_string(),
            disk_format: "ext4".to_string(),
            bytes_written,
        })
    }

    pub(super) async fn list_disk(
        &self,
        id: &WorkspaceId,
        path: &str,
        recursive: bool,
    ) -> Result<PathList> {
        let place = absolute(path)?;
        let rest = self.at_rest(id).await?;
        let most = limits::LIST_ENTRIES_MAX.max as usize;
        let listing = {
            let place = place.clone();
            blocking(move || Ok(view(&rest)?.list(place.as_bytes(), recursive, most)?)).await?
        };
        Ok(PathList {
            workspace_id: id.clone(),
            path: place,
            recursive,
            entries: listing.entries.into_iter().map(info).collect(),
            truncated: listing.truncated,
        })
    }

    pub(super) async fn read_disk(
        &self,
        id: &WorkspaceId,
        path: &str,
        max_bytes: Option<u64>,
    ) -> Result<FileText> {
        let max = limits::FILE_TEXT_BYTES.resolve(max_bytes)?;
        let place = absolute(path)?;
        let rest = self.at_rest(id).await?;
        let found = {
            let place = place.clone();
            blocking(move || Ok(view(&rest)?.read(place.as_bytes(), max)?)).await?
        };
        text_of(id, place.as_bytes(), found.size, max, &found.bytes)
    }
}

/// A path in the machine; relative ones start in `/workspace`.
fn absolute(path: &str) -> Result<String> {
    let whole = match path.starts_with('/') {
        true => path.to_string(),
        false => format!("/workspace/{path}"),
    };
    motu_core::files::GuestPath::new(whole.clone().into_bytes())?;
    Ok(whole)
}

/// The machine's whole tree, merged from its layers.
fn view(rest: &AtRest) -> Result<Merged> {
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    for (number, layer) in rest.workspace.iter().enumerate() {
        let lowest = number + 1 == rest.workspace.len();
        layers.push(Box::new(Placed::new(open(layer, !lowest)?, MOUNT, lowest)));
    }
    for (number, layer) in rest.root.iter().enumerate() {
        let lowest = number + 1 == rest.root.len();
        layers.push(open(layer, !lowest)?);
    }
    Ok(Merged::new(layers))
}

fn open(layer: &RestLayer, upper: bool) -> Result<Box<dyn Layer>> {
    Ok(match layer {
        RestLayer::Directory(path) => Box::new(DirectoryLayer::open(path)?),
        RestLayer::Disk { chain, directory } => {
            let chain: Vec<&Path> = chain.iter().map(AsRef::as_ref).collect();
            let disk = motu_disks::open_disk(&chain)?;
            match upper {
                true => Box::new(Ext4Layer::upper(disk, directory.as_bytes())?),
                false => Box::new(Ext4Layer::whole(disk)?),
            }
        }
    })
}

fn info(entry: Entry) -> PathInfo {
    PathInfo {
        path: entry.path,
        kind: match entry.kind {
            Kind::File => FileType::File,
            Kind::Directory => FileType::Directory,
            Kind::Symlink => FileType::Symlink,
            Kind::Other | Kind::Whiteout => FileType::Other,
        },
        size_bytes: entry.size,
        mode: entry.mode & 0o7777,
        modified_at: Timestamp::from_nanosecond(entry.modified_unix_ns.into()).unwrap_or_default(),
        link_target: entry.symlink_target,
    }
}
