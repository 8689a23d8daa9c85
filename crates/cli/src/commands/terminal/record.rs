//! `motu terminal record`: the recording of a session as a file.

use super::Which;
use super::given::Out;
use futures_util::StreamExt;
use motu_api::Client;
use motu_core::exec::ExecSession;
use motu_core::terminal::{ReadTranscript, Terminals};
use motu_core::{Error, Result};
use rustix::fs::inotify;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Bytes copied at once.
const PIECE_BYTES: usize = 64 * 1024;
/// How long the last words of a session that has ended may take to reach the disk.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Write the recording of a session
///
/// Every session is recorded from its beginning, in asciicast v3. Without --follow this
/// is the recording so far; with it, it goes on until the session ends or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal record build -o build.cast
  motu terminal record build --follow -o build.cast
  motu terminal record build | gzip > build.cast.gz")]
pub struct Args {
    #[command(flatten)]
    which: Which,

    /// Write it to a file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace a plain file that is there
    #[arg(long, requires = "output")]
    force: bool,

    /// Go on until the session ends
    #[arg(short, long)]
    follow: bool,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        if json {
            return Err(
                Error::unsupported("a recording is already JSON, a line per event")
                    .hint("leave --json out"),
            );
        }
        let id = &self.which.id;
        if !self.follow {
            let mut recording = client.terminal_recording(id).await?;
            let mut out = Out::create(self.output.as_deref(), self.force.into())?;
            while let Some(piece) = recording.next().await {
                out.write(&piece?)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let paths = ReadTranscript {
            max_bytes: Some(0),
            ..ReadTranscript::default()
        };
        let paths = client.terminal_transcript(id, paths).await?;
        let session = client.attach_terminal(id, None.into()).await.ok();
        let mut tail = Tail::open(Path::new(&paths.recording))?;
        let mut out = Out::create(self.output.as_deref(), self.force.into())?;
        tokio::select! {
            copied = tail.copy(&mut out, ended(session)) => copied?,
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Comes when the session has ended, if it has not already. A daemon that goes is no end of it.
async fn ended(session: Option<ExecSession>) {
    let Some(mut session) = session else { return };
    while let Some(event) = session.events.next().await {
        if event.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A recording that grows. It is a file of this host: the daemon is reached by a socket of it.
struct Tail {
    file: File,
    changes: mpsc::Receiver<()>,
    lines: Lines,
}

impl Tail {
    fn open(path: &Path) -> Result<Tail> {
        let context = format!("read {}", path.display());
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::not_found(format!("{context}: the recording is not on this host"))
                    .hint("leave --follow out")
            }
            _ => Error::io(&context, &error),
        };
        let file = File::open(path).map_err(failed)?;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC);
        let watch = watch.map_err(|error| failed(error.into()))?;
        inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY)
            .map_err(|error| failed(error.into()))?;
        Ok(Tail {
            file,
            changes: changes(watch),
            lines: Lines::default(),
        })
    }

    /// Copies until the recording says that the session has ended, or for a little while after
    /// `ended`: a recording that is full does not say it.
    async fn copy(&mut self, out: &mut Out, ended: impl Future<Output = ()>) -> Result<()> {
        let over = async {
            ended.await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::pin!(over);
        loop {
            self.copy_what_is_there(out)?;
            if self.lines.over {
                return Ok(());
            }
            tokio::select! {
                Some(()) = self.changes.recv() => {}
                () = &mut over => return self.copy_what_is_there(out),
            }
        }
    }

    fn copy_what_is_there(&mut self, out: &mut Out) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = self
                .file
                .read(&mut piece)
                .map_err(|error| Error::io("read the recording", &error))?;
            if length == 0 {
                return Ok(());
            }
            self.lines.look(&piece[..length]);
            out.write(&piece[..length])?;
        }
    }
}

/// Says when a file has changed, from a thread of its own. Several changes may become one.
fn changes(watch: OwnedFd) -> mpsc::Receiver<()> {
    let (told, changes) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        while events.next().is_ok() {
            if let Err(TrySendError::Closed(())) = told.try_send(()) {
                return;
            }
        }
    });
    changes
}

/// Looks for the event that ends a recording.
#[derive(Debug, Default)]
struct Lines {
    /// The beginning of the line that is not whole yet.
    line: Vec<u8>,
    over: bool,
}

impl Lines {
    /// The line of that event is short.
    const MOST: usize = 128;

    fn look(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() < Lines::MOST {
                    self.line.push(*byte);
                }
                continue;
            }
            let event = serde_json::from_slice::<(f64, String, String)>(&self.line);
            self.over |= event.is_ok_and(|(_, code, _)| code == "x");
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_ends_with_its_last_event() {
        let mut lines = Lines::default();
        lines.look(b"{\"version\":3}\n[0.1, \"o\", \"[1, \\\"x\\\"]\"]\n[0.1, \"x\"");
        assert!(!lines.over);
        lines.look(b", \"0\"]\n");
        assert!(lines.over);
    }
}
