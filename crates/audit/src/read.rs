//! Reads a log: lists, single calls, export, and following.

use crate::index::{Calls, Want};
use crate::log::Log;
use crate::receipt;
use crate::record::Record;
use crate::state::News;
use crate::verify::{Expected, verify};
use crate::view::View;
use motu_core::audit::{
    AuditId, AuditKey, AuditList, AuditVerified, FollowAudit, ListAudit, Receipt, VerifyAudit,
    unknown,
};
use motu_core::{Error, Project, Result, limits, page};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// Default number of lines that a follower gets first.
const TAIL: u64 = 10;
/// Bytes per piece of an export.
const PIECE: usize = 64 * 1024;

fn reading(error: std::io::Error) -> Error {
    Error::io("read the audit log", &error)
}

/// Parses a line; `None` if it is no call.
fn call(line: &[u8]) -> Option<Value> {
    let record = Record::read(line).ok()?;
    (record.kind() == "call").then_some(record.value)
}

/// Whether a call is one of this owner's, if the owner is a project; others see every call.
fn called_by(owner: &str, entry: &Value) -> bool {
    let Some(project) = Project::of_owner(owner) else {
        return true;
    };
    let who = entry["caller"]["who"].as_str().unwrap_or_default();
    who.starts_with("key:") && who.ends_with(&format!("@{project}"))
}

fn fits(ask: &ListAudit, entry: &Value) -> bool {
    let is = |field: &str, text: &str| entry[field] == *text;
    let before = ask.before_seq.unwrap_or(u64::MAX);
    entry["seq"].as_u64().is_some_and(|seq| seq < before)
        && ask
            .sandbox_id
            .as_ref()
            .is_none_or(|id| is("sandbox_id", id.as_str()))
        && called_by(&ask.owner, entry)
        && ask.verb.as_ref().is_none_or(|verb| is("verb", verb))
        && !(ask.failed && (is("outcome", "ok") || is("outcome", "open")))
        && !(ask.changes && is("effect", "reads"))
}

/// The same for the index, which may offer more.
fn want(ask: &ListAudit) -> Want {
    let project = Project::of_owner(&ask.owner).map(|project| project.to_string());
    Want::default()
        .before(ask.before_seq)
        .sandbox(ask.sandbox_id.as_ref().map(|id| id.as_str()))
        .verb(ask.verb.as_deref())
        .project(project.as_deref())
        .failed(ask.failed)
        .changes(ask.changes)
}

/// Visits calls that may be wanted from the newest to the oldest, until `take` returns false.
fn calls_back(calls: &Calls, want: &Want, mut take: impl FnMut(Value) -> bool) -> Result<()> {
    let seen = calls.each_back(want, |line| call(line).is_none_or(&mut take));
    seen.map_err(reading)
}

impl Log {
    pub async fn list(self: &Arc<Log>, mut ask: ListAudit) -> Result<AuditList> {
        if let Some(cursor) = &ask.cursor {
            let last: u64 = page::place_of(cursor)?;
            ask.before_seq = Some(ask.before_seq.unwrap_or(last).min(last));
        }
        let limit = limits::AUDIT_LIST.resolve(ask.limit)? as usize;
        self.look_through(move |calls| {
            let mut entries = VecDeque::new();
            let mut more = false;
            calls_back(calls, &want(&ask), |entry| {
                if fits(&ask, &entry) {
                    more = entries.len() == limit;
                    if !more {
                        entries.push_front(entry);
                    }
                }
                !more
            })?;
            let oldest = entries.front().and_then(|entry| entry["seq"].as_u64());
            let before_seq = oldest.filter(|_| more);
            Ok(AuditList {
                count: entries.len() as u64,
                before_seq,
                next_cursor: before_seq.as_ref().map(page::cursor_of).transpose()?,
                entries: entries.into(),
            })
        })
        .await
    }

    /// All entries of one call.
    pub async fn get(self: &Arc<Log>, id: AuditId) -> Result<AuditList> {
        self.look_through(move |calls| {
            let mut entries = VecDeque::new();
            calls_back(calls, &Want::default().id(id.as_str()), |entry| {
                let is_it = entry["id"] == *id.as_str();
                let begins = is_it && entry["stage"] != "end";
                if is_it {
                    entries.push_front(entry);
                }
                !begins
            })?;
            match entries.is_empty() {
                true => Err(unknown(&id)),
                false => Ok(AuditList {
                    count: entries.len() as u64,
                    entries: entries.into(),
                    before_seq: None,
                    next_cursor: None,
                }),
            }
        })
        .await
    }

    pub async fn receipt(self: &Arc<Log>, id: AuditId) -> Result<Receipt> {
        let key = self.public_key()?;
        self.look_through(move |calls| receipt::find(calls, &id, &key))
            .await
    }

