//! Attaches a person to a session, to watch or to take over.

use super::Terminals;
use super::checks;
use super::handle::Handle;
use super::owner::{Freshness, Owner, Work};
use bytes::Bytes;
use motu_core::exec::{ExecEvent, ExecInput, ExecSession, Started};
use motu_core::terminal::{Seat, TerminalId};
use motu_core::{Error, Result};
use motu_terminal::render;
use tokio::sync::mpsc;

/// Inputs that may wait for the session's task.
const INPUTS: usize = 8;

impl Terminals {
    pub(super) async fn take_seat(&self, id: &TerminalId, seat: Seat) -> Result<ExecSession> {
        let size = seat.map(|size| checks::size(Some(size))).transpose()?;
        let entry = self.sessions.get(id)?;
        let known = entry.known();
        if !known.is_some_and(|known| known.is_alive()) {
            return Err(Error::conflict(format!("session {id} has ended"))
                .hint("its screen, transcript and recording can still be read"));
        }
        let handle = self.awake(id, &entry)?;
        let watch = move |owner: &mut Owner| {
            if let Some(size) = size {
                owner.resize(size);
            }
            let started = Started {
                pid: owner.pid.unwrap_or(0),
                tag: String::new(),
                stdout_from: owner.session.end(),
                stderr_from: 0,
            };
            let screen = Bytes::from(render::redraw(&owner.session.view()));
            owner
                .watchers
                .add(vec![ExecEvent::Started(started), ExecEvent::Stdout(screen)])
        };
        let events = handle.ask(Freshness::Any, watch).await?;
        let (input, inputs) = mpsc::channel(INPUTS);
        // A watcher's input has no receiver: its sends fail.
        if seat.is_some() {
            tokio::spawn(take_inputs(handle, inputs));
        }
        Ok(ExecSession::new(events, input))
    }
}

/// Types the input of a seat until it is left.
async fn take_inputs(handle: Handle, mut inputs: mpsc::Receiver<ExecInput>) {
    while let Some(input) = inputs.recv().await {
        let typed = match input {
            ExecInput::Stdin(bytes) => {
                let type_in = move |owner: &mut Owner| {
                    let now = owner.now();
                    // Fails if there is too much input or the session has ended; the watcher sees
                    // either.
                    let _ = owner.session.type_in(&bytes, now);
                };
                handle.ask(Freshness::Any, type_in).await
            }
            ExecInput::Resize(size) => match checks::size(Some(size)) {
                Ok(size) => {
                    let resize = move |owner: &mut Owner| owner.resize(size);
                    handle.ask(Freshness::Any, resize).await
                }
                Err(_) => Ok(()),
            },
            ExecInput::Signal(signal) => {
                let send = move |owner: &mut Owner| signal_front(owner, signal);
                handle.ask(Freshness::Any, send).await
            }
            // Leaving a seat does not end the shell.
            ExecInput::CloseStdin => Ok(()),
        };
        if typed.is_err() {
            return;
        }
    }
}

fn signal_front(owner: &mut Owner, signal: i32) {
    if let (Some(guest), Some(tag)) = (owner.guest.clone(), owner.known.tag()) {
        owner.job(async move {
            // A signal that cannot be sent has no effect, which the watcher sees.
            let _ = guest.signal_foreground(&tag, signal).await;
            Box::new(|_: &mut Owner| {}) as Work
        });
    }
}
