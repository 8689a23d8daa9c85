//! Who holds a connection, and who has to give theirs up.
//!
//! ```text
//!   accepted ──► waits: nobody knows it, and its time runs ──time──► closed
//!                  │                ▲              └──others come──► the one that waits longest goes
//!                  │ a good key     │ the key is good no more
//!                  ▼                │
//!                known: holds a place of those, for as long as it likes
//! ```
//!
//! Those that wait and those that are known take no room from each other. Of those that wait, the
//! ones at one address have at most half of it; of the known, one project has at most three quarters.

use motu_core::{Error, Result, limits};
use motu_gate::network;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;

/// Descriptors that are no callers', on a host that has many.
const RESERVED: u64 = 4096;
/// How much longer than its time a connection has to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How many may be there.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub known: usize,
    pub waiting: usize,
    /// How long one may wait; as long as there is room when missing.
    pub patience: Option<Duration>,
}

impl Bounds {
    /// No more than this process has descriptors for: all but [`RESERVED`] for those that are known, or
    /// a quarter where there are few, and an eighth for those that wait. The rest is for what they ask
    /// for.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Bounds {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(4);
        let known = descriptors.saturating_sub(RESERVED).max(descriptors / 4);
        Bounds {
            known: self.known.min(count(known)),
            waiting: self.waiting.min(count(descriptors / 8)),
            ..self
        }
    }

    fn of_address(&self) -> usize {
        self.waiting.div_ceil(2)
    }

    fn of_project(&self) -> usize {
        self.known - self.known / 4
    }
}

/// How many files this process may have open.
pub fn descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// The connections of one listener.
#[derive(Clone, Debug)]
pub struct Places {
    bounds: Bounds,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    held: HashMap<u64, Held>,
    /// Those that wait: since when, their number, and from where.
    waiting: BTreeMap<(Instant, u64), Option<IpAddr>>,
    /// How many each project has.
    projects: HashMap<String, usize>,
}

#[derive(Debug)]
struct Held {
    from: Option<IpAddr>,
    /// Whose key it has shown.
    project: Option<String>,
    /// Requests that are being served.
    busy: usize,
    /// Since when it waits.
    since: Option<Instant>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting(Instant),
    Known,
    /// Somebody else has its place.
    Out,
}

impl Table {
    fn add(&mut self, from: Option<IpAddr>) -> (u64, watch::Receiver<State>) {
        let (id, now) = (self.next, Instant::now());
        self.next += 1;
        let (sender, state) = watch::channel(State::Waiting(now));
        let held = Held {
            from,
            project: None,
            busy: 0,
            since: Some(now),
            state: sender,
        };
        self.held.insert(id, held);
        self.waiting.insert((now, id), from);
        (id, state)
    }

