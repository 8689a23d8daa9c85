//! Events, for whoever reads them: once, from a number on, or as they happen.
//!
//! ```text
//!   a change ──in its transaction──► journal (store/events.rs) ──a page at a time──► reader
//!                                        └── "there is more" (a number) ──────────────┘
//! ```
//!
//! A reader holds one page and its place. One that is slow reads later pages later, and what is
//! forgotten meanwhile is told to it by one event (`events.gone`); it holds up nobody and costs
//! nothing.

use crate::store::Store;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use motu_core::Result;
use motu_core::event::{Event, EventFacts, EventKind, Happened, ReadEvents, Wanted};
use motu_core::files::ByteStream;
use std::collections::VecDeque;
use tokio::sync::watch;

/// Events that are read from the journal at once.
const PAGE: usize = 256;
/// And for the tail, from the newest back.
const BACK: usize = 64;

/// The number of the event that the webhook was sent last.
const SENT: &str = "webhook_sent";

/// The events of one host.
#[derive(Clone, Debug)]
pub struct Events {
    store: Store,
    /// The last number before this daemon.
    began: u64,
    /// Whether the daemon leaves: readers end after what is written by then.
    leaving: std::sync::Arc<watch::Sender<bool>>,
}

impl Events {
    pub async fn open(store: Store, kept: u64) -> Result<Events> {
        store.open_events(kept).await?;
        Ok(Events {
            began: store.events(None, 0, 0).await?.last,
            store,
            leaving: std::sync::Arc::new(watch::Sender::new(false)),
        })
    }

    /// Tells of something that is done.
    pub async fn tell(&self, event: Happened) {
        self.store.tell(event).await;
    }

    pub async fn started(&self) {
        self.tell(of_host(EventKind::HostStarted)).await;
    }

    /// Tells that the daemon leaves, and lets readers end.
    pub async fn leave(&self) {
        self.tell(of_host(EventKind::HostStopped)).await;
        self.leaving.send_replace(true);
    }

    /// The events that a caller asks for, as lines.
    pub async fn lines(&self, ask: ReadEvents) -> Result<ByteStream> {
        let follow = ask.follow;
        let wanted = Wanted::new(&ask)?;
        let after = match (ask.after, ask.tail) {
            (Some(after), _) => After::Seen(after),
            (None, Some(tail)) => After::Place(self.before_newest(&wanted, tail).await?),
            (None, None) => After::Place(0),
        };
        let reader = self.reader(wanted, after, follow);
        let lines = unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(event)) => Some((line(&event), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        if !follow {
            return Ok(lines.boxed());
        }
        // An empty first piece sends the head of the answer while nothing happens.
        let first = futures_util::stream::once(async { Ok(Bytes::new()) });
        Ok(first.chain(lines).boxed())
    }

    /// The number before the newest so many events that a reader wants.
    async fn before_newest(&self, wanted: &Wanted, count: u64) -> Result<u64> {
        let start = self.store.events(wanted.project(), 0, 0).await?;
        if count == 0 {
            return Ok(start.last);
        }
        // From the newest back: what is older than the tail is not looked at.
        let (mut before, mut left, mut first) = (u64::MAX, count, None);
        loop {
            let back = self.store.events_back(wanted.project(), before, BACK);
            let back = back.await?;
            for (sequence, event) in &back {
                if event.as_ref().is_some_and(|event| wanted.takes(event)) {
                    (first, left) = (Some(*sequence), left - 1);
                }
                if left == 0 {
                    break;
                }
                before = *sequence;
            }
            if left == 0 || back.len() < BACK {
                return Ok(first.map_or(start.last, |first: u64| first - 1));
            }
        }
    }

    /// A reader that goes on after the event that a webhook was sent last; at the start of this
    /// daemon where there was none.
    pub async fn sent_reader(&self, wanted: Wanted) -> Result<Reader> {
        let sent = self.store.meta(SENT).await?;
        let after = match sent.and_then(|sent| sent.parse().ok()) {
            Some(sent) => After::Seen(sent),
            None => After::Place(self.began),
        };
        Ok(self.reader(wanted, after, true))
    }

    /// Notes that the webhook has an event.
    pub async fn note_sent(&self, sequence: u64) {
        if let Err(error) = self.store.note_meta(SENT, sequence.to_string()).await {
            tracing::warn!(sequence, %error, "the webhook may be sent an event twice");
        }
    }

    pub fn reader(&self, wanted: Wanted, after: After, follow: bool) -> Reader {
        Reader {
            store: self.store.clone(),
            news: self.store.news(),
            leaving: self.leaving.subscribe(),
            wanted,
            after,
            known: 0,
            follow,
            ready: VecDeque::new(),
        }
    }
}

/// Where a reader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// After a number that the reader has seen: what is not kept after it is missed.
    Seen(u64),
    /// At a place of the journal: what is before it is not asked for.
    Place(u64),
}

