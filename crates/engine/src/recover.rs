//! Recovering a state directory that no daemon serves.
//!
//! Entries that were set aside are listed, put back or removed; a lost store is rebuilt from the
//! records beside the disks, and from what can be read of the old one. What was found, what was
//! not, and where it lies, is said. The caller holds the lock of the state directory.

use crate::found::{self, Verdict, Witness};
use crate::home::Home;
use crate::lost::Lost;
use crate::record::{self, Found};
use crate::register::Register;
use crate::store::{MARK, Salvaged, Store};
use motu_core::hint;
use motu_core::hint::host;
use motu_core::id::random_name;
use motu_core::template::Template;
use motu_core::{Error, Result, SandboxId};
use serde::Serialize;
use std::path::PathBuf;

pub use crate::lost::{LostEntry, LostKind};

/// Suffixes of the files of a SQLite database.
const FILES: [&str; 4] = ["", "-wal", "-shm", MARK];

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
    /// What else is kept here, and what is not any more.
    pub parts: Vec<Part>,
    /// The files of the old store.
    pub set_aside: Vec<LostEntry>,
}

/// Something that is kept, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    pub what: String,
    /// How many there are.
    pub count: u64,
    /// Where they lie, in the state directory.
    pub place: PathBuf,
    /// What is missing, or cannot be read.
    pub missing: Option<String>,
}

/// Everything that was set aside.
pub fn list(home: &Home) -> Vec<LostEntry> {
    Lost::of(home).list()
}

/// Puts an entry back; the next daemon adopts it.
pub fn restore(home: &Home, name: &str) -> Result<LostEntry> {
    crate::backup::settle(home)?;
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
        LostKind::Row => return Err(by_hand("it is damaged")),
        LostKind::Changes => return Err(by_hand("it is what was left of a log that was lost")),
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
    crate::backup::settle(home)?;
    let database = home.database();
    if Store::look(&database) == found::Store::Readable && Store::is_whole(&database).await {
        return Err(
            Error::conflict("the store is whole: there is nothing to rebuild")
                .hint(hint![host("motu recover"), " lists what was set aside"]),
        );
    }
    // Built beside the old store and renamed, so there is always one of the two.
    let staged = home.path().join(format!("motu.db.new-{}", random_name(8)));
    let built = fill(home, &staged).await;
    let (found, salvaged) = match built {
        Ok(built) => built,
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
    remove_files(&staged);
    Ok(Rebuild {
        found,
        parts: parts(home, &salvaged)?,
        set_aside,
    })
}

async fn fill(home: &Home, staged: &std::path::Path) -> Result<(Vec<Rebuilt>, Vec<Salvaged>)> {
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
    let salvaged = match home.database().exists() {
        true => store.salvage(&home.database()).await?,
        false => Vec::new(),
    };
    // Write the WAL back: only the one database file is renamed.
    store.checkpoint().await?;
    store.close().await;
    Ok((all, salvaged))
}

/// Says what is kept beside the store, and what of the store could not be read.
fn parts(home: &Home, salvaged: &[Salvaged]) -> Result<Vec<Part>> {
    let mut all = vec![
        registered::<serde_json::Value>(&Register::keys(home), "keys", salvaged)?,
        registered::<Template>(&Register::templates(home), "templates", salvaged)?,
    ];
    all.push(saved(home)?);
    for (what, place) in [
        ("policies", "policies"),
        ("secrets of calls", "secrets"),
        ("recordings of terminal sessions", "terminals"),
        ("names of environments", "environments/names"),
        ("segments and marks of the audit log", "audit"),
    ] {
        let found = std::fs::read_dir(home.path().join(place));
        all.push(Part {
            what: what.to_string(),
            count: found.into_iter().flatten().flatten().count() as u64,
            place: place.into(),
            missing: None,
        });
    }
    for (what, table) in [
        ("commands in histories of workspaces", "commands"),
        ("services", "services"),
        ("terminal sessions", "terminals"),
        ("events", "events"),
        ("sandboxes that are not kept", "sandboxes"),
    ] {
        let found = salvaged.iter().find(|one| one.table == table);
        all.push(Part {
            what: what.to_string(),
            count: found.map_or(0, |one| one.rows),
            place: "motu.db".into(),
            missing: match found {
                Some(one) if one.whole => None,
                Some(one) if one.rows > 0 => {
                    Some("some could not be read in the old store".to_string())
                }
                _ => Some("they were in the old store alone, and it cannot be read".to_string()),
            },
        });
    }
    Ok(all)
}

fn registered<T: serde::de::DeserializeOwned>(
    register: &Register,
    what: &'static str,
    salvaged: &[Salvaged],
) -> Result<Part> {
    let found = register.all::<T>()?;
    let unreadable: Vec<String> = found
        .unreadable
        .iter()
        .map(|(name, why)| format!("{name} cannot be read: {why}"))
        .collect();
    // Those of an earlier version, which the next daemon writes down.
    let former = salvaged.iter().find(|one| one.table == what);
    let former = former.map_or(0, |one| one.rows);
    let gone = !register.dir().is_dir() && former == 0;
    Ok(Part {
        what: what.to_string(),
        count: found.read.len() as u64 + former,
        place: what.into(),
        missing: match (unreadable.is_empty(), gone) {
            (false, _) => Some(unreadable.join("; ")),
            (true, true) => Some(format!(
                "there are none: an earlier version had its {what} in the store alone"
            )),
            (true, false) => None,
        },
    })
}

/// Machines that were saved for templates; one without a template is of no use to anybody but is
/// not removed.
fn saved(home: &Home) -> Result<Part> {
    let templates = Register::templates(home).all::<Template>()?.read;
    let known: Vec<PathBuf> = templates
        .iter()
        .filter_map(|(_, one)| Some(home.saved_machine(&one.name, one.asleep()?)))
        .collect();
    let found = std::fs::read_dir(home.saved())
        .into_iter()
        .flatten()
        .flatten();
    let found: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    let name = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let stray = found
        .iter()
        .filter(|path| !known.contains(path))
        .filter_map(name);
    let gone = known
        .iter()
        .filter(|path| !found.contains(path))
        .filter_map(name);
    let stray = stray.map(|name| format!("no template is known to have {name}"));
    let gone = gone.map(|name| format!("{name} is gone, which a template has"));
    let missing: Vec<String> = stray.chain(gone).collect();
    Ok(Part {
        what: "machines of templates with memory".to_string(),
        count: found.len() as u64,
        place: "saved".into(),
        missing: (!missing.is_empty()).then(|| missing.join("; ")),
    })
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
