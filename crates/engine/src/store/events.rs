//! The journal of events.
//!
//! An event is written in the transaction of the change that it tells of, so it is there exactly
//! when the change is, after any crash, and lasts as long as the change does. The row of a sandbox
//! says what its state was: an event is written where the state differs, and a daemon that finishes
//! what another began tells of it once.
//!
//! Numbers begin at the time of day in milliseconds, and jump there at each start of a daemon if
//! they are behind: a store that was made anew or brought back from a backup gives no number that
//! a reader may have seen already.
//!
//! So many events are kept together. When they are more, those who have the most lose their oldest
//! ([`share`]): a project that is busy forgets its own, and a quiet one keeps what it has.

use super::reading::parsed;
use super::{Store, Work};
use crate::lifecycle::is_expiry;
use motu_core::event::{Event, EventFacts, EventKind, Happened};
use motu_core::sandbox::{PausedBy, Sandbox, State};
use motu_core::{Project, Result};
use rusqlite::{OptionalExtension, params};
use tokio::sync::watch;

/// How often the oldest are forgotten: so many more than are kept may be there.
const TRIM_EVERY: u64 = 256;
/// The number until which events were forgotten: of everybody, and with a project behind it of
/// that one.
const FORGOTTEN: &str = "events_forgotten";

/// Some events after a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub events: Vec<Event>,
    /// Everything until here was looked at.
    pub until: u64,
    /// Events until this number are not kept any more: of the project that was asked for, or of
    /// some project.
    pub forgotten: u64,
    /// The last number that was given.
    pub last: u64,
}

impl Store {
    /// Goes on with numbers that nobody has seen, and with how many events are kept.
    pub async fn open_events(&self, kept: u64) -> Result<()> {
        self.kept.store(kept, std::sync::atomic::Ordering::Relaxed);
        self.with("events", |transaction| {
            let now = jiff::Timestamp::now().as_millisecond();
            let known: Option<i64> = transaction
                .query_row(
                    "SELECT seq FROM sqlite_sequence WHERE name = 'events'",
                    [],
                    |row| row.get(0),
                )
                .optional()?;
            match known {
                Some(_) => transaction.execute(
                    "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'events'",
                    params![now],
                )?,
                None => {
                    // Who has a number of an earlier store is told that its events are gone.
                    forget(transaction, None, now)?;
                    transaction.execute(
                        "INSERT INTO sqlite_sequence VALUES ('events', ?1)",
                        params![now],
                    )?
                }
            };
            Ok(())
        })
        .await
    }

    /// Says when there are more events: the last number that was given.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Writes an event of something that is done and not in the store. What is done is not undone
    /// because nobody can be told.
    pub async fn tell(&self, event: Happened) {
        let kind = event.kind.clone();
        let told = self.with("events", move |transaction| add(transaction, &event));
        if let Err(error) = told.await {
            tracing::warn!(kind, %error, "an event could not be written down");
        }
    }

    /// Events after a number, of one project or of everybody, at most so many. One that cannot be
    /// read is passed over, and the daemon's log says so.
    pub async fn events(&self, project: Option<&Project>, after: u64, most: usize) -> Result<Page> {
        let project = project.map(ToString::to_string);
        let (mut page, rows) = self
            .with("events", move |transaction| {
                let rows = rows(transaction, project.as_deref(), after, most)?;
                let last = last(transaction)?;
                let page = Page {
                    until: match rows.last() {
                        Some((sequence, _)) if rows.len() == most => sequence.unsigned_abs(),
                        _ => last.max(after),
                    },
                    forgotten: forgotten(transaction, project.as_deref())?,
                    last,
                    events: Vec::new(),
                };
                Ok((page, rows))
            })
            .await?;
        page.events = rows.into_iter().filter_map(|(_, event)| event).collect();
        Ok(page)
    }
}

impl Store {
    /// The newest events before a number, the newest first: of one project or of everybody, at most
    /// so many. One that cannot be read has its number and is not there.
    pub async fn events_back(
        &self,
        project: Option<&Project>,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, Option<Happened>)>> {
        let project = project.map(ToString::to_string);
        self.with("events", move |transaction| {
            let mut query = transaction.prepare_cached(match project {
                Some(_) => {
                    "SELECT sequence, event FROM events
                     WHERE project = ?3 AND sequence < ?1 ORDER BY sequence DESC LIMIT ?2"
                }
                None => {
                    "SELECT sequence, event FROM events
                     WHERE sequence < ?1 ORDER BY sequence DESC LIMIT ?2"
                }
            })?;
            let (before, most) = (to_signed(before), most as i64);
            let mut rows = match project {
                Some(project) => query.query(params![before, most, project])?,
                None => query.query(params![before, most])?,
            };
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let sequence: i64 = row.get(0)?;
                found.push((sequence.unsigned_abs(), parsed(row, 1).ok()));
            }
            Ok(found)
        })
        .await
    }
}

