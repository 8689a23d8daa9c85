//! Reads a process's output that the machine still has.

use crate::guest::Guest;
use bytes::BytesMut;
use futures_util::StreamExt;
use motu_core::exec::{AttachFrom, Channel, ExecEvent, Process, Selector};
use motu_core::{Error, Result};
use std::time::Duration;
use tokio::time::Instant;

/// One channel from an offset on.
#[derive(Debug, Default)]
pub struct Part {
    pub bytes: BytesMut,
    /// The offset after the last byte.
    pub end: u64,
    /// Output before the first byte is no longer available.
    pub lost: bool,
}

/// Both channels.
#[derive(Debug, Default)]
pub struct Output {
    pub stdout: Part,
    pub stderr: Part,
}

/// When to stop reading.
#[derive(Clone, Copy, Debug)]
pub struct Enough {
    /// Bytes per channel.
    pub max_bytes: usize,
    /// Read on until nothing has come for this long, but no longer than `patience`.
    pub idle: Option<Duration>,
    pub patience: Duration,
}

/// A process by its tag.
pub async fn find(guest: &Guest, tag: &str) -> Result<Process> {
    let all = guest.processes().await?;
    let found = all.into_iter().find(|process| process.tag == tag);
    found.ok_or_else(|| Error::not_found("its process is no longer known to the machine"))
}

/// Reads the available output, and with `idle` also what follows.
pub async fn read(guest: &Guest, tag: &str, from: AttachFrom, enough: Enough) -> Result<Output> {
    let process = find(guest, tag).await?;
    let mut session = guest.attach(Selector::Tag(tag.to_string()), from).await?;
    let mut output = Output::default();
    // The first event says where each channel begins.
    if let Some(first) = session.events.next().await {
        output.add(first?);
    }
    let patience = Instant::now() + enough.patience;
    loop {
        let there =
            output.stdout.end >= process.stdout_bytes && output.stderr.end >= process.stderr_bytes;
        let full = output.stdout.bytes.len() >= enough.max_bytes
            || output.stderr.bytes.len() >= enough.max_bytes;
        if full || (there && (enough.idle.is_none() || process.exited.is_some())) {
            return Ok(output);
        }
        let wait = match (there, enough.idle) {
            (true, Some(idle)) => (Instant::now() + idle).min(patience),
            _ => patience,
        };
        match tokio::time::timeout_at(wait, session.events.next()).await {
            Err(_) | Ok(None) => return Ok(output),
            Ok(Some(event)) => output.add(event?),
        }
    }
}

impl Output {
    fn add(&mut self, event: ExecEvent) {
        match event {
            ExecEvent::Started(started) => {
                self.stdout.end = started.stdout_from;
                self.stderr.end = started.stderr_from;
            }
            ExecEvent::Stdout(bytes) => self.stdout.add(&bytes),
            ExecEvent::Stderr(bytes) => self.stderr.add(&bytes),
            ExecEvent::Gap(gap) => {
                let part = match gap.channel {
                    Channel::Stdout => &mut self.stdout,
                    Channel::Stderr => &mut self.stderr,
                };
                part.lost = true;
                part.end = gap.to;
            }
            ExecEvent::Sandbox(_) | ExecEvent::Exited(_) => {}
        }
    }
}

impl Part {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
    }
}
