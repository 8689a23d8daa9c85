//! Recovering a state directory that no daemon serves.
//!
//! Entries that were set aside are listed, put back or removed; a lost store is rebuilt from the
//! records beside the disks. The caller holds the lock of the state directory.

use crate::found::{self, Verdict, Witness};
use crate::home::Home;
use crate::lost::Lost;
use crate::record::{self, Found};
use crate::store::Store;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::id::random_name;
use motu_core::{Error, Result, SandboxId};
use serde::Serialize;
use std::path::PathBuf;

pub use crate::lost::{LostEntry, LostKind};

/// Suffixes of the files of a SQLite database.
const FILES: [&str; 3] = ["", "-wal", "-shm"];

/// One name that a rebuild found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    pub id: SandboxId,
    /// Why it has no row; `None` if it has one.
    pub left_out: Option<String>,
}

/// The result of a rebuild.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rebuild {
    pub found: Vec<Rebuilt>,
    /// The files of the old store.
    pub set_aside: Vec<LostEntry>,
}

/// Refuses to start with an empty or damaged store if data is kept already.
pub(crate) fn check(home: &Home) -> Result<()> {
    let kept = record::kept(home).len() + crate::kept::Baselines::open(home)?.seeded().len();
    found::may_begin(Store::look(&home.database()), kept).map_err(|what| {
        Error::unavailable(format!(
            "the store {} {what}, and there are disks beside it",
            home.database().display()
        ))
        .hint(hint![
            "put motu.db back if you have it; else ",
            host("motu recover --rebuild"),
            " makes it again from the records beside the disks",
        ])
    })
}

/// Everything that was set aside.
pub fn list(home: &Home) -> Vec<LostEntry> {
    Lost::of(home).list()
}

/// Puts an entry back; the next daemon adopts it.
pub fn restore(home: &Home, name: &str) -> Result<LostEntry> {
    let lost = Lost::of(home);
    let entry = lost.find(name)?;
    let place = lost.content(&entry);
    let by_hand = |why: &str| {
        Error::unsupported(format!("{} cannot be put back: {why}", entry.entry))
            .hint(format!("its files are in {}", place.display()))
    };
    match entry.kind {
        LostKind::Kept => {}
        LostKind::Disks => return Err(by_hand("its workspace uses other disks")),
        LostKind::Baseline => return Err(by_hand("no workspace is known to have it")),
        LostKind::Store => return Err(by_hand("another store took its place")),
        LostKind::Machines => return Err(by_hand("they are another state directory's")),
    }
    let row = match record::read_sandbox(home, &place) {
        Found::Record(row) => row,
        Found::None => return Err(by_hand("it has no record of what it was")),
        Found::Unreadable(reason) => return Err(by_hand(&reason)),
    };
    if let Some(baseline) = row.baseline()
        && !home.baselines().join(&baseline).exists()
        && let Ok(baseline) = lost.find(&baseline)
    {
        lost.put_back(&baseline)?;
    }
    lost.put_back(&entry)?;
    Ok(entry)
}

/// Deletes an entry for good.
pub fn remove(home: &Home, name: &str) -> Result<LostEntry> {
    let lost = Lost::of(home);
    let entry = lost.find(name)?;
    lost.remove(&entry)?;
    Ok(entry)
}

/// Rebuilds the store from the records beside the disks. The existing one is set aside.
pub async fn rebuild(home: &Home) -> Result<Rebuild> {
    let database = home.database();
    if Store::look(&database) == found::Store::Readable && Store::is_whole(&database) {
        return Err(
            Error::conflict("the store is whole: there is nothing to rebuild")
                .hint(hint![host("motu recover"), " lists what was set aside"]),
        );
    }
    // Built beside the old store and renamed, so there is always one of the two.
    let staged = home.path().join(format!("motu.db.new-{}", random_name(8)));
    let built = fill(home, &staged).await;
    let found = match built {
        Ok(found) => found,
        Err(error) => {
            remove_files(&staged);
            return Err(error);
        }
    };
    let mut set_aside = Vec::new();
    let lost = Lost::of(home);
    for suffix in FILES {
        let old = with_suffix(&database, suffix);
        if old.exists() {
            let why = "another store was made in its place";
            set_aside.push(lost.put(LostKind::Store, &old, why)?);
        }
    }
    std::fs::rename(&staged, &database)
        .map_err(|error| Error::io("put the new store in place", &error))?;
    Ok(Rebuild { found, set_aside })
}

async fn fill(home: &Home, staged: &std::path::Path) -> Result<Vec<Rebuilt>> {
    let store = Store::open(staged)?;
    let mut all = Vec::new();
    for (id, dir) in record::kept(home) {
        let beside = record::read_sandbox(home, &dir);
        let verdict = found::kept(Witness::Silent, beside.witness(), record::is_empty(&dir));
        let left_out = match (verdict, beside) {
            (Verdict::UseRecord, Found::Record(row)) => {
                let workspace = record::read_workspace(&dir).into_record();
                store.restore(&row, workspace.as_ref()).await?;
                None
            }
            (_, Found::Unreadable(reason)) => Some(reason),
            (Verdict::Remove(why) | Verdict::SetAside(why) | Verdict::LeaveAlone(why), _) => {
                Some(why.to_string())
            }
            (Verdict::UseRow | Verdict::UseRecord, _) => Some("it has no record".to_string()),
        };
        all.push(Rebuilt { id, left_out });
    }
    // Write the WAL back: only the one database file is renamed.
    store.checkpoint().await?;
    store.close().await;
    Ok(all)
}

fn with_suffix(database: &std::path::Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

fn remove_files(database: &std::path::Path) {
    for suffix in FILES {
        let _ = std::fs::remove_file(with_suffix(database, suffix));
    }
}