/// Numbers and events, in their order. One that cannot be read has its number and is not there.
fn rows(
    transaction: &Work<'_>,
    project: Option<&str>,
    after: u64,
    most: usize,
) -> rusqlite::Result<Vec<(i64, Option<Event>)>> {
    let mut query = transaction.prepare_cached(match project {
        Some(_) => {
            "SELECT sequence, event, rowid AS rowid_of_it FROM events
             WHERE project = ?3 AND sequence > ?1 ORDER BY sequence LIMIT ?2"
        }
        None => {
            "SELECT sequence, event, rowid AS rowid_of_it FROM events
             WHERE sequence > ?1 ORDER BY sequence LIMIT ?2"
        }
    })?;
    let (after, most) = (to_signed(after), most as i64);
    let mut rows = match project {
        Some(project) => query.query(params![after, most, project])?,
        None => query.query(params![after, most])?,
    };
    let (mut found, mut spoiled) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let sequence: i64 = row.get(0)?;
        let event = match parsed(row, 1) {
            Ok(happened) => Some(Event {
                sequence: sequence.unsigned_abs(),
                happened,
            }),
            Err(error) => {
                spoiled.extend(transaction.set_aside("events", row, &error));
                None
            }
        };
        found.push((sequence, event));
    }
    drop(rows);
    transaction.drop_rows("events", spoiled)?;
    Ok(found)
}

/// Writes an event, and says so to those who wait once the transaction is through.
pub(super) fn add(transaction: &Work<'_>, event: &Happened) -> rusqlite::Result<()> {
    let json = serde_json::to_string(event)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    transaction
        .prepare_cached("INSERT INTO events (event, project) VALUES (?1, ?2)")?
        .execute(params![json, event.project])?;
    let sequence = transaction.last_insert_rowid().unsigned_abs();
    transaction.told(sequence);
    if sequence.is_multiple_of(TRIM_EVERY) {
        trim(transaction)?;
    }
    Ok(())
}

/// Forgets the oldest events of those projects that have too many.
fn trim(transaction: &Work<'_>) -> rusqlite::Result<()> {
    let mut query =
        transaction.prepare_cached("SELECT project, count(*) FROM events GROUP BY project")?;
    // One whose project cannot be read is nobody's to count.
    let counts = query.query_map([], |row| {
        Ok((row.get::<_, String>(0).ok(), row.get::<_, i64>(1)?))
    })?;
    let counts: Vec<(Option<String>, i64)> = counts.collect::<rusqlite::Result<_>>()?;
    let read = |(project, count)| Option::zip(project, Some(count));
    let counts: Vec<(String, i64)> = counts.into_iter().filter_map(read).collect();
    let kept = share(
        counts.iter().map(|(_, count)| count.unsigned_abs()),
        transaction.kept(),
    );
    let newest_forgotten = "SELECT sequence FROM events WHERE project = ?1
         ORDER BY sequence DESC LIMIT 1 OFFSET ?2";
    let delete = "DELETE FROM events WHERE project = ?1 AND sequence <= ?2";
    for (project, _) in counts
        .iter()
        .filter(|(_, count)| count.unsigned_abs() > kept)
    {
        let until: i64 =
            transaction.query_row(newest_forgotten, params![project, to_signed(kept)], |row| {
                row.get(0)
            })?;
        transaction.execute(delete, params![project, until])?;
        forget(transaction, Some(project), until)?;
    }
    Ok(())
}

/// How many events each may have, so that all have no more than so many together. Who has fewer
/// keeps them, and what they leave is shared by the others.
fn share(counts: impl Iterator<Item = u64>, kept: u64) -> u64 {
    let mut counts: Vec<u64> = counts.collect();
    counts.sort_unstable();
    let mut left = kept;
    for (at, count) in counts.iter().enumerate() {
        let each = left / (counts.len() - at) as u64;
        if *count > each {
            return each;
        }
        left -= count;
    }
    u64::MAX
}

fn forgotten_of(project: Option<&str>) -> String {
    match project {
        Some(project) => format!("{FORGOTTEN}/{project}"),
        None => FORGOTTEN.to_string(),
    }
}

fn forget(transaction: &Work<'_>, project: Option<&str>, until: i64) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT OR REPLACE INTO meta VALUES (?1, ?2)",
        params![forgotten_of(project), until.to_string()],
    )?;
    Ok(())
}

/// The number until which events of a project, or of anybody, were forgotten.
fn forgotten(transaction: &Work<'_>, project: Option<&str>) -> rusqlite::Result<u64> {
    let mut query = transaction.prepare_cached(match project {
        Some(_) => "SELECT max(CAST(value AS INTEGER)) FROM meta WHERE key IN (?1, ?2)",
        None => "SELECT max(CAST(value AS INTEGER)) FROM meta WHERE key = ?1 OR key GLOB ?2",
    })?;
    let which = forgotten_of(Some(project.unwrap_or("*")));
    let until: Option<i64> = query.query_row(params![FORGOTTEN, which], |row| row.get(0))?;
    Ok(until.unwrap_or(0).unsigned_abs())
}

