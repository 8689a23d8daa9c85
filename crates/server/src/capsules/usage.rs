//! What the capsules of a caller have taken: how many ran when, and for how long.
//!
//! Nothing is counted for it. Events say when a sandbox ran, records of it how large it was, so the
//! answer goes back as far as both are kept.

use super::shapes::is_capsule;
use super::{Answer, Desk, desk};
use crate::app::App;
use crate::extract::{Introduced, Params};
use axum::Json;
use axum::extract::State;
use futures_util::TryStreamExt;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use motu_core::event::{Event, EventKind, ReadEvents};
use motu_core::sandbox::{Sandbox, State as Life};
use motu_core::shown::quoted;
use motu_core::{Error, Result, verb};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Days in one answer about usage.
const DAYS: i32 = 92;
/// How far back peaks and usage go unless something else is asked for.
const USUAL_DAYS: i64 = 30;

/// How far back the numbers of capsules are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CapsuleRange)]
pub enum Range {
    #[serde(rename = "5m")]
    FiveMinutes,
    #[default]
    #[serde(rename = "1h")]
    OneHour,
    #[serde(rename = "6h")]
    SixHours,
    #[serde(rename = "24h")]
    OneDay,
    #[serde(rename = "30d")]
    ThirtyDays,
}

impl Range {
    /// How far it goes back, and how far its points are apart; in seconds.
    const fn reach(self) -> (i64, i64) {
        match self {
            Range::FiveMinutes => (300, 10),
            Range::OneHour => (3600, 60),
            Range::SixHours => (6 * 3600, 300),
            Range::OneDay => (86_400, 900),
            Range::ThirtyDays => (30 * 86_400, 6 * 3600),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Window {
    range: Range,
}

/// Capsules that run, and what is set aside for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CapsulesNow)]
pub struct Now {
    pub running_count: u64,
    pub vcpus_reserved: u64,
    pub memory_mb_reserved: u64,
}

/// The most of the last 30 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CapsulesPeaks)]
pub struct Peaks {
    pub running_count: u64,
    pub vcpus: u64,
    pub memory_mb: u64,
}

/// One list for each figure; those of one time have the same place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = CapsulesSeries)]
pub struct Series {
    #[schema(value_type = Vec<String>)]
    pub labels: Vec<Timestamp>,
    pub running: Vec<u64>,
    pub vcpus: Vec<u64>,
    pub memory_mb: Vec<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleStats)]
pub struct Stats {
    pub range: Range,
    pub current: Now,
    pub peaks: Peaks,
    pub series: Series,
}

/// One day, in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = CapsuleDay)]
pub struct Day {
    #[schema(value_type = String, format = Date)]
    pub date: Date,
    pub cpu_minutes: f64,
    pub ram_mb_minutes: f64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleUsage)]
pub struct Usage {
    #[schema(value_type = String, format = Date)]
    pub from: Date,
    #[schema(value_type = String, format = Date)]
    pub to: Date,
    pub points: Vec<Day>,
}

/// Which days; the last 30 when missing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Days {
    from: Option<String>,
    to: Option<String>,
}

pub async fn stats(
    app: State<App>,
    caller: Introduced,
    Params(window): Params<Window>,
) -> Answer<Json<Stats>> {
    let (all, ran, now) = known(&desk(app, caller)).await?;
    let running = all.iter().filter(|one| one.state == Life::Running);
    let current = running.fold(Now::default(), |sum, one| Now {
        running_count: sum.running_count + 1,
        vcpus_reserved: sum.vcpus_reserved + one.vcpu_count,
        memory_mb_reserved: sum.memory_mb_reserved + one.mem_mib,
    });
    Ok(Json(Stats {
        range: window.range,
        current,
        peaks: peaks(&ran, now - SignedDuration::from_hours(24 * USUAL_DAYS)),
        series: series(&ran, window.range, now),
    }))
}

pub async fn usage(
    app: State<App>,
    caller: Introduced,
    Params(days): Params<Days>,
) -> Answer<Json<Usage>> {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let to = date("to", days.to)?.unwrap_or(today);
    let usual = || to.saturating_sub(USUAL_DAYS.days());
    let from = date("from", days.from)?.unwrap_or_else(usual);
    let length = to.since(from).map_or(i32::MAX, |span| span.get_days());
    if !(0..DAYS).contains(&length) {
        let error = Error::invalid(format!("{from} to {to} cannot be answered at once"));
        return Err(error
            .hint(format!("ask for at most {DAYS} days, the first one first"))
            .into());
    }
    let (_, ran, _) = known(&desk(app, caller)).await?;
    let points = (0..=length).filter_map(|day| of_day(&ran, from.checked_add(day.days()).ok()?));
    Ok(Json(Usage {
        from,
        to,
        points: points.collect(),
    }))
}

