//! The writer thread: it numbers, chains, signs and syncs, one batch at a time.
//!
//! Space is preallocated with zeros, so that an entry needs no new block and does not change the
//! file's size. When the disk is full, the preallocated space remains: enough for running calls,
//! and for those that free space.

use crate::Hash;
use crate::disk::sync_dir;
use crate::hex::hex;
use crate::index::Index;
use crate::key::Key;
use crate::record::{chained, signed};
use crate::segment::{HEAD_PLACES, Segment, first_record};
use crate::state::{Settings, Shared, State};
use crate::tree;
use motu_core::{Error, Result};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes preallocated at once.
pub const STEP: u64 = 512 * 1024;
/// Minimum of preallocated bytes; with less, only reads and calls that free space may begin.
pub const RESERVE: u64 = 128 * 1024;
/// Most entries per batch.
const BATCH: usize = 128;
/// How long an entry without a waiter may stay in memory.
const LINGER: Duration = Duration::from_millis(20);

pub type Fields = Map<String, Value>;
pub type Answer = oneshot::Sender<Result<()>>;

/// Messages to the thread.
pub enum Message {
    /// Append; notify the waiter when it is on disk.
    Entry(Fields, Option<Answer>),
    /// Notify when everything before this is on disk.
    Flush(Answer),
    /// Check whether there is space again.
    Retry(Answer),
    /// Run this between two batches.
    Pause(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// The active file.
pub struct Active {
    pub file: File,
    pub segment: Segment,
    /// The end of the written data.
    pub offset: u64,
    /// The end of the preallocated space.
    pub room: u64,
    /// Where its calls are, once somebody has asked.
    pub index: Option<Index>,
}

pub struct Writer {
    pub dir: PathBuf,
    pub key: Arc<Key>,
    pub settings: Settings,
    pub shared: Arc<Shared>,
    pub active: Active,
    /// An empty preallocated file for the next segment.
    pub spare: Option<File>,
    pub seq: u64,
    pub prev: Hash,
    pub head: File,
    pub flips: usize,
}

pub fn now() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}

/// A record that is not a call.
pub fn note(note: &str, facts: Value) -> Fields {
    fields(json!({"type": "note", "time": now(), "note": note, "facts": facts}))
}

pub fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

impl Writer {
    /// Runs until all senders are gone.
    pub fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let mut batch = Vec::new();
            let mut other = None;
            let mut urgent = false;
            let deadline = Instant::now() + LINGER;
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Entry(fields, answer) => {
                        urgent |= answer.is_some();
                        batch.push((fields, answer));
                    }
                    message => {
                        other = Some(message);
                        break;
                    }
                }
                next = match (batch.len() >= BATCH, urgent) {
                    (true, _) => None,
                    (false, true) => messages.try_recv().ok(),
                    (false, false) => {
                        let left = deadline.saturating_duration_since(Instant::now());
                        messages.recv_timeout(left).ok()
                    }
                };
            }
            if !batch.is_empty() {
                self.commit(batch);
            }
            match other {
                Some(Message::Flush(answer)) => drop(answer.send(self.shared.check())),
                Some(Message::Retry(answer)) => {
                    self.make_room();
                    let _ = answer.send(self.shared.check());
                }
                Some(Message::Pause(work)) => work(&mut self),
                Some(Message::Entry(..)) | None => {}
            }
        }
    }

    fn commit(&mut self, batch: Vec<(Fields, Option<Answer>)>) {
        let (entries, answers): (Vec<Fields>, Vec<Option<Answer>>) = batch.into_iter().unzip();
        let count = entries.len() as u64;
        let outcome = self.append_counted(entries);
        if outcome.is_err() {
            self.shared.miss(count);
        }
        for answer in answers.into_iter().flatten() {
            let _ = answer.send(outcome.clone());
        }
        // After the answers: nobody waits for it.
        self.make_room();
    }

    /// Appends entries, preceded by a note about calls that could not be recorded.
    fn append_counted(&mut self, mut entries: Vec<Fields>) -> Result<()> {
        let missed = self.shared.missed();
        if missed > 0 {
            entries.insert(0, note("missed", json!({"calls": missed})));
        }
        self.append(entries)?;
        self.shared.recovered(missed);
        Ok(())
    }

    /// Writes one batch with its checkpoint; it is on disk when this returns.
    pub fn append(&mut self, entries: Vec<Fields>) -> Result<()> {
        if let State::Broken(error) = self.shared.state() {
            return Err(error);
        }
        let seal = self.active.offset >= self.settings.segment_bytes && self.spare.is_some();
        let (mut seq, mut prev) = (self.seq, self.prev);
        let mut text = Vec::with_capacity(1024 * (entries.len() + 1));
        let mut hashes = Vec::with_capacity(entries.len());
        let mut calls = Vec::new();
        let mut index = self.active.index.take();
        let first = self.active.segment.first;
        for fields in entries {
            let is_call = fields.get("type") == Some(&json!("call"));
            let about = index.is_some().then(|| fields.clone());
            let line = chained(fields, seq, &prev);
            if let (Some(index), Some(about)) = (&mut index, about) {
                let offset = self.active.offset + text.len() as u64;
                index.add(first, seq, &about, offset, line.text.len() - 1);
            }
            text.extend_from_slice(&line.text);
            hashes.push(line.hash);
            if is_call && self.shared.is_followed() {
                calls.push((seq, line.text));
            }
            (seq, prev) = (seq + 1, line.hash);
        }
        let checkpoint = json!({
            "type": "checkpoint", "time": now(), "sealed": seal,
            "first": self.seq, "count": hashes.len(), "root": hex(&tree::root(&hashes)),
            "key": self.key.public().fingerprint(),
        });
        let checkpoint = signed(fields(checkpoint), seq, &prev, &self.key);
        text.extend_from_slice(&checkpoint.text);
        // If that fails, the index is made again from what is there.
        self.write(&text)?;
        self.active.index = index;
        (self.seq, self.prev) = (seq + 1, checkpoint.hash);
        self.point(&checkpoint.text);
        self.shared.tell(calls);
        if seal {
            self.rotate()
                .map_err(|error| self.shared.broke("begin a segment", &error))?;
        }
        Ok(())
    }

    fn write(&mut self, text: &[u8]) -> Result<()> {
        let length = text.len() as u64;
        if self.active.offset + length > self.active.room {
            let step = STEP.max(length);
            extend(&self.active.file, &mut self.active.room, step)
                .map_err(|error| Error::io("write the audit log", &error))?;
        }
        // The space is preallocated: a failure now is a disk error, and the contents are unknown.
        self.active
            .file
            .write_all_at(text, self.active.offset)
            .and_then(|()| self.active.file.sync_data())
            .map_err(|error| self.shared.broke("write", &error))?;
        self.active.offset += length;
        Ok(())
    }

    /// Stores the last checkpoint in the head file. It reaches the disk later: an older one after a
    /// crash is valid too. The first of a segment and of a daemon is synced.
    fn point(&mut self, checkpoint: &[u8]) {
        let at = HEAD_PLACES[self.flips % HEAD_PLACES.len()];
        self.flips += 1;
        if let Err(error) = self.head.write_all_at(checkpoint, at) {
            tracing::warn!(%error, "writing the head of the audit log failed");
        }
    }

    /// Preallocates space, and updates the state.
    fn make_room(&mut self) {
        let active = &mut self.active;
        let short = active.room - active.offset < RESERVE;
        let full = active.offset >= self.settings.segment_bytes;
        let made = match (full && self.spare.is_none(), short) {
            (true, _) => self.make_spare(),
            (false, true) => extend(&active.file, &mut active.room, STEP),
            (false, false) => Ok(()),
        };
        self.shared.has_room(made);
    }

    fn make_spare(&mut self) -> io::Result<()> {
        let file = make_file(&self.dir.join("next"))?;
        file.sync_all()?;
        self.spare = Some(file);
        Ok(())
    }

    /// Continues in the next file.
    fn rotate(&mut self) -> io::Result<()> {
        self.active.file.set_len(self.active.offset)?;
        self.active.file.sync_all()?;
        self.keep_index();
        let file = match self.spare.take() {
            Some(file) => file,
            None => make_file(&self.dir.join("next"))?,
        };
        self.begin(file)?;
        self.retire();
        Ok(())
    }

    /// Stores the index of a segment that is sealed. Without one, the next reader makes it.
    fn keep_index(&self) {
        let path = self.active.segment.path.with_extension("index");
        let kept = self.active.index.as_ref();
        if let Some(Err(error)) = kept.map(|index| index.store(&path, self.active.offset)) {
            tracing::debug!(%error, "the index of a segment of the audit log could not be stored");
        }
    }

    /// Where the calls of the active segment are.
    pub fn index(&mut self) -> io::Result<Index> {
        let active = &mut self.active;
        if active.index.is_none() {
            let mut bytes = vec![0; active.offset as usize];
            active.file.read_exact_at(&mut bytes, 0)?;
            active.index = Some(Index::of_bytes(active.segment.first, &bytes));
        }
        Ok(active.index.clone().unwrap_or_default())
    }

    /// Starts a segment in an empty file, which is renamed when its first records are on disk.
    pub fn begin(&mut self, file: File) -> io::Result<()> {
        self.active = Active {
            file,
            segment: Segment::new(&self.dir, self.seq),
            offset: 0,
            room: STEP,
            index: Some(Index::default()),
        };
        let header = json!({
            "type": "segment", "time": now(), "public_key": self.key.public().to_string(),
            "motu": env!("CARGO_PKG_VERSION"),
        });
        self.append(vec![fields(header)])
            .map_err(io::Error::other)?;
        // The head says that these records were written: after a power cut too, and before they
        // can be missed.
        self.head.sync_data()?;
        std::fs::rename(self.dir.join("next"), &self.active.segment.path)?;
        sync_dir(&self.dir)
    }

    /// Removes segments that are too old or too many. Unreadable ones stay.
    pub fn retire(&mut self) {
        if let Err(error) = self.remove_old() {
            tracing::warn!(%error, "deleting old segments of the audit log failed");
        }
    }

    /// A signed note about the removal is written first.
    fn remove_old(&mut self) -> io::Result<()> {
        let all = Segment::list(&self.dir)?;
        let gone = self.too_old(&all)?;
        let Some(next) = all.get(gone).filter(|_| gone > 0) else {
            return Ok(());
        };
        let goes_on = first_record(&next.path)?;
        let removed = note(
            "removed",
            json!({"through": next.first - 1, "hash": hex(&goes_on.prev), "segments": gone}),
        );
        self.append(vec![removed]).map_err(io::Error::other)?;
        for segment in &all[..gone] {
            std::fs::remove_file(&segment.path)?;
            // It may never have been made.
            let _ = std::fs::remove_file(segment.path.with_extension("index"));
        }
        sync_dir(&self.dir)
    }

    /// How many of the oldest segments to remove. The active one stays.
    fn too_old(&self, all: &[Segment]) -> io::Result<usize> {
        let sizes: Vec<u64> = all
            .iter()
            .map(|segment| Ok(segment.path.metadata()?.len()))
            .collect::<io::Result<_>>()?;
        let mut total: u64 = sizes.iter().sum();
        let oldest = jiff::Timestamp::now().as_second() - self.settings.keep_seconds;
        let mut gone = 0;
        for (segment, size) in all.windows(2).zip(sizes) {
            // A segment's age is that of its last entry, which precedes the next segment's first.
            let next = first_record(&segment[1].path)?;
            let ended: Option<jiff::Timestamp> = next.text("time").parse().ok();
            let expired = ended.is_some_and(|ended| ended.as_second() < oldest);
            if !expired && total <= self.settings.max_bytes {
                break;
            }
            total -= size;
            gone += 1;
        }
        Ok(gone)
    }
}

/// Writes zeros at the end of a file.
fn extend(file: &File, room: &mut u64, step: u64) -> io::Result<()> {
    let zeros = vec![0; step as usize];
    file.write_all_at(&zeros, *room)?;
    *room += step;
    Ok(())
}

/// A file of zeros.
pub fn make_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    extend(&file, &mut 0, STEP)?;
    Ok(file)
}