    /// Waits from now on, unless something holds it.
    fn settle(&mut self, id: u64) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        if held.busy == 0 && held.project.is_none() && held.since.is_none() {
            let now = Instant::now();
            held.since = Some(now);
            held.state.send_replace(State::Waiting(now));
            self.waiting.insert((now, id), held.from);
        }
    }

    /// Waits no longer.
    fn rouse(&mut self, id: u64) {
        if let Some(held) = self.held.get_mut(&id)
            && let Some(since) = held.since.take()
        {
            held.state.send_replace(State::Known);
            self.waiting.remove(&(since, id));
        }
    }

    fn know(&mut self, id: u64, project: &str) {
        self.rouse(id);
        if let Some(held) = self.held.get_mut(&id) {
            held.project = Some(project.to_string());
            *self.projects.entry(project.to_string()).or_default() += 1;
        }
    }

    fn forget(&mut self, id: u64) {
        let held = self.held.get_mut(&id);
        if let Some(project) = held.and_then(|held| held.project.take()) {
            self.discount(&project);
            self.settle(id);
        }
    }

    fn discount(&mut self, project: &str) {
        if let Some(count) = self.projects.get_mut(project) {
            *count -= 1;
            if *count == 0 {
                self.projects.remove(project);
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        if let Some(since) = held.since {
            self.waiting.remove(&(since, id));
        }
        if let Some(project) = &held.project {
            self.discount(project);
        }
        Some(held)
    }

    /// Ends the one of these that has waited longest.
    fn end_one(&mut self, of: impl Fn(Option<IpAddr>) -> bool) -> bool {
        let oldest = self.waiting.iter().find(|(_, from)| of(**from));
        let oldest = oldest.map(|((_, id), _)| *id);
        match oldest.and_then(|id| self.remove(id)) {
            None => false,
            Some(held) => {
                tracing::debug!(from = ?held.from, "a connection made room for another");
                held.state.send_replace(State::Out);
                true
            }
        }
    }

    /// The address that most of those come from that wait.
    fn most(&self) -> Option<IpAddr> {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        for from in self.waiting.values() {
            *counts.entry(*from).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.and_then(|(from, _)| from)
    }
}

impl Places {
    pub fn new(bounds: Bounds) -> Places {
        Places {
            bounds,
            table: Arc::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one that has come, and waits. Where there is no room, another one goes.
    pub fn enter(&self, from: Option<IpAddr>) -> Place {
        let from = from.map(network);
        let mut table = self.table();
        if from.is_some() {
            let theirs = table.waiting.values().filter(|other| **other == from);
            if theirs.count() >= self.bounds.of_address() {
                table.end_one(|other| other == from);
            }
        }
        if table.waiting.len() >= self.bounds.waiting {
            let most = table.most();
            table.end_one(|other| other == most);
        }
        let (id, state) = table.add(from);
        drop(table);
        Place(Arc::new(Inside {
            places: self.clone(),
            id,
            state,
        }))
    }

    /// Ends the one that has waited longest, for want of descriptors.
    pub fn spare_one(&self) -> bool {
        self.table().end_one(|_| true)
    }
}

/// The place of one connection; given back when the last clone of it is dropped.
#[derive(Clone, Debug)]
pub struct Place(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    places: Places,
    id: u64,
    state: watch::Receiver<State>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.places.table().remove(self.id);
    }
}

impl Place {
    /// Notes that a good key of this project came, or somebody without a project who is known
    /// otherwise. Says whether that is new.
    pub fn know(&self, project: &str) -> Result<bool> {
        let Inside { places, id, .. } = &*self.0;
        let mut table = places.table();
        // One that had to go has no answer to wait for.
        let held = table.held.get(id);
        if held.is_none_or(|held| held.project.is_some()) {
            return Ok(false);
        }
        let (bounds, all) = (&places.bounds, table.projects.values().sum::<usize>());
        if all >= bounds.known {
            return Err(full(bounds.known));
        }
        let theirs = table.projects.get(project).copied().unwrap_or_default();
        if !project.is_empty() && theirs >= bounds.of_project() {
            return Err(full(bounds.of_project()));
        }
        table.know(*id, project);
        Ok(true)
    }

    /// Has the time run again when this comes: the key is good no more.
    pub fn until(&self, end: impl Future + Send + 'static) {
        let (inside, mut state) = (Arc::downgrade(&self.0), self.0.state.clone());
        tokio::spawn(async move {
            let gone = async { while state.changed().await.is_ok() {} };
            tokio::select! {
                _ = end => if let Some(inside) = inside.upgrade() {
                    Place(inside).forget();
                },
                () = gone => {}
            }
        });
    }

    fn forget(&self) {
        self.0.places.table().forget(self.0.id);
    }

    /// What is being served waits for nothing until the guard is dropped.
    pub fn serve(&self) -> Busy {
        let mut table = self.0.places.table();
        table.rouse(self.0.id);
        if let Some(held) = table.held.get_mut(&self.0.id) {
            held.busy += 1;
        }
        drop(table);
        Busy(self.clone())
    }

    /// Waits until the connection has to end.
    pub async fn over(&self) {
        self.over_after(Duration::ZERO).await;
    }

    /// The same for one that was told so, and did not.
    pub async fn late(&self) {
        self.over_after(LAST_WORDS).await;
    }

    async fn over_after(&self, more: Duration) {
        let mut state = self.0.state.clone();
        loop {
            let now = *state.borrow_and_update();
            let time = match (now, self.0.places.bounds.patience) {
                (State::Out, _) => return,
                (State::Waiting(since), Some(patience)) => since.checked_add(patience + more),
                (State::Waiting(_), None) | (State::Known, _) => None,
            };
            let changed = match time {
                None => state.changed().await,
                Some(time) => tokio::select! {
                    () = tokio::time::sleep_until(time) => return,
                    changed = state.changed() => changed,
                },
            };
            if changed.is_err() {
                return;
            }
        }
    }
}

fn full(most: usize) -> Error {
    let limit = limits::LISTEN_CONNECTIONS.name;
    Error::limit(format!("{limit}: {most} connections are open"))
        .hint("close idle ones, or use one for many calls")
        .details(serde_json::json!({"limit": limit, "max": most}))
}

/// A request is being served while this lives.
#[derive(Debug)]
pub struct Busy(Place);

impl Drop for Busy {
    fn drop(&mut self) {
        let inside = &self.0.0;
        let mut table = inside.places.table();
        if let Some(held) = table.held.get_mut(&inside.id) {
            held.busy = held.busy.saturating_sub(1);
        }
        table.settle(inside.id);
    }
}

/// A stream, or the body of an answer, that keeps something for as long as it lives.
#[derive(Debug)]
pub struct Keeping<S, K> {
    inner: S,
    _kept: K,
}

impl<S, K> Keeping<S, K> {
    pub fn new(inner: S, kept: K) -> Keeping<S, K> {
        Keeping { inner, _kept: kept }
    }
}

impl<S: AsyncRead + Unpin, K: Unpin> AsyncRead for Keeping<S, K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, K: Unpin> AsyncWrite for Keeping<S, K> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<B: http_body::Body + Unpin, K: Unpin> http_body::Body for Keeping<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<http_body::Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
