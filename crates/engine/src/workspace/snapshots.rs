//! Snapshots of `/workspace`.

use super::Workspaces;
use super::patching::diff_report;
use super::room::in_words;
use crate::blocking::blocking;
use crate::driver::Handle;
use crate::guest::Guest;
use crate::pipe;
use bytes::Bytes;
use jiff::Timestamp;
use motu_core::event::EventKind;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::lists::SnapshotList;
use motu_core::workspace::*;
use motu_core::{Error, Result, id, limits};
use motu_link::message::ChangedEntry;
use motu_workspaces::diff::{self, Builder};
use motu_workspaces::snapshots::{Contents, SnapshotError, Snapshots, Summary, check_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Attempts to take a snapshot while files change.
const TRIES: usize = 5;

/// A state that a machine can be restored to.
pub(super) enum Saved {
    Baseline,
    Snapshot {
        store: Snapshots,
        name: String,
    },
    /// A temporary snapshot, deleted with its last use.
    Aside(Arc<Aside>),
}

/// A directory of temporary snapshots, deleted on drop.
pub(super) struct Aside {
    store: Snapshots,
    dir: PathBuf,
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

const ASIDE: &str = "aside";

impl Saved {
    pub(super) fn reopen(&self) -> Result<Saved> {
        Ok(match self {
            Saved::Baseline => Saved::Baseline,
            Saved::Snapshot { store, name } => Saved::Snapshot {
                store: store.clone(),
                name: name.clone(),
            },
            Saved::Aside(aside) => Saved::Aside(aside.clone()),
        })
    }

    /// Restores a new machine's `/workspace` to this state.
    pub(super) async fn restore(self, guest: &Guest) -> Result<()> {
        let (store, name, _aside) = match self {
            Saved::Baseline => return Ok(()),
            Saved::Snapshot { store, name } => (store, name, None),
            Saved::Aside(aside) => (aside.store.clone(), ASIDE.to_string(), Some(aside)),
        };
        let saved = blocking(move || Ok(store.restore(&name)?)).await?;
        let remove = saved.remove.clone();
        let archive = pipe::written(move |out| Ok(saved.write_to(out).map(drop)?));
        guest.restore(remove, archive).await.map(drop)
    }
}

impl Workspaces {
    fn snapshots_dir(&self, id: &WorkspaceId) -> PathBuf {
        self.sandboxes.shared.home.kept(id).join("snapshots")
    }

    async fn snapshots(&self, id: &WorkspaceId) -> Result<Snapshots> {
        let dir = self.snapshots_dir(id);
        blocking(move || Ok(Snapshots::open(dir)?)).await
    }

    pub(super) async fn snapshot_count(&self, id: &WorkspaceId) -> Result<u64> {
        let dir = self.snapshots_dir(id);
        if !dir.exists() {
            return Ok(0);
        }
        let store = self.snapshots(id).await?;
        blocking(move || Ok(store.list()?.len() as u64)).await
    }

    pub(super) async fn take_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot> {
        check_name(name)?;
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let guest = handle.guest().map_err(in_words)?;
        sound(&handle, &guest).await?;
        let store = self.snapshots(id).await?;
        let summary = take(&guest, &store, name).await?;
        if let Err(error) = sound(&handle, &guest).await {
            // The disk has met an error during the snapshot: it may contain wrong data, so delete
            // it.
            let name = name.to_string();
            blocking(move || Ok(store.delete(&name)?)).await?;
            return Err(error);
        }
        self.tell(EventKind::SnapshotCreated, &handle.sandbox(), |facts| {
            facts.name = Some(name.to_string());
        })
        .await;
        let (id, had) = (id.clone(), room.row().seed.entry_count);
        blocking(move || Ok(described(&id, had, &store, summary))).await
    }

    /// Saves the state of a running workspace for one use.
    pub(super) async fn save_aside(&self, handle: &Handle) -> Result<Saved> {
        let guest = handle.guest().map_err(in_words)?;
        sound(handle, &guest).await?;
        let place = self.sandboxes.shared.home.path().join("aside");
        let dir = place.join(id::random_name(12));
        let (store, made) = {
            let dir = dir.clone();
            blocking(move || {
                std::fs::create_dir_all(&place)
                    .map_err(|error| Error::io("cannot save the workspace's files", &error))?;
                Ok((Snapshots::open(&dir)?, dir))
            })
            .await?
        };
        let aside = Aside { store, dir: made };
        take(&guest, &aside.store, ASIDE).await?;
        Ok(Saved::Aside(Arc::new(aside)))
    }

    pub(super) async fn snapshot_list(&self, id: &WorkspaceId) -> Result<SnapshotList> {
        let (room, _) = self.room(id).await?;
        let (created_at, had) = {
            let row = room.row();
            (row.created_at, row.seed.entry_count)
        };
        let mut snapshots = vec![Snapshot {
            workspace_id: id.clone(),
            snapshot_name: BASELINE.to_string(),
            kind: "baseline".to_string(),
            created_at,
            entry_count: Some(had),
            changed_count: 0,
            stored_bytes: 0,
            deletable: false,
        }];
        if self.snapshots_dir(id).exists() {
            let store = self.snapshots(id).await?;
            let key = id.clone();
            let named = blocking(move || {
                let all = store.list()?.into_iter();
                Ok(all
                    .map(|one| described(&key, had, &store, one))
                    .collect::<Vec<_>>())
            })
            .await?;
            snapshots.extend(named);
        }
        Ok(SnapshotList::new(id.clone(), snapshots))
    }

    pub(super) async fn drop_snapshot(&self, id: &WorkspaceId, name: &str) -> Result<Snapshot> {
        if name == BASELINE {
            return Err(
                Error::invalid("the baseline cannot be deleted").hint("it goes with the workspace")
            );
        }
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let store = self.snapshots(id).await?;
        let (id, name) = (id.clone(), name.to_string());
        let had = room.row().seed.entry_count;
        let gone = blocking(move || {
            let found = described(&id, had, &store, find(&store, &name)?);
            store.delete(&name)?;
            Ok(found)
        })
        .await?;
        self.tell(EventKind::SnapshotDeleted, &handle.sandbox(), |facts| {
            facts.name = Some(gone.snapshot_name.clone());
        })
        .await;
        handle.touch();
        Ok(gone)
    }

    /// Finds a state by name.
    pub(super) async fn open_saved(&self, id: &WorkspaceId, name: &str) -> Result<Saved> {
        if name == BASELINE {
            return Ok(Saved::Baseline);
        }
        check_name(name)?;
        if !self.snapshots_dir(id).exists() {
            return Err(missing(name));
        }
        let store = self.snapshots(id).await?;
        let name = name.to_string();
        blocking(move || {
            find(&store, &name)?;
            // Check the snapshot for damage before the old machine is destroyed.
            store.restore(&name)?;
            Ok(Saved::Snapshot { store, name })
        })
        .await
    }

    pub(super) async fn compare_snapshots(
        &self,
        id: &WorkspaceId,
        from: &str,
        to: &str,
        options: DiffOptions,
    ) -> Result<DiffReport> {
        let budget = limits::DIFF_BYTES.resolve(options.max_bytes)?;
        let (room, handle) = self.room(id).await?;
        for name in [from, to] {
            self.open_saved(id, name).await?;
        }
        let kept = handle.launch().await?.kept;
        let baseline = kept.map(|kept| kept.baseline).unwrap_or_default();
        let store = self.snapshots(id).await?;
        let (names, key) = ((from.to_string(), to.to_string()), id.clone());
        let report = blocking(move || {
            let (from, to) = &names;
            let changes = store.compare(from, to)?;
            let mut builder = Builder::new(budget as usize);
            let (mut before, mut after) = (store.contents(from)?, store.contents(to)?);
            for entry in &changes {
                let wants = builder.wants(entry);
                let old = content(&mut before, wants.before, entry, &baseline)?;
                let new = content(&mut after, wants.after, entry, &baseline)?;
                builder.push(entry, old.as_deref(), new.as_deref());
            }
            Ok(diff_report(&key, from, to, builder.finish()))
        })
        .await?;
        Ok(DiffReport {
            patch: room.secrets.redact(&report.patch),
            ..report
        })
    }
}

/// One side of a difference between two snapshots.
fn content(
    files: &mut motu_workspaces::snapshots::Files,
    wanted: bool,
    entry: &ChangedEntry,
    baseline: &Path,
) -> Result<Option<Vec<u8>>> {
    use std::os::unix::ffi::OsStrExt;
    if !wanted {
        return Ok(None);
    }
    Ok(match files.read(&entry.path, diff::MAX_COMPARED_BYTES)? {
        Contents::Bytes(bytes) => Some(bytes),
        Contents::None => None,
        Contents::Baseline => {
            let path = baseline.join(std::ffi::OsStr::from_bytes(&entry.path));
            std::fs::read(path).ok()
        }
    })
}

/// Fails if the disk has met I/O errors: data read from it may be wrong.
pub(super) async fn sound(handle: &Handle, guest: &Guest) -> Result<()> {
    if let Some(error) = handle.faulty() {
        return Err(error);
    }
    // Only the machine's own kernel knows of errors in its file systems.
    match guest.disk_errors().await? {
        0 => Ok(()),
        count => {
            let id = handle.sandbox().sandbox_id;
            Err(
                Error::unavailable(format!("the disk of {id} has met {count} errors"))
                    .hint("copy what you need out of it, and reset it to an earlier snapshot"),
            )
        }
    }
}

/// Takes a snapshot of the machine's `/workspace`.
pub(super) async fn take(guest: &Guest, store: &Snapshots, name: &str) -> Result<Summary> {
    let mut last = Error::internal("no snapshot was tried");
    for _ in 0..TRIES {
        let changes = guest.changes(limits::SEED_ENTRIES.max).await?;
        let changes: Vec<ChangedEntry> = changes.into_iter().filter(lasting).collect();
        let (plan, paths) = {
            let (store, name) = (store.clone(), name.to_string());
            blocking(move || {
                let plan = store.plan(&name, &changes)?;
                let paths: Vec<Bytes> = plan.fetch().map(Bytes::copy_from_slice).collect();
                Ok((plan, paths))
            })
            .await?
        };
        // `commit` notices files that change while they are read: their metadata differs from the
        // plan.
        let reader = pipe::reader(guest.pick(paths).await?);
        let store = store.clone();
        let done = tokio::task::spawn_blocking(move || store.commit(plan, reader))
            .await
            .map_err(|_| Error::internal("a worker panicked"))?;
        match done {
            Ok(summary) => return Ok(summary),
            Err(error @ SnapshotError::Changed { .. }) => {
                last = Error::from(error).hint("something writes to it all the time: pause it");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(last)
}

/// Whether a snapshot can restore an entry: not a socket or a device.
pub(super) fn lasting(entry: &ChangedEntry) -> bool {
    const TYPE: u32 = 0o170_000;
    const KEPT: [u32; 4] = [0o100_000, 0o040_000, 0o120_000, 0o010_000];
    match &entry.after {
        Some(facts) => KEPT.contains(&(facts.mode & TYPE)),
        None => true,
    }
}

fn find(store: &Snapshots, name: &str) -> Result<Summary> {
    let all = store.list()?;
    let found = all.into_iter().find(|summary| summary.name == name);
    found.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Error {
    Error::not_found(format!("there is no snapshot {name:?}"))
        .hint(hint![verb("list_snapshots"), " shows them"])
}

/// Describes a snapshot of a workspace whose baseline has this many paths.
fn described(id: &WorkspaceId, baseline: u64, store: &Snapshots, summary: Summary) -> Snapshot {
    let changes = store.compare(BASELINE, &summary.name).ok();
    let entry_count = changes.map(|changes| {
        let added = changes.iter().filter(|one| one.before.is_none()).count() as u64;
        let deleted = changes.iter().filter(|one| one.after.is_none()).count() as u64;
        (baseline + added).saturating_sub(deleted)
    });
    Snapshot {
        workspace_id: id.clone(),
        snapshot_name: summary.name,
        kind: "named".to_string(),
        created_at: Timestamp::from_nanosecond(summary.created_unix_ns.into()).unwrap_or_default(),
        entry_count,
        changed_count: summary.entries,
        stored_bytes: summary.new_bytes,
        deletable: true,
    }
}