fn date(field: &str, text: Option<String>) -> Result<Option<Date>> {
    let read = |text: String| {
        text.parse().map_err(|_| {
            Error::invalid(format!("{field}: {} is no date", quoted(&text, 60)))
                .hint("such as 2026-01-31")
        })
    };
    text.map(read).transpose()
}

/// The capsules that are remembered, when they ran, and until when that is known.
async fn known(desk: &Desk) -> Result<(Vec<Sandbox>, Vec<Ran>, Timestamp)> {
    let all = desk.capsules(true).await?;
    let ask = ReadEvents {
        kind: Some("sandbox".to_string()),
        ..ReadEvents::default()
    };
    let lines = desk.call(verb::ReadEvents { ask }).await?;
    let text: Vec<bytes::Bytes> = lines.try_collect().await?;
    let text = text.concat();
    let lines = text.split(|byte| *byte == b'\n');
    // One that cannot be read is passed over, as everywhere.
    let events = lines.filter_map(|line| serde_json::from_slice(line).ok());
    let now = Timestamp::now();
    let ran = ran(&all, events, now);
    Ok((all, ran, now))
}

/// A time in which a capsule ran.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ran {
    from: Timestamp,
    to: Timestamp,
    vcpus: u64,
    memory_mb: u64,
}

/// When capsules ran, as their events tell.
fn ran(all: &[Sandbox], events: impl Iterator<Item = Event>, now: Timestamp) -> Vec<Ran> {
    let mut told: BTreeMap<String, Vec<(Timestamp, bool)>> = BTreeMap::new();
    for Event { happened, .. } in events {
        if let (Some(id), Some(runs)) = (happened.id, runs(&happened.kind)) {
            told.entry(id).or_default().push((happened.time, runs));
        }
    }
    let mut found = Vec::new();
    for one in all.iter().filter(|one| is_capsule(one)) {
        let changes = told.remove(one.sandbox_id.as_str()).unwrap_or_default();
        let stretch = |from, to| Ran {
            from,
            to,
            vcpus: one.vcpu_count,
            memory_mb: one.mem_mib,
        };
        // Its first events may be forgotten: then it ran from its beginning to the first that is left.
        let forgotten = changes.first().is_none_or(|(_, runs)| !runs);
        let mut since = (forgotten && one.state != Life::Creating).then_some(one.created_at);
        for (at, runs) in changes {
            match (since, runs) {
                (None, true) => since = Some(at),
                (Some(from), false) => {
                    found.push(stretch(from, at));
                    since = None;
                }
                _ => {}
            }
        }
        if let Some(from) = since {
            let to = match one.state {
                Life::Running => now,
                _ => one.last_activity_at,
            };
            found.push(stretch(from, to.max(from)));
        }
    }
    found
}

/// Whether a sandbox runs after an event of this kind; nothing where that changes nothing.
fn runs(kind: &str) -> Option<bool> {
    let kind = EventKind::ALL.iter().find(|known| known.as_str() == kind)?;
    match kind {
        EventKind::SandboxCreated | EventKind::SandboxResumed | EventKind::SandboxStarted => {
            Some(true)
        }
        EventKind::SandboxPaused
        | EventKind::SandboxStopped
        | EventKind::SandboxEnded
        | EventKind::SandboxDestroyed => Some(false),
        _ => None,
    }
}

fn series(ran: &[Ran], range: Range, now: Timestamp) -> Series {
    let (reach, apart) = range.reach();
    let mut series = Series::default();
    for step in 1..=reach / apart {
        let at = now - SignedDuration::from_secs(reach - step * apart);
        let there = ran.iter().filter(|one| one.from <= at && at <= one.to);
        let (mut count, mut vcpus, mut memory) = (0, 0, 0);
        for one in there {
            count += 1;
            vcpus += one.vcpus;
            memory += one.memory_mb;
        }
        series.labels.push(at);
        series.running.push(count);
        series.vcpus.push(vcpus);
        series.memory_mb.push(memory);
    }
    series
}

/// The most at any time since then.
fn peaks(ran: &[Ran], since: Timestamp) -> Peaks {
    let recent = ran.iter().filter(|one| one.to >= since);
    let mut changes: Vec<(Timestamp, bool, &Ran)> = recent
        .flat_map(|one| [(one.from, true, one), (one.to, false, one)])
        .collect();
    // Of those that begin when others end, the ends come first.
    changes.sort_by_key(|(at, begins, _)| (*at, *begins));
    let (mut count, mut vcpus, mut memory) = (0u64, 0u64, 0u64);
    let mut peaks = Peaks::default();
    for (_, begins, one) in changes {
        if !begins {
            count = count.saturating_sub(1);
            vcpus = vcpus.saturating_sub(one.vcpus);
            memory = memory.saturating_sub(one.memory_mb);
            continue;
        }
        count += 1;
        vcpus += one.vcpus;
        memory += one.memory_mb;
        peaks = Peaks {
            running_count: peaks.running_count.max(count),
            vcpus: peaks.vcpus.max(vcpus),
            memory_mb: peaks.memory_mb.max(memory),
        };
    }
    peaks
}

