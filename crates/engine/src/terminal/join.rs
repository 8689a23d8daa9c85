//! Connects a session to its machine.

use crate::driver;
use crate::guest::Guest;
use motu_core::ErrorKind;
use motu_core::exec::{AttachFrom, ExecSession, Selector};
use motu_core::sandbox::{Sandbox, State};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a machine that should run may be unreachable.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for the machine's end after the shell's: a shell that dies with its machine
/// dies first.
const MOMENT: Duration = Duration::from_secs(2);

/// Why there is no connection: the session has ended.
#[derive(Debug)]
pub struct Lost(pub String);

/// Attaches to a shell's output at an offset; waits for a machine that is paused or coming back.
pub async fn join(
    place: &driver::Handle,
    tag: &str,
    from: u64,
) -> Result<(Arc<Guest>, ExecSession), Lost> {
    let mut status = place.watch();
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        let sandbox = status.borrow_and_update().clone();
        if let Some(why) = ending(&sandbox) {
            return Err(Lost(why));
        }
        if sandbox.state != State::Running {
            if status.changed().await.is_err() {
                return Err(Lost("its sandbox is gone".to_string()));
            }
            continue;
        }
        let from = AttachFrom::Offsets {
            stdout: from,
            stderr: 0,
        };
        let error = match place.guest() {
            Ok(guest) => match guest.attach(Selector::Tag(tag.to_string()), from).await {
                Ok(session) => return Ok((guest, session)),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if error.kind == ErrorKind::NotFound {
            let why = "the shell is gone: its machine was made anew, or never started it";
            return Err(Lost(why.to_string()));
        }
        if Instant::now() >= deadline {
            return Err(Lost(format!("its machine does not answer: {error}")));
        }
        // A broken link and a machine's end may be noticed in either order.
        let _ = tokio::time::timeout(pause, status.changed()).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// The reason for a shell's end, if its machine has ended.
pub async fn why_it_ends(place: &driver::Handle) -> Option<String> {
    let mut status = place.watch();
    let ended = status.wait_for(|sandbox| sandbox.state != State::Running);
    let sandbox = tokio::time::timeout(MOMENT, ended).await.ok()?.ok()?;
    ending(&sandbox)
}

fn ending(sandbox: &Sandbox) -> Option<String> {
    let id = &sandbox.sandbox_id;
    let what = match sandbox.state {
        State::Creating | State::Running | State::Paused => return None,
        State::Stopped => format!("{id} was stopped"),
        State::Failed => format!("{id} has failed"),
        State::Destroying | State::Destroyed => format!("{id} was destroyed"),
    };
    Some(match &sandbox.reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    })
}