/// Reads events in their order.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    news: watch::Receiver<u64>,
    leaving: watch::Receiver<bool>,
    wanted: Wanted,
    after: After,
    /// What was forgotten until this number is known to the reader, or not asked for.
    known: u64,
    follow: bool,
    ready: VecDeque<Event>,
}

impl Reader {
    /// The next event; none when all were read, or when the daemon leaves.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            // Looked at before reading: what is written after it makes the wait below end at once.
            let leaving = *self.leaving.borrow();
            self.news.borrow_and_update();
            if self.read().await? {
                continue;
            }
            if leaving || !self.follow {
                return Ok(None);
            }
            tokio::select! {
                changed = self.news.changed() => if changed.is_err() {
                    return Ok(None);
                },
                _ = self.leaving.wait_for(|leaving| *leaving) => {}
            }
        }
    }

    /// Returns when the daemon leaves.
    pub async fn left(&self) {
        let _ = self.leaving.clone().wait_for(|leaving| *leaving).await;
    }

    /// Reads a page; false if there was nothing more.
    async fn read(&mut self) -> Result<bool> {
        let at = match self.after {
            After::Seen(number) | After::Place(number) => number,
        };
        let project = self.wanted.project();
        let page = self.store.events(project, at, PAGE).await?;
        if let After::Seen(asked) = self.after
            && (asked.max(self.known) < page.forgotten || asked > page.last)
        {
            // Others may have kept what is older than what somebody has lost: it comes next.
            let from = if asked > page.last { 0 } else { asked };
            let oldest = self.store.events(project, from, 1).await?.until;
            let before = oldest.saturating_sub(1);
            self.ready.push_back(gone(asked, before));
            self.known = page.forgotten;
            self.after = After::Seen(before);
            return Ok(true);
        }
        if let After::Place(_) = self.after {
            self.known = page.forgotten;
        }
        let wanted = &self.wanted;
        let fits = page.events.into_iter();
        self.ready
            .extend(fits.filter(|event| wanted.takes(&event.happened)));
        // From here on the reader has seen everything, and is told if it falls behind.
        self.after = After::Seen(page.until);
        Ok(page.until > at)
    }
}

/// Says that events after a number are missing. Who goes on after this one goes on with the oldest
/// that is kept.
fn gone(asked: u64, sequence: u64) -> Event {
    let facts = EventFacts {
        asked: Some(asked),
        reason: Some(
            "events after the number that was asked for are not kept any more".to_string(),
        ),
        ..EventFacts::default()
    };
    Event {
        sequence,
        happened: Happened {
            audit_id: None,
            ..Happened::now(EventKind::Gone, "").facts(facts)
        },
    }
}

fn of_host(kind: EventKind) -> Happened {
    Happened::now(kind, "").facts(EventFacts {
        version: Some(env!("CARGO_PKG_VERSION").to_string()),
        ..EventFacts::default()
    })
}