fn last(transaction: &Work<'_>) -> rusqlite::Result<u64> {
    let last: Option<i64> = transaction
        .query_row(
            "SELECT seq FROM sqlite_sequence WHERE name = 'events'",
            [],
            |row| row.get(0),
        )
        .optional()?;
    Ok(last.unwrap_or(0).unsigned_abs())
}

/// Numbers of callers may be larger than those of the store are.
fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Tells something of a workspace, if it is there and its sandbox is in this state or, where none
/// is named, in any.
pub(super) fn of_workspace(
    transaction: &Work<'_>,
    kind: EventKind,
    key: &str,
    state: Option<State>,
) -> rusqlite::Result<()> {
    let found: Option<(String, Option<String>, Option<String>)> = transaction
        .query_row(
            "SELECT state, json_extract(sandbox, '$.owner'), json_extract(workspace, '$.name')
             FROM workspaces JOIN sandboxes ON sandbox_id = workspace_id WHERE workspace_id = ?1",
            params![key],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()
        // A row that is no JSON is reported where it is read.
        .unwrap_or_default();
    match found {
        Some((found, owner, name)) if state.is_none_or(|state| found == state.as_str()) => {
            let event = Happened::now(kind, owner.as_deref().unwrap_or_default());
            let facts = EventFacts {
                name,
                ..EventFacts::default()
            };
            add(transaction, &event.about(key).facts(facts))
        }
        _ => Ok(()),
    }
}

/// Tells how the state of a sandbox differs from what its row said.
pub(super) fn changed(
    transaction: &Work<'_>,
    was: &str,
    sandbox: &Sandbox,
) -> rusqlite::Result<()> {
    let Some(kind) = kind_of(was, sandbox) else {
        return Ok(());
    };
    let event = Happened::now(kind, &sandbox.owner).about(&sandbox.sandbox_id);
    add(transaction, &event.facts(facts_of(kind, sandbox)))?;
    match kind {
        EventKind::SandboxCreated => {
            let id = sandbox.sandbox_id.as_str();
            of_workspace(transaction, EventKind::WorkspaceCreated, id, None)
        }
        _ => Ok(()),
    }
}

fn kind_of(was: &str, sandbox: &Sandbox) -> Option<EventKind> {
    let is = |state: State| was == state.as_str();
    match sandbox.state {
        now if is(now) => None,
        State::Running if is(State::Creating) => Some(EventKind::SandboxCreated),
        State::Running if is(State::Paused) => Some(EventKind::SandboxResumed),
        State::Running => Some(EventKind::SandboxStarted),
        State::Paused => Some(EventKind::SandboxPaused),
        State::Stopped => Some(EventKind::SandboxStopped),
        State::Failed => Some(EventKind::SandboxEnded),
        State::Destroying => {
            let expired = sandbox.reason.as_deref().is_some_and(is_expiry);
            expired.then_some(EventKind::SandboxExpired)
        }
        State::Destroyed => Some(EventKind::SandboxDestroyed),
        State::Creating => None,
    }
}

fn facts_of(kind: EventKind, sandbox: &Sandbox) -> EventFacts {
    let mut facts = EventFacts {
        reason: sandbox.reason.clone(),
        paused_by: sandbox.paused.map(|paused| {
            let by = match paused.by {
                PausedBy::Caller => "caller",
                PausedBy::Idle => "idle",
                PausedBy::Shortage => "shortage",
            };
            by.to_string()
        }),
        ..EventFacts::default()
    };
    if matches!(kind, EventKind::SandboxCreated | EventKind::SandboxStarted) {
        facts.runtime = Some(sandbox.runtime.clone());
        facts.isolation = Some(sandbox.isolation.to_string());
        facts.environment = Some(sandbox.environment.clone());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::share;
    use proptest::prelude::*;

    #[test]
    fn who_has_the_most_loses_the_oldest() {
        for (counts, kept, each) in [
            (&[][..], 100, u64::MAX),
            (&[40, 60], 100, u64::MAX),
            (&[256], 100, 100),
            (&[5, 300], 100, 95),
            (&[300, 5, 300], 100, 47),
            (&[300, 300], 100, 50),
        ] {
            assert_eq!(share(counts.iter().copied(), kept), each, "{counts:?}");
        }
    }

    proptest! {
        /// No more are kept than may be, and nobody loses any below an equal share.
        #[test]
        fn a_share_is_fair(counts in proptest::collection::vec(0u64..500, 1..20), kept in 20u64..2000) {
            let each = share(counts.iter().copied(), kept);
            let after: u64 = counts.iter().map(|count| *count.min(&each)).sum();
            prop_assert!(after <= kept, "{after}");
            prop_assert!(each >= kept / counts.len() as u64);
            let all: u64 = counts.iter().sum();
            // Nothing is forgotten that could stay, but for what cannot be divided.
            prop_assert!(all <= kept || after + counts.len() as u64 > kept);
        }
    }
}