    pub async fn verify(self: &Arc<Log>, ask: VerifyAudit) -> Result<AuditVerified> {
        let mut expected = Expected::parse(ask.public_key.as_deref(), ask.expect.as_deref())?;
        expected.key = expected.key.or(self.public_key().ok());
        self.look(move |view| Ok(verify(view, &expected))).await
    }

    pub fn key(&self) -> Result<AuditKey> {
        let key = self.public_key()?;
        Ok(AuditKey {
            public_key: key.to_string(),
            fingerprint: key.fingerprint(),
        })
    }

    /// Reads the current log on a blocking thread.
    async fn look<T: Send + 'static>(
        self: &Arc<Log>,
        work: impl FnOnce(&View) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let log = self.clone();
        let looked = tokio::task::spawn_blocking(move || work(&log.view()?)).await;
        looked.unwrap_or_else(|_| Err(Error::internal("reading the audit log ended in a bug")))
    }

    /// The same, of its calls by what they are about.
    async fn look_through<T: Send + 'static>(
        self: &Arc<Log>,
        work: impl FnOnce(&Calls) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let log = self.clone();
        let looked = tokio::task::spawn_blocking(move || work(&log.calls()?)).await;
        looked.unwrap_or_else(|_| Err(Error::internal("reading the audit log ended in a bug")))
    }

    /// Exports the stored records piece by piece.
    pub async fn export(self: &Arc<Log>) -> Result<Export> {
        let view = self.look(|view| Ok(view.clone())).await?;
        Ok(Export {
            sealed: view
                .sealed
                .into_iter()
                .map(|segment| segment.path)
                .collect(),
            last: view.last.map(|(.., bytes)| bytes),
            piece: Vec::new(),
        })
    }

    /// The newest calls, followed by new ones.
    pub async fn tail(self: &Arc<Log>, ask: FollowAudit) -> Result<Follower> {
        let tail = ask.tail.unwrap_or(TAIL).min(limits::AUDIT_LIST.max);
        // Subscribe before reading, so that no call is missed in between.
        let news = self.follow();
        let mut follower = Follower {
            log: self.clone(),
            news,
            seq: 0,
            ready: VecDeque::new(),
        };
        follower.catch_up(tail as usize).await?;
        Ok(follower)
    }
}

/// A running export.
#[derive(Debug)]
pub struct Export {
    sealed: VecDeque<std::path::PathBuf>,
    last: Option<Vec<u8>>,
    piece: Vec<u8>,
}

impl Export {
    /// The next bytes; `None` at the end. Blocks.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        if self.piece.is_empty() {
            self.piece = match (self.sealed.pop_front(), self.last.take()) {
                (Some(path), last) => {
                    self.last = last;
                    std::fs::read(path).map_err(reading)?
                }
                (None, Some(last)) => last
                    .split(|&byte| byte == 0)
                    .next()
                    .unwrap_or_default()
                    .to_vec(),
                (None, None) => return Ok(None),
            };
        }
        let rest = self.piece.split_off(self.piece.len().min(PIECE));
        Ok(Some(std::mem::replace(&mut self.piece, rest)))
    }
}

/// A follower of the log.
#[derive(Debug)]
pub struct Follower {
    log: Arc<Log>,
    news: Receiver<News>,
    seq: u64,
    ready: VecDeque<Vec<u8>>,
}

impl Follower {
    /// The next call as a line.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            match self.news.recv().await {
                Ok((seq, line)) if seq > self.seq => {
                    self.seq = seq;
                    self.ready.push_back(line.to_vec());
                }
                Ok(_) => {}
                // Missed calls are on disk.
                Err(RecvError::Lagged(_)) => self.catch_up(usize::MAX).await?,
                Err(RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// Reads the newest calls after the last one seen from disk.
    async fn catch_up(&mut self, most: usize) -> Result<()> {
        let after = self.seq;
        let found = self
            .log
            .look_through(move |calls| newest(calls, after, most));
        let (seq, found) = found.await?;
        self.seq = self.seq.max(seq);
        self.ready.extend(found);
        Ok(())
    }
}

/// The sequence number of the last call, and the newest calls after one.
fn newest(calls: &Calls, after: u64, most: usize) -> Result<(u64, VecDeque<Vec<u8>>)> {
    let mut found = VecDeque::new();
    let mut last = after;
    let read = calls.each_back(&Want::default(), |line| {
        let Ok(record) = Record::read(line) else {
            return true;
        };
        last = last.max(record.seq);
        if record.seq <= after || found.len() >= most {
            return false;
        }
        found.push_front([line, &b"\n"[..]].concat());
        true
    });
    read.map_err(reading)?;
    Ok((last, found))
}
