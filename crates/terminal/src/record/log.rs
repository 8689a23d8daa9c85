//! The log of requests and answers, one JSON object per line.

use crate::classify::Status;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The log is rotated at this size; one older file is kept.
const LOG_BYTES: u64 = 4 * 1024 * 1024;
/// Longest input that is logged.
const INPUT_SHOWN: usize = 8 * 1024;

/// One line of the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interaction {
    pub time_unix_ms: u64,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The log of one session.
#[derive(Debug)]
pub struct InteractionLog {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl InteractionLog {
    pub fn open(dir: &Path) -> io::Result<InteractionLog> {
        let path = dir.join("interactions.jsonl");
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(InteractionLog { path, file, bytes })
    }

    pub fn append(&mut self, interaction: &Interaction) -> io::Result<()> {
        let mut interaction = interaction.clone();
        if let Some(input) = &mut interaction.input
            && input.len() > INPUT_SHOWN
        {
            input.truncate(input.floor_char_boundary(INPUT_SHOWN));
            input.push('…');
        }
        let mut line = serde_json::to_vec(&interaction)?;
        line.push(b'\n');
        if self.bytes + line.len() as u64 > LOG_BYTES {
            fs::rename(&self.path, self.path.with_extension("old.jsonl"))?;
            self.file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?;
            self.bytes = 0;
        }
        self.bytes += line.len() as u64;
        self.file.write_all(&line)
    }
}