fn line(event: &Event) -> Result<Bytes> {
    let mut line = serde_json::to_vec(event)
        .map_err(|error| motu_core::Error::internal(format!("an event is no JSON: {error}")))?;
    line.push(b'\n');
    Ok(line.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn events(dir: &std::path::Path, kept: u64) -> Events {
        let store = Store::open(&dir.join("motu.db")).unwrap();
        Events::open(store, kept).await.unwrap()
    }

    async fn tell(events: &Events, owner: &str, ids: std::ops::Range<u64>) {
        for id in ids {
            let event = Happened::now(EventKind::SandboxCreated, owner);
            events.tell(event.about(format!("sb-{id}"))).await;
        }
    }

    async fn read(events: &Events, ask: ReadEvents) -> Vec<Event> {
        let mut lines = events.lines(ask).await.unwrap();
        let mut found = Vec::new();
        while let Some(line) = lines.next().await {
            found.push(serde_json::from_slice(&line.unwrap()).unwrap());
        }
        found
    }

    fn after(number: u64) -> ReadEvents {
        ReadEvents {
            after: Some(number),
            ..ReadEvents::default()
        }
    }

    fn ids(events: &[Event]) -> Vec<&str> {
        let ids = events.iter().map(|event| &event.happened.id);
        ids.map(|id| id.as_deref().unwrap_or_default()).collect()
    }

    #[tokio::test]
    async fn numbers_grow_over_a_restart_and_reading_goes_on_after_any_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let first = events(dir.path(), 1000).await;
        tell(&first, "", 0..3).await;
        let seen = read(&first, ReadEvents::default()).await;
        assert_eq!(ids(&seen), ["sb-0", "sb-1", "sb-2"]);
        drop(first);
        let next = events(dir.path(), 1000).await;
        tell(&next, "project:acme", 3..5).await;
        let all = read(&next, ReadEvents::default()).await;
        assert_eq!(ids(&all), ["sb-0", "sb-1", "sb-2", "sb-3", "sb-4"]);
        assert!(all.is_sorted_by_key(|event| event.sequence));
        assert_eq!(all[..3], seen);
        for (at, event) in all.iter().enumerate() {
            let rest = read(&next, after(event.sequence)).await;
            assert_eq!(rest, all[at + 1..]);
        }
        let theirs = ReadEvents {
            owner: "project:acme".to_string(),
            tail: Some(1),
            ..ReadEvents::default()
        };
        assert_eq!(ids(&read(&next, theirs).await), ["sb-4"]);
    }

    #[tokio::test]
    async fn who_asks_for_what_is_forgotten_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let events = events(dir.path(), 100).await;
        tell(&events, "", 0..1).await;
        let first = read(&events, ReadEvents::default()).await[0].sequence;
        tell(&events, "", 1..1000).await;
        let rest = read(&events, after(first)).await;
        let gone = &rest[0];
        assert_eq!(gone.happened.kind, "events.gone");
        assert_eq!(gone.happened.facts.asked, Some(first));
        assert_eq!(gone.sequence + 1, rest[1].sequence);
        assert!(
            (100..100 + 256).contains(&(rest.len() - 1)),
            "{}",
            rest.len()
        );
        assert_eq!(ids(&rest).last(), Some(&"sb-999"));
        // Going on after that event is going on with the oldest.
        assert_eq!(read(&events, after(gone.sequence)).await, rest[1..]);
        // A number of another host, or of a store that was lost.
        let ahead = read(&events, after(u64::MAX)).await;
        assert_eq!(ahead[0].happened.kind, "events.gone");
        assert_eq!(ahead[1..], rest[1..]);
        let early = read(&events, after(0)).await;
        assert_eq!(early[0].happened.kind, "events.gone");
        // Who names no number misses nothing.
        assert_eq!(read(&events, ReadEvents::default()).await, rest[1..]);
    }

    #[tokio::test]
    async fn a_busy_project_forgets_its_own_events_and_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let events = events(dir.path(), 100).await;
        let of = |owner: &str, after| ReadEvents {
            owner: owner.to_string(),
            after,
            ..ReadEvents::default()
        };
        tell(&events, "project:quiet", 0..10).await;
        tell(&events, "", 10..20).await;
        let quiet = read(&events, of("project:quiet", None)).await;
        let first = Some(quiet[0].sequence);
        let busy_from = {
            tell(&events, "project:busy", 100..101).await;
            read(&events, of("project:busy", None)).await[0].sequence
        };
        tell(&events, "project:busy", 101..2000).await;
        // The quiet one has all of its own, and misses nothing that it has not seen.
        assert_eq!(read(&events, of("project:quiet", None)).await, quiet);
        assert_eq!(read(&events, of("project:quiet", first)).await, quiet[1..]);
        // The busy one has the rest, and is told what it missed.
        let busy = read(&events, of("project:busy", Some(busy_from))).await;
        assert_eq!(busy[0].happened.kind, "events.gone");
        assert!((80..80 + 256).contains(&(busy.len() - 1)), "{}", busy.len());
        assert_eq!(ids(&busy).last(), Some(&"sb-1999"));
        // Who reads everything reads what is kept of everybody, over several pages.
        let all = read(&events, of("uid:0", None)).await;
        assert_eq!(all.len(), busy.len() - 1 + 20);
        assert_eq!(all[..10], quiet);
        // One who falls behind is told so, and hears what the quiet ones have kept all the same.
        let missed = read(&events, of("uid:0", first)).await;
        assert_eq!(missed[0].happened.kind, "events.gone");
        assert_eq!(missed[1..], all[1..]);
        // Coming back after being told loses nothing either.
        let again = read(&events, of("uid:0", Some(missed[0].sequence))).await;
        assert_eq!(again[again.len() - missed.len() + 1..], missed[1..]);
    }

    #[tokio::test]
    async fn a_damaged_line_costs_itself_only() {
        let dir = tempfile::tempdir().unwrap();
        let first = events(dir.path(), 1000).await;
        tell(&first, "", 0..3).await;
        let all = read(&first, ReadEvents::default()).await;
        let raw = rusqlite::Connection::open(dir.path().join("motu.db")).unwrap();
        let broken = "UPDATE events SET event = substr(event, 3) WHERE sequence = ?1";
        raw.execute(broken, [all[0].sequence as i64]).unwrap();
        let bytes = "UPDATE events SET event = CAST(x'ff00fe' AS TEXT) WHERE sequence = ?1";
        raw.execute(bytes, [all[2].sequence as i64]).unwrap();
        tell(&first, "", 3..4).await;
        let left = read(&first, ReadEvents::default()).await;
        assert_eq!(ids(&left), ["sb-1", "sb-3"]);
    }

    #[tokio::test]
    async fn a_follower_hears_what_comes_and_a_slow_one_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let events = events(dir.path(), 100).await;
        tell(&events, "", 0..1).await;
        let ask = ReadEvents {
            follow: true,
            ..ReadEvents::default()
        };
        let mut slow = events.lines(ask.clone()).await.unwrap();
        assert!(slow.next().await.unwrap().unwrap().is_empty());
        let first: Event = serde_json::from_slice(&slow.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(first.happened.id.as_deref(), Some("sb-0"));
        // It does not read while far more than is kept happens.
        tell(&events, "", 1..1500).await;
        let next: Event = serde_json::from_slice(&slow.next().await.unwrap().unwrap()).unwrap();
        assert_eq!(next.happened.kind, "events.gone");
        assert_eq!(next.happened.facts.asked, Some(first.sequence));
        events.leave().await;
        let mut rest = Vec::new();
        while let Some(line) = slow.next().await {
            let event: Event = serde_json::from_slice(&line.unwrap()).unwrap();
            rest.push(event.happened.kind);
        }
        assert_eq!(rest.last().map(String::as_str), Some("host.stopped"));
        assert!(rest.len() > 100 && rest.len() < 400, "{}", rest.len());
    }
}
