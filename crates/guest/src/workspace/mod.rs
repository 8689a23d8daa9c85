//! `/workspace`, compared with its baseline.
//!
//! ```text
//!   inside    paths that stay below /workspace
//!   facts     what is known of a file, and whether two are the same
//!   walk      what differs from the baseline
//!   pick      files out, exactly as they are
//!   restore   and back in
//!   apply     several changes of files, all or none
//!   undo      what holds of that when the machine ends in the middle
//!   leftovers what an ended machine had begun to write
//! ```

mod apply;
mod facts;
mod inside;
mod leftovers;
mod pick;
mod refusal;
mod restore;
mod undo;
mod walk;

pub use apply::apply;
pub use leftovers::{now_ns, remove as remove_leftovers};
pub use pick::pick;
pub use restore::restore;
pub use undo::recover;

use crate::answer::{Failed, Quoted, note};
use crate::blocking::{self, Cancel};
use crate::files;
use crate::sides::Workspace;
use crate::state::Guest;
use bytes::Bytes;
use inside::Inside;
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{Changes, Failure, ReadBase, Said};
use motu_link::mux::Sender;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use walk::Walk;

/// Bytes of the baseline sent at a time: two frames.
const STEP: usize = 512 * 1024;
/// The longest list of paths in the data of a request.
const MAX_LIST: usize = 64 * 1024 * 1024;

fn workspace(guest: &Guest) -> Result<Arc<Workspace>, Failed> {
    guest.workspace.clone().ok_or_else(|| {
        Failed::new(
            Failure::Unsupported,
            "this machine's /workspace has no baseline",
        )
    })
}

pub async fn changes(guest: &Arc<Guest>, request: Changes, tx: &Sender) -> Result<(), Failed> {
    let path = Inside::parse(&request.path)?;
    let cancel = Cancel::default();
    let _cancelled_when_dropped = cancel.on_drop();
    let mut walk = Walk::new(workspace(guest)?, &path, cancel);
    let work = async {
        loop {
            let (back, page) = blocking::run(move || {
                let page = walk.next_page()?;
                Ok((walk, page))
            })
            .await?;
            walk = back;
            match page {
                None => return Ok(()),
                Some(page) if page.entries.is_empty() => {}
                Some(page) => note(tx, Said::Changed(page)).await?,
            }
        }
    };
    blocking::unless_gone(tx, work).await
}

pub async fn read_base(guest: &Arc<Guest>, request: ReadBase, tx: &Sender) -> Result<(), Failed> {
    let path = Inside::parse(&request.path)?;
    let workspace = workspace(guest)?;
    let file = blocking::run(move || open_base(&workspace, &path)).await?;
    let length = match request.length {
        0 => u64::MAX,
        length => length,
    };
    let end = request.offset.saturating_add(length);
    let work = async {
        let (mut at, file) = (request.offset, Arc::new(file));
        while at < end {
            let (file, most) = (file.clone(), (end - at).min(STEP as u64) as usize);
            let piece = blocking::run(move || {
                let mut piece = vec![0; most];
                let got = facts::fill(&*file, &mut piece, at)
                    .map_err(|errno| Failed::errno("a file of the baseline", errno))?;
                piece.truncate(got);
                Ok(piece)
            })
            .await?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            tx.data(CHANNEL_IN, Bytes::from(piece)).await?;
        }
        Ok(())
    };
    blocking::unless_gone(tx, work).await
}

fn open_base(workspace: &Workspace, path: &Inside) -> Result<OwnedFd, Failed> {
    let failed = |errno| path.failed(errno);
    let file = path
        .open(&workspace.lower, OFlags::RDONLY | OFlags::NONBLOCK)
        .map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(Failed::invalid(format!(
            "{} of the baseline is not a regular file",
            Quoted(path.as_bytes())
        ))),
    }
}

/// Paths that are each followed by a NUL byte.
fn parse_list(list: &[u8]) -> Result<Vec<Inside>, Failed> {
    let Some(list) = list.strip_suffix(b"\0") else {
        return match list.is_empty() {
            true => Ok(Vec::new()),
            false => Err(Failed::invalid(
                "a list of paths does not end with a NUL byte",
            )),
        };
    };
    list.split(|byte| *byte == 0).map(Inside::parse).collect()
}

fn parse_all(paths: &[Bytes]) -> Result<Vec<Inside>, Failed> {
    paths.iter().map(|path| Inside::parse(path)).collect()
}

fn too_long() -> Failed {
    Failed::new(
        Failure::Limit,
        format!("a list of paths is longer than {MAX_LIST} bytes"),
    )
}

/// Removes a path with everything in it; a missing one is no error.
fn remove(workspace: &Workspace, path: &Inside, cancel: &Cancel) -> Result<(), Failed> {
    let removed = path
        .entry(&workspace.top)
        .and_then(|(directory, name)| files::remove_entry(&directory, name, true, cancel));
    match removed {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(Errno::CANCELED) => Err(Failed::cancelled()),
        Err(errno) => Err(path.failed(errno)),
    }
}
