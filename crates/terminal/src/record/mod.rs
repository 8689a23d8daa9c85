//! The files of a session: the raw bytes, a playable recording, a log of requests and answers, and
//! metadata.
//!
//! ```text
//!   DIR/session.json             metadata, replaced as a whole
//!   DIR/transcript.OFFSET.raw    the stream, in segments; the oldest are dropped
//!   DIR/recording.cast           asciicast v3
//!   DIR/interactions.jsonl       one JSON object per line; one older file is kept
//! ```
//!
//! Everything comes from [`crate::session::Session::take_records`], after redaction: passwords are
//! in none of it.

mod cast;
mod log;
mod metadata;
mod transcript;

pub use cast::{Cast, CastError, CastEvent, CastHeader, CastWriter, Code, Replay};
pub use log::{Interaction, InteractionLog};
pub use metadata::Metadata;
pub use transcript::{Transcript, TranscriptLimits};

use crate::classify::Status;
use crate::screen::Size;
use motu_core::terminal::End;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest joined record.
const JOINED_BYTES: usize = 64 * 1024;
/// Output within this time becomes one event of a recording.
const JOINED_WITHIN: Duration = Duration::from_millis(5);

/// Something to be recorded. Times count from the session's creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Output {
        /// Where in the stream the bytes are.
        from: u64,
        bytes: Vec<u8>,
        at: Duration,
    },
    Resize {
        size: Size,
        at: Duration,
    },
    /// Input was typed. Passwords have no text.
    Interaction {
        kind: &'static str,
        text: String,
        at: Duration,
    },
    /// A request was answered.
    Answer {
        kind: &'static str,
        end: End,
        status: Status,
        exit_code: Option<i32>,
        at: Duration,
    },
}

impl Record {
    /// Merges `next`, if both are output of the same moment.
    pub fn join(&mut self, next: &Record) -> bool {
        let Record::Output { bytes, at, .. } = self else {
            return false;
        };
        let Record::Output {
            bytes: more,
            at: then,
            ..
        } = next
        else {
            return false;
        };
        let near = then.saturating_sub(*at) <= JOINED_WITHIN;
        if !near || bytes.len() + more.len() > JOINED_BYTES {
            return false;
        }
        bytes.extend_from_slice(more);
        true
    }
}

/// A directory name for a session; different ids have different names.
pub fn directory_name(session_id: &str) -> String {
    let mut name = String::new();
    for byte in session_id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            b'.' if !name.is_empty() => name.push('.'),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// Writes the records of one session.
#[derive(Debug)]
pub struct Recorder {
    dir: PathBuf,
    transcript: Transcript,
    cast: CastWriter,
    log: InteractionLog,
    started_unix_ms: u64,
}

impl Recorder {
    /// Begins in `dir`, which is made if it is not there.
    pub fn create(
        dir: &Path,
        header: &CastHeader,
        limits: TranscriptLimits,
    ) -> io::Result<Recorder> {
        fs::create_dir_all(dir)?;
        Ok(Recorder {
            transcript: Transcript::open(dir, limits)?,
            cast: CastWriter::create(&dir.join("recording.cast"), header)?,
            log: InteractionLog::open(dir)?,
            started_unix_ms: header.timestamp * 1000,
            dir: dir.to_owned(),
        })
    }

    /// Continues in `dir` where an earlier recorder stopped, or begins. `now_unix_ms` is the
    /// session's creation, from which record times count.
    pub fn open(
        dir: &Path,
        header: &CastHeader,
        limits: TranscriptLimits,
        now_unix_ms: u64,
    ) -> io::Result<Recorder> {
        fs::create_dir_all(dir)?;
        Ok(Recorder {
            transcript: Transcript::open(dir, limits)?,
            cast: CastWriter::resume(&dir.join("recording.cast"), header)?,
            log: InteractionLog::open(dir)?,
            started_unix_ms: now_unix_ms,
            dir: dir.to_owned(),
        })
    }

    pub fn transcript_mut(&mut self) -> &mut Transcript {
        &mut self.transcript
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    pub fn write(&mut self, records: &[Record]) -> io::Result<()> {
        for record in records {
            match record {
                Record::Output { from, bytes, at } => {
                    self.transcript.append_at(*from, bytes)?;
                    self.cast.output(bytes, *at)?;
                }
                Record::Resize { size, at } => self.cast.resize(*size, *at)?,
                Record::Interaction { kind, text, at } => {
                    self.log.append(&Interaction {
                        time_unix_ms: self.time(*at),
                        kind: (*kind).to_owned(),
                        input: (*kind != "password").then(|| text.clone()),
                        ..Interaction::default()
                    })?;
                }
                Record::Answer {
                    kind,
                    end,
                    status,
                    exit_code,
                    at,
                } => {
                    self.log.append(&Interaction {
                        time_unix_ms: self.time(*at),
                        kind: format!("{kind}_answer"),
                        end: Some(serde_json::to_value(end)?),
                        status: Some(*status),
                        exit_code: *exit_code,
                        ..Interaction::default()
                    })?;
                }
            }
        }
        Ok(())
    }

    fn time(&self, at: Duration) -> u64 {
        self.started_unix_ms + at.as_millis() as u64
    }

    /// Ends the recording with the shell's exit status.
    pub fn finish(&mut self, exit_code: Option<i32>, at: Duration) -> io::Result<()> {
        self.cast.exit(exit_code, at)
    }
}
