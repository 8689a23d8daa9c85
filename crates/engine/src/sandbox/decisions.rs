//! Reads the decision log that a sandbox's gateway writes.

use super::Sandboxes;
use crate::blocking::blocking;
use crate::sys;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use motu_core::files::ByteStream;
use motu_core::policy::ReadDecisions;
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, Result, SandboxId};
use rustix::fs::inotify;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

impl Sandboxes {
    /// All decisions, and with `follow` new ones, until the sandbox is gone.
    pub(crate) async fn decisions(&self, id: &SandboxId, ask: ReadDecisions) -> Result<ByteStream> {
        let live = self.handle(id).await.ok();
        let Some(path) = self.shared.gateways.decisions(id) else {
            return match live {
                // The sandbox has no network, so there are no decisions.
                Some(_) => Ok(futures_util::stream::empty().boxed()),
                None => Err(Error::not_found(format!(
                    "there are no decisions about a sandbox {id}"
                ))
                .hint("those of sandboxes that are gone are kept for a while: decision_logs in `docs/limits.md`")),
            };
        };
        let failed = |error: io::Error| Error::io("the decisions of a sandbox", &error);
        let opened = path.clone();
        let file = blocking(move || open_at(&opened, ask.from).map_err(failed)).await?;
        let news = match live.filter(|_| ask.follow) {
            Some(handle) => Some(News {
                written: watched(&path).map_err(failed)?,
                sandbox: handle.watch(),
                over: false,
            }),
            None => None,
        };
        let reading = Reading { file, news };
        Ok(unfold(reading, |mut reading| async move {
            let piece = reading.next().await?;
            Some((piece, reading))
        })
        .boxed())
    }
}

/// Opens the file at an offset, or at its end if it is shorter.
fn open_at(path: &Path, from: u64) -> io::Result<std::fs::File> {
    let mut file = std::fs::File::open(path)?;
    let end = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(from.min(end)))?;
    Ok(file)
}

/// A log that may still grow.
struct Reading {
    file: std::fs::File,
    news: Option<News>,
}

struct News {
    written: AsyncFd<OwnedFd>,
    sandbox: watch::Receiver<Sandbox>,
    /// The sandbox is gone: nothing more will be written.
    over: bool,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            let mut piece = vec![0; PIECE];
            // A blocking read is fine: a regular file of a few megabytes, mostly in the page cache.
            match self.file.read(&mut piece) {
                Ok(0) => {}
                Ok(count) => {
                    piece.truncate(count);
                    return Some(Ok(piece.into()));
                }
                Err(error) => return Some(Err(Error::io("the decisions of a sandbox", &error))),
            }
            match &mut self.news {
                Some(news) if !news.over => news.wait().await,
                _ => return None,
            }
        }
    }
}

impl News {
    /// Waits until the log grows or the sandbox ends.
    async fn wait(&mut self) {
        let ended = |sandbox: &Sandbox| {
            matches!(
                sandbox.state,
                State::Stopped | State::Failed | State::Destroying | State::Destroyed
            )
        };
        tokio::select! {
            ready = self.written.readable() => {
                if let Ok(mut ready) = ready {
                    let mut events = [0; 4096];
                    // Discard the inotify events: only the fact that the file has changed matters.
                    while rustix::io::read(self.written.get_ref(), &mut events).is_ok() {}
                    ready.clear_ready();
                }
            }
            _ = self.sandbox.wait_for(ended) => self.over = true,
        }
    }
}

fn watched(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let watch = inotify::init(flags)?;
    inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY)?;
    sys::watch(watch)
}
