//! The file of keys: one JSON record a line, appended and flushed, rewritten when it is long.

use super::{Answer, Identity};
use motu_core::{Error, Result, limits};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Records of which fewer than half are needed are rewritten when there are more than this.
const REWRITE: usize = 4096;
/// The longest line: an answer whose every character is escaped.
const MAX_LINE: u64 = 6 * limits::IDEMPOTENCY_ANSWER_BYTES.max + 64 * 1024;

/// What is known of one key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub id: String,
    /// Whose keys it counts for; older records do not say, and count together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Empty: the key is free again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// Seconds since 1970.
    pub at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
}

impl Record {
    pub fn begun(key: &Identity, request: &str) -> Record {
        Record {
            id: key.id.clone(),
            owner: key.owner.clone(),
            request: request.to_string(),
            at: now(),
            answer: None,
        }
    }

    pub fn forgotten(key: &Identity) -> Record {
        Record::begun(key, "")
    }

    /// Bytes of its answer.
    fn bytes(&self) -> u64 {
        let body = self.answer.as_ref().and_then(|answer| answer.body.as_ref());
        body.map_or(0, |body| body.len() as u64)
    }

    fn is_old(&self, now: u64) -> bool {
        self.at.saturating_add(limits::IDEMPOTENCY_SECONDS.default) < now
    }
}

#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    file: File,
    lines: usize,
    /// The newest record of each key.
    newest: HashMap<String, Record>,
    /// What each owner has.
    owners: HashMap<String, Share>,
}

/// The keys of one owner.
#[derive(Debug, Default)]
struct Share {
    /// By age, the oldest first.
    order: VecDeque<String>,
    /// Bytes of all answers.
    bytes: u64,
}

impl Share {
    fn fits(&self) -> bool {
        let most = limits::IDEMPOTENCY_KEYS.default as usize;
        self.order.len() <= most && self.bytes <= limits::IDEMPOTENCY_BYTES.default
    }
}

impl Log {
    /// Opens the file and gives what it holds. A last line that was cut off was never acknowledged.
    pub fn open(path: &Path) -> Result<(Log, Vec<Record>)> {
        let records = read(path)?;
        let mut written = Written {
            file: append_to(path)?,
            lines: usize::MAX,
            newest: HashMap::new(),
            owners: HashMap::new(),
        };
        for record in records {
            written.remember(record);
        }
        written.shorten();
        written.rewrite(path)?;
        let records = written.newest.values().cloned().collect();
        let log = Log {
            path: path.to_path_buf(),
            written: Mutex::new(written),
        };
        Ok((log, records))
    }

    /// Brings a record to the disk. Gives the keys that were given up for it.
    pub fn append(&self, record: Record) -> Result<Vec<String>> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.write(&record)?;
        match record.request.is_empty() {
            true => written.forget(&record.id),
            false => written.remember(record),
        }
        let dropped = written.shorten();
        if written.lines > REWRITE && written.lines > 2 * written.newest.len() {
            written.rewrite(&self.path)?;
        }
        Ok(dropped)
    }
}

impl Written {
    fn write(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(record)
            .map_err(|error| Error::internal(format!("a record of a key: {error}")))?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        let flushed = written.and_then(|()| self.file.sync_data());
        flushed.map_err(|error| Error::io("keep an Idempotency-Key", &error))?;
        self.lines = self.lines.saturating_add(1);
        Ok(())
    }

    fn remember(&mut self, record: Record) {
        let (id, bytes) = (record.id.clone(), record.bytes());
        let before = self.newest.get(&id);
        if before.is_some_and(|before| before.owner != record.owner) {
            self.forget(&id);
        }
        let share = self.owners.entry(record.owner.clone()).or_default();
        share.bytes += bytes;
        match self.newest.insert(id.clone(), record) {
            Some(before) => share.bytes -= before.bytes(),
            None => share.order.push_back(id),
        }
    }

    fn forget(&mut self, id: &str) {
        if let Some(record) = self.newest.remove(id)
            && let Some(share) = self.owners.get_mut(&record.owner)
        {
            share.bytes -= record.bytes();
            share.order.retain(|one| one != id);
        }
    }

    /// Gives up keys that are a day old, and the oldest of an owner who has too many or too long ones.
    fn shorten(&mut self) -> Vec<String> {
        let now = now();
        let mut dropped = Vec::new();
        for share in self.owners.values_mut() {
            while let Some(id) = share.order.front() {
                let old = self.newest.get(id).is_none_or(|record| record.is_old(now));
                if !old && share.fits() {
                    break;
                }
                if let Some(id) = share.order.pop_front() {
                    let record = self.newest.remove(&id);
                    share.bytes -= record.map_or(0, |record| record.bytes());
                    dropped.push(id);
                }
            }
        }
        self.owners.retain(|_, share| !share.order.is_empty());
        dropped
    }

    /// Replaces the file by one that holds only what is needed.
    fn rewrite(&mut self, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("keep Idempotency-Keys", &error);
        let fresh = path.with_extension("new");
        let _ = std::fs::remove_file(&fresh);
        let mut file = append_to(&fresh)?;
        let mut out = Vec::new();
        // Each owner's in their order: between owners there is none.
        for id in self.owners.values().flat_map(|share| &share.order) {
            if let Some(record) = self.newest.get(id) {
                serde_json::to_writer(&mut out, record).map_err(|error| failed(error.into()))?;
                out.push(b'\n');
            }
        }
        file.write_all(&out)
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&fresh, path))
            .map_err(failed)?;
        if let Some(directory) = path.parent() {
            File::open(directory)
                .and_then(|directory| directory.sync_all())
                .map_err(failed)?;
        }
        (self.file, self.lines) = (file, self.newest.len());
        Ok(())
    }
}

fn append_to(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).mode(0o600);
    options
        .open(path)
        .map_err(|error| Error::io("keep Idempotency-Keys", &error))
}

/// The records of a file. A damaged one is put aside, with what can be read of it kept.
fn read(path: &Path) -> Result<Vec<Record>> {
    let failed = |error: std::io::Error| Error::io("read Idempotency-Keys", &error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut records = Vec::new();
    let mut input = BufReader::new(file);
    loop {
        let mut line = Vec::new();
        let mut limited = std::io::Read::take(&mut input, MAX_LINE);
        limited.read_until(b'\n', &mut line).map_err(failed)?;
        match serde_json::from_slice::<Record>(&line) {
            _ if line.is_empty() => return Ok(records),
            Ok(record) if record.request.is_empty() => {
                records.retain(|one: &Record| one.id != record.id)
            }
            Ok(record) => records.push(record),
            Err(_) if line.last() != Some(&b'\n') => return Ok(records),
            // The other lines are as good as before.
            Err(error) => {
                let aside = path.with_extension("damaged");
                tracing::warn!(%error, aside = %aside.display(), "a line of the file of Idempotency-Keys is damaged; a copy of the file is kept");
                std::fs::copy(path, &aside).map_err(failed)?;
            }
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
