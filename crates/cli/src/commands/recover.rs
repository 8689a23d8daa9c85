//! `motu recover`: what was set aside, and a store that is lost.

use crate::context::Context;
use crate::serving::exclusively;
use crate::show;
use crate::show::answer;
use motu_core::Result;
use motu_engine::Home;
use motu_engine::recover::{self, LostEntry, LostKind, Rebuild};
use std::process::ExitCode;

/// List, put back or remove what was set aside; rebuild a lost store
///
/// A daemon that finds something it does not know sets it aside in `lost/`, with the
/// reason, and deletes nothing. Without arguments this lists what is there. Everything but
/// listing needs the state directory for itself: stop the daemon with `motu serve --stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu recover                         What was set aside, and why
  motu recover ws-3f9k2m7qx0ab         Put it back; the next command finds it
  motu recover --rebuild               Make motu.db again from the records beside the disks
  motu recover --remove ws-3f9k2m7qx0ab.k2m7qx
                                       Delete it for good")]
pub struct Args {
    /// What to put back: an entry, or the name of what it was
    #[arg(value_name = "ENTRY", conflicts_with_all = ["rebuild", "remove"])]
    entry: Option<String>,

    /// Make the store again from the records beside the disks; the old one is set aside
    #[arg(long, conflicts_with = "remove")]
    rebuild: bool,

    /// Delete for good what was set aside
    #[arg(long, value_name = "ENTRY")]
    remove: Option<String>,

    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let place = &context.place;
        let home = || Home::open(place.path());
        if self.rebuild {
            let _alone = exclusively(place)?;
            answer(self.json, &recover::rebuild(&home()?).await?, told_rebuild);
        } else if let Some(entry) = &self.remove {
            let _alone = exclusively(place)?;
            let removed = recover::remove(&home()?, entry)?;
            answer(self.json, &removed, |one| {
                format!("removed {}\n", name(one))
            });
        } else if let Some(entry) = &self.entry {
            let _alone = exclusively(place)?;
            let back = recover::restore(&home()?, entry)?;
            answer(self.json, &back, |one| {
                let was_at = show::safe(&one.was_at.to_string_lossy());
                format!("{} is back in {was_at}\n", name(one))
            });
        } else {
            answer(self.json, &recover::list(&home()?), |all| told_list(all));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn name(entry: &LostEntry) -> String {
    show::safe(&entry.entry).to_string()
}

fn told_list(all: &[LostEntry]) -> String {
    if all.is_empty() {
        return "nothing was set aside\n".to_string();
    }
    let mut text = String::new();
    for entry in all {
        let kind = match entry.kind {
            LostKind::Kept => "workspace or kept sandbox",
            LostKind::Disks => "disks",
            LostKind::Baseline => "baseline",
            LostKind::Store => "store",
            LostKind::Machines => "machines",
            LostKind::Row => "row of the store",
            LostKind::Changes => "lost changes of the store",
        };
        text.push_str(&format!(
            "{}  {kind}, was {}, set aside {}: {}\n",
            name(entry),
            show::safe(&entry.was_at.to_string_lossy()),
            entry.at,
            show::safe(&entry.reason)
        ));
    }
    text
}

fn told_rebuild(rebuild: &Rebuild) -> String {
    let mut text = String::new();
    for one in &rebuild.found {
        text.push_str(&match &one.left_out {
            None => format!("{}  is in the new store\n", one.id),
            Some(why) => format!("{}  was left out: {}\n", one.id, show::safe(why)),
        });
    }
    for part in rebuild
        .parts
        .iter()
        .filter(|part| part.count > 0 || part.missing.is_some())
    {
        let place = show::safe(&part.place.to_string_lossy()).to_string();
        let missing = part.missing.as_deref().map(show::safe);
        let missing = missing.map(|why| format!(" ({why})")).unwrap_or_default();
        text.push_str(&format!(
            "{} {} in {place}{missing}\n",
            part.count, part.what
        ));
    }
    for old in &rebuild.set_aside {
        let was_at = show::safe(&old.was_at.to_string_lossy()).to_string();
        text.push_str(&format!(
            "the old {was_at} was set aside as {}\n",
            name(old)
        ));
    }
    text + "the store is made again\n"
}