/// What was used on one day.
fn of_day(ran: &[Ran], date: Date) -> Option<Day> {
    let begin = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let end = begin + SignedDuration::from_hours(24);
    let mut day = Day {
        date,
        cpu_minutes: 0.0,
        ram_mb_minutes: 0.0,
    };
    for one in ran {
        let (from, to) = (one.from.max(begin), one.to.min(end));
        if from < to {
            let minutes = to.duration_since(from).as_secs_f64() / 60.0;
            day.cpu_minutes += minutes * one.vcpus as f64;
            day.ram_mb_minutes += minutes * one.memory_mb as f64;
        }
    }
    Some(day)
}

#[cfg(test)]
mod tests {
    use super::super::shapes::MADE_HERE;
    use super::*;
    use motu_core::SandboxId;
    use motu_core::event::Happened;
    use motu_testkit::answers;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn capsule(id: &str, state: Life, created: &str) -> Sandbox {
        let id = SandboxId::parse(id).unwrap();
        Sandbox {
            state,
            created_at: at(created),
            last_activity_at: at(created),
            labels: [(MADE_HERE.to_string(), "true".to_string())].into(),
            vcpu_count: 2,
            mem_mib: 512,
            ..answers::sandbox(&id)
        }
    }

    fn event(id: &str, kind: EventKind, time: &str) -> Event {
        Event {
            sequence: 1,
            happened: Happened {
                time: at(time),
                ..Happened::now(kind, "").about(id)
            },
        }
    }

    const NOW: &str = "2026-03-02T12:00:00Z";

    fn known() -> Vec<Ran> {
        let all = [
            capsule("sb-a", Life::Running, "2026-03-01T23:00:00Z"),
            capsule("sb-b", Life::Destroyed, "2026-03-02T00:00:00Z"),
            Sandbox {
                labels: BTreeMap::new(),
                ..capsule("sb-other", Life::Running, "2026-03-01T00:00:00Z")
            },
        ];
        let events = [
            event("sb-a", EventKind::SandboxCreated, "2026-03-01T23:00:00Z"),
            event("sb-a", EventKind::SandboxPaused, "2026-03-02T01:00:00Z"),
            // What happened to it first is forgotten.
            event("sb-b", EventKind::SandboxDestroyed, "2026-03-02T00:30:00Z"),
            event("sb-a", EventKind::SandboxResumed, "2026-03-02T11:59:00Z"),
            event(
                "sb-other",
                EventKind::SandboxCreated,
                "2026-03-01T00:00:00Z",
            ),
        ];
        ran(&all, events.into_iter(), at(NOW))
    }

    #[test]
    fn pauses_are_not_counted_and_days_are_cut_at_midnight() {
        let ran = known();
        assert_eq!(ran.len(), 3, "{ran:?}");
        let day = |text: &str| of_day(&ran, text.parse().unwrap()).unwrap();
        let first = day("2026-03-01");
        assert_eq!(
            (first.cpu_minutes, first.ram_mb_minutes),
            (120.0, 60.0 * 512.0)
        );
        // An hour and a minute of one, half an hour of the other.
        assert_eq!(day("2026-03-02").cpu_minutes, 2.0 * (60.0 + 1.0 + 30.0));
        assert_eq!(day("2026-03-03").cpu_minutes, 0.0);
    }

    #[test]
    fn the_most_at_once_is_a_peak() {
        let expected = Peaks {
            running_count: 2,
            vcpus: 4,
            memory_mb: 1024,
        };
        assert_eq!(peaks(&known(), at("2026-02-01T00:00:00Z")), expected);
        let later = peaks(&known(), at("2026-03-02T02:00:00Z"));
        assert_eq!(later.running_count, 1);
    }

    #[test]
    fn a_series_is_as_long_and_as_dense_as_it_says() {
        for (range, count) in [
            (Range::FiveMinutes, 30),
            (Range::OneHour, 60),
            (Range::SixHours, 72),
            (Range::OneDay, 96),
            (Range::ThirtyDays, 120),
        ] {
            let series = series(&known(), range, at(NOW));
            assert_eq!(series.labels.len(), count, "{range:?}");
            assert_eq!(series.labels.last(), Some(&at(NOW)), "{range:?}");
            assert_eq!(series.running.last(), Some(&1), "{range:?}");
        }
        let day = series(&known(), Range::OneDay, at(NOW));
        assert_eq!(day.running.iter().max(), Some(&2));
    }
}
