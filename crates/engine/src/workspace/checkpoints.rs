//! Checkpoints of `/workspace` before commands, and undo in place.
//!
//! Checkpoints are numbered snapshots in a store of their own; the oldest are removed. Undo changes
//! only the files that differ: the machine, its services and its shells keep running.

use super::Workspaces;
use super::room::{Room, in_words};
use super::snapshots::{lasting, sound, take};
use crate::blocking::blocking;
use crate::driver::Handle;
use crate::pipe;
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Result, limits};
use motu_workspaces::snapshots::Snapshots;
use std::path::PathBuf;

impl Workspaces {
    fn checkpoints_dir(&self, id: &WorkspaceId) -> PathBuf {
        self.sandboxes.shared.home.kept(id).join("checkpoints")
    }

    pub(super) async fn checkpoint_count(&self, id: &WorkspaceId) -> Result<u64> {
        let dir = self.checkpoints_dir(id);
        blocking(move || Ok(known(&dir)?.1.len() as u64)).await
    }

    /// Saves `/workspace` before a command changes it. If that fails, the command does not run.
    pub(super) async fn checkpoint(&self, room: &Room, handle: &Handle) -> Result<String> {
        // Commands may begin together; their checkpoints are made one after the other.
        let _turn = room.wait_turn().await;
        let guest = handle.guest().map_err(in_words)?;
        sound(handle, &guest).await?;
        let dir = self.checkpoints_dir(&room.id);
        let (store, numbers) = blocking(move || known(&dir)).await?;
        let store = store.map_or_else(|| self.open_checkpoints(room), Ok)?;
        let name = name_of(numbers.last().map_or(1, |last| last + 1));
        take(&guest, &store, &name).await.map_err(no_checkpoint)?;
        let most = limits::CHECKPOINTS.max as usize;
        let drop_from = (numbers.len() + 1).saturating_sub(most);
        let oldest: Vec<u64> = numbers.into_iter().take(drop_from).collect();
        blocking(move || {
            oldest
                .into_iter()
                .try_for_each(|number| Ok(store.delete(&name_of(number))?))
        })
        .await?;
        Ok(name)
    }

    fn open_checkpoints(&self, room: &Room) -> Result<Snapshots> {
        Ok(Snapshots::open(self.checkpoints_dir(&room.id))?)
    }

    pub(super) async fn undo(&self, id: &WorkspaceId, steps: u64) -> Result<Undone> {
        let (room, handle) = self.room(id).await?;
        let _turn = room.take_turn()?;
        let dir = self.checkpoints_dir(id);
        let (store, numbers) = blocking(move || known(&dir)).await?;
        let (store, left) = match store {
            Some(store) if steps > 0 && steps <= numbers.len() as u64 => {
                let left = numbers.len() - steps as usize;
                (store, left)
            }
            _ => return Err(too_far(id, steps, numbers.len())),
        };
        // Patches and pushes wait until the files are restored.
        let _alone = room.edit.lock().await;
        let target = name_of(numbers[left]);
        let (restored_count, removed_count) = self.go_back(&handle, &store, &target).await?;
        let taken_back: Vec<u64> = numbers[left..].iter().rev().copied().collect();
        let commands = self.commands_of(id, &taken_back).await?;
        // Delete the checkpoints last: an interrupted undo is repeated by the next one.
        blocking(move || {
            taken_back
                .into_iter()
                .try_for_each(|number| Ok(store.delete(&name_of(number))?))
        })
        .await?;
        handle.touch();
        Ok(Undone {
            workspace_id: id.clone(),
            steps,
            commands,
            restored_count,
            removed_count,
            checkpoint_count: left as u64,
        })
    }

    /// Restores the files of a running machine to a snapshot. Returns how many paths were restored
    /// and how many removed.
    async fn go_back(
        &self,
        handle: &Handle,
        store: &Snapshots,
        target: &str,
    ) -> Result<(u64, u64)> {
        let guest = handle.guest().map_err(in_words)?;
        let mut current = guest.changes(limits::SEED_ENTRIES.max).await?;
        // Sockets of running services are not touched.
        current.retain(lasting);
        let kept = handle.launch().await?.kept;
        let baseline = kept.ok_or_else(|| Error::internal("the workspace has no baseline"))?;
        let (store, name) = (store.clone(), target.to_string());
        let back = blocking(move || Ok(store.rewind(&name, &current, &baseline.baseline)?)).await?;
        if back.is_empty() {
            return Ok((0, 0));
        }
        let (restored, remove) = (back.len() as u64, back.remove.clone());
        let removed = remove.len() as u64;
        let archive = pipe::written(move |out| Ok(back.write_to(out).map(drop)?));
        let written = guest.restore(remove, archive).await;
        written.map_err(|error| handle.explain(error))?;
        Ok((restored, removed))
    }

    /// The commands that these checkpoints precede, as far as the history has them.
    async fn commands_of(&self, id: &WorkspaceId, numbers: &[u64]) -> Result<Vec<Vec<String>>> {
        let history = self.sandboxes.shared.store.commands(id).await?;
        let command = |number: &u64| {
            let name = name_of(*number);
            // Numbers are reused after an undo: take the newest command.
            let mut newest = history.iter().rev();
            newest.find(|record| record.checkpoint.as_deref() == Some(&name))
        };
        let found = numbers.iter().filter_map(command);
        Ok(found.map(|record| record.command.clone()).collect())
    }
}

/// The store, if it exists, and the numbers of its checkpoints in order.
fn known(dir: &std::path::Path) -> Result<(Option<Snapshots>, Vec<u64>)> {
    if !dir.exists() {
        return Ok((None, Vec::new()));
    }
    let store = Snapshots::open(dir)?;
    let numbers = store.list()?.into_iter();
    let mut numbers: Vec<u64> = numbers.filter_map(|one| number_of(&one.name)).collect();
    numbers.sort_unstable();
    Ok((Some(store), numbers))
}

fn name_of(number: u64) -> String {
    format!("checkpoint-{number}")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("checkpoint-")?.parse().ok()
}

fn too_far(id: &WorkspaceId, steps: u64, there: usize) -> Error {
    match (steps, there) {
        (0, _) => Error::invalid("steps is 0; it must be 1 or more"),
        (_, 0) => Error::not_found(format!("workspace {id} has no checkpoint to go back to")).hint(
            "they are made before commands that run with a checkpoint, or in a workspace created with it",
        ),
        (steps, there) => Error::not_found(format!(
            "{steps} commands cannot be taken back; workspace {id} has {there} checkpoints"
        ))
        .hint(format!("`{}` says how many are kept", limits::CHECKPOINTS.name)),
    }
}

fn no_checkpoint(error: Error) -> Error {
    let message = format!(
        "no checkpoint could be made, so the command did not run: {}",
        error.message
    );
    match error.kind {
        ErrorKind::Conflict => Error { message, ..error }.hint(
            "something writes to /workspace all the time; run the command without a checkpoint",
        ),
        _ => Error { message, ..error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_its_name() {
        assert_eq!(number_of(&name_of(12)), Some(12));
        assert_eq!(number_of("before-12"), None);
    }
}
