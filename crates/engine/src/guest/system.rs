//! Identity, measurements and ports of a machine.

use super::call::{Call, Refused};
use super::{Guest, broken, next_note, unexpected};
use bytes::Bytes;
use motu_core::report::{Metrics, Port};
use motu_core::runtime::{Connection, Usage};
use motu_core::{Error, Result};
use motu_link::Event;
use motu_link::frame::CHANNEL_IN;
use motu_link::message as link;
use motu_link::message::{Said, Verb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes read at a time from a caller of `dial`.
const DIAL_CHUNK: usize = 64 * 1024;

impl Guest {
    pub async fn init(&self, init: link::Init) -> Result<()> {
        self.tell(Verb::Init(init)).await
    }

    /// Ends all processes and syncs the disks.
    pub async fn shutdown(&self, grace: std::time::Duration) -> Result<()> {
        let grace_ms = grace.as_millis() as u64;
        self.tell(Verb::Shutdown(link::Shutdown { grace_ms })).await
    }

    pub async fn ping(&self) -> Result<link::Pong> {
        match self.ask(Verb::Ping(link::Ping {})).await? {
            Said::Pong(pong) => Ok(pong),
            _ => Err(unexpected()),
        }
    }

    /// Resource usage by the host's counters, if the runtime has them.
    pub fn usage(&self, before: Option<Usage>) -> Option<Usage> {
        self.runtime.usage(&self.machine, before)
    }

    pub async fn metrics(&self) -> Result<Metrics> {
        match self.ask(Verb::Metrics(link::MetricsRequest {})).await? {
            Said::Metrics(found) => Ok(Metrics {
                cpu_us: found.cpu_us,
                cpus: found.cpus,
                memory_used_bytes: found.memory_used_bytes,
                memory_total_bytes: found.memory_total_bytes,
                disk_used_bytes: found.disk_used_bytes,
                disk_total_bytes: found.disk_total_bytes,
                processes: found.processes,
                uptime_ms: found.uptime_ms,
                guest_rss_bytes: found.guest_rss_bytes,
            }),
            _ => Err(unexpected()),
        }
    }

    /// I/O errors counted by the file systems of a machine with its own kernel.
    pub async fn disk_errors(&self) -> Result<u64> {
        match self.ask(Verb::Metrics(link::MetricsRequest {})).await? {
            Said::Metrics(found) => Ok(found.disk_errors),
            _ => Err(unexpected()),
        }
    }

    pub async fn ports(&self) -> Result<Vec<Port>> {
        match self.ask(Verb::ListPorts(link::ListPorts {})).await? {
            Said::Ports(found) => Ok(found
                .ports
                .into_iter()
                .map(|port| Port {
                    port: port.port,
                    address: port.address,
                    pid: (port.pid != 0).then_some(port.pid),
                    process: (!port.process.is_empty()).then_some(port.process),
                })
                .collect()),
            _ => Err(unexpected()),
        }
    }

    /// Connects to a port or socket inside the machine.
    pub async fn dial(&self, dial: link::Dial) -> Result<Connection> {
        let mut stream = self.open(Verb::Dial(dial)).await?;
        match next_note(&mut stream).await? {
            Said::Connected(_) => {}
            _ => return Err(unexpected()),
        }
        let (ours, theirs) = tokio::io::duplex(DIAL_CHUNK * 4);
        tokio::spawn(carry(stream, theirs));
        let (read, write) = tokio::io::split(ours);
        Ok(Connection::new(read, write))
    }
}

/// Carries bytes both ways until both sides have finished.
async fn carry(call: Call, io: tokio::io::DuplexStream) {
    let (mut read, mut write) = tokio::io::split(io);
    // `in_use` is kept until both sides have finished.
    let Call {
        tx,
        mut rx,
        in_use: _in_use,
        ..
    } = call;
    let upward = async {
        let mut buffer = vec![0; DIAL_CHUNK];
        loop {
            match read.read(&mut buffer).await {
                Ok(0) | Err(_) => break tx.eof().await,
                Ok(count) => {
                    tx.data(CHANNEL_IN, Bytes::copy_from_slice(&buffer[..count]))
                        .await?;
                }
            }
        }
    };
    let downward = async {
        loop {
            match rx.recv().await? {
                Event::Data { bytes, .. } => {
                    if write.write_all(&bytes).await.is_err() {
                        return Ok(());
                    }
                }
                Event::Eof => {
                    let _ = write.shutdown().await;
                }
                Event::End(_) | Event::Reset => return Ok::<(), motu_link::LinkError>(()),
                Event::Message(_) => {}
            }
        }
    };
    // When the guest ends the stream, the connection is over; the caller's EOF only half-closes it.
    tokio::pin!(downward);
    tokio::select! {
        _ = &mut downward => {}
        ended = upward => {
            if ended.is_ok() {
                let _ = downward.await;
            }
        }
    }
}

/// Sends a stream of bytes as data, then EOF.
pub(super) async fn send_all(
    stream: &mut Call,
    mut content: motu_core::files::ByteStream,
) -> Result<()> {
    use futures_util::StreamExt;
    while let Some(piece) = content.next().await {
        match stream.data(CHANNEL_IN, piece?).await {
            Ok(()) => {}
            // The guest has ended the stream early: its outcome says why.
            Err(Refused::Answered) => return Ok(()),
            Err(Refused::Late(error)) => return Err(error),
        }
    }
    match stream.tx.eof().await {
        Ok(()) => Ok(()),
        Err(motu_link::LinkError::Reset) => Ok(()),
        Err(error) => Err(broken(error)),
    }
}

/// Expects a note with exactly one entry.
pub(super) fn expect_entry(said: Said) -> Result<link::Entry> {
    match said {
        Said::Entries(mut page) if page.entries.len() == 1 => Ok(page.entries.remove(0)),
        Said::Entries(_) => Err(Error::transport("the guest described no file")),
        _ => Err(unexpected()),
    }
}
