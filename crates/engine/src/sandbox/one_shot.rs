//! One-shots: make a sandbox, run one command, throw the sandbox away.
//!
//! The sandbox ends with the command, with the caller's interest, or with its
//! time to live, whichever is first.

use super::Sandboxes;
use super::leaving::Leaving;
use super::pool::Served;
use crate::admission::{Follow, command};
use crate::driver::{Handle, Keep};
use crate::shown::{self, Pace};
use futures_util::stream::{BoxStream, StreamExt, unfold};
use motu_core::exec::{ExecEvent, ExecSession, RunRequest};
use motu_core::sandbox::Sandbox;
use motu_core::{Error, Result, audit};
use std::sync::Arc;
use tokio::sync::oneshot;

impl Sandboxes {
    pub(crate) async fn one_shot(&self, request: RunRequest) -> Result<ExecSession> {
        // The command is checked before anything is made for it.
        let pace = Pace::of(&request.exec);
        let start = command(&self.config, request.exec, Follow::Foreground)?;
        let served = self.pool.serve();
        let (sandbox, handle) = self.make(request.sandbox, Keep::Transient).await?;
        let life = Life::new(handle.clone(), self.leaving.clone());
        let session = handle.guest()?.start(start).await?;
        let events = shown::redacted(&self.commands, session.events, pace);
        let run = Run {
            first: Some(sandbox),
            events: handle.beyond().redacted(events, pace),
            exited: false,
            life,
            _served: served,
        };
        Ok(ExecSession::new(
            unfold(run, |mut run| async move {
                let event = run.next().await?;
                Some((event, run))
            })
            .boxed(),
            session.input,
        ))
    }
}

/// Destroys the sandbox on drop.
struct Life {
    handle: Arc<Handle>,
    leaving: Arc<Leaving>,
    ending: Option<oneshot::Receiver<Result<Sandbox>>>,
    asked: bool,
    /// Dropped when the caller has been answered. The machine's end needs the processors, too.
    unanswered: Option<oneshot::Sender<()>>,
}

impl Life {
    fn new(handle: Arc<Handle>, leaving: Arc<Leaving>) -> Life {
        Life {
            handle,
            leaving,
            ending: None,
            asked: false,
            unanswered: None,
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.asked, true) {
            self.ending = Some(self.handle.destroy_soon());
        }
    }

    async fn ended(&mut self) {
        self.end();
        if let Some(ending) = self.ending.take() {
            let _ = ending.await;
        }
    }

    /// Ends it in the background when this is dropped; waits for its end if too many are leaving.
    async fn leaves(&mut self) {
        let (unanswered, answered) = oneshot::channel();
        let handle = self.handle.clone();
        let end = async move { drop(handle.destroy_soon().await) };
        let end = audit::on_behalf(audit::current(), end);
        if self.leaving.see_off(answered, end) {
            self.asked = true;
            self.unanswered = Some(unanswered);
        } else {
            self.ended().await;
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end();
    }
}

struct Run {
    first: Option<Sandbox>,
    events: BoxStream<'static, Result<ExecEvent>>,
    exited: bool,
    life: Life,
    _served: Served,
}

impl Run {
    async fn next(&mut self) -> Option<Result<ExecEvent>> {
        if let Some(sandbox) = self.first.take() {
            return Some(Ok(ExecEvent::Sandbox(Box::new(sandbox))));
        }
        // After the command's exit the only further event would be the link breaking when the
        // sandbox ends.
        let event = match self.exited {
            true => None,
            false => self.events.next().await,
        };
        match event {
            Some(Ok(event)) => {
                self.exited |= matches!(event, ExecEvent::Exited(_));
                Some(Ok(event))
            }
            Some(Err(error)) => {
                let error: Error = self.life.handle.explain_soon(error).await;
                self.life.ended().await;
                Some(Err(error))
            }
            None if self.exited => {
                self.life.leaves().await;
                None
            }
            None => {
                self.life.ended().await;
                None
            }
        }
    }
}
