//! Nested shells: integrated by a line typed at their prompt.
//!
//! The line is typed before the first command that is run there. Its echo is held back until the
//! shell's first mark, and then dropped; if no mark comes, it is shown.

use super::{End, Session};
use crate::classify::{self, Evidence, Phase, Status, Unmarked};
use crate::integration::typed;
use crate::limits::HELD_BYTES;
use crate::osc::Nonce;
use crate::scan::{Piece, Scanner, Seen};
use std::time::Duration;

/// How long a shell may take to answer the line.
const PATIENCE: Duration = Duration::from_secs(3);
/// Number of shells remembered as not supported.
const REFUSED: usize = 16;

const NOT_KNOWN: &str = "the exit code is not known: this shell is not bash, zsh or fish, or did not take shell integration";
const DRAWN: &str =
    "the exit code is not known: a terminal multiplexer draws this shell's output again";

const NOT_SEEN: &str =
    "neither the command's end nor its exit code is known: no prompt was recognized";

/// What is said of a run whose exit code nobody tells.
pub(super) const NO_EXIT_CODE: [&str; 3] = [NOT_KNOWN, DRAWN, NOT_SEEN];

/// What to say of a run that ended so, if its shell gives no marks.
pub(super) fn untold(end: End, status: Status) -> Option<&'static str> {
    match (end, status) {
        (End::WaitsForInput, Status::Ready) => Some(NOT_KNOWN),
        (End::Quiet, _) => Some(NOT_SEEN),
        _ => None,
    }
}

/// A shell that is being integrated.
#[derive(Debug)]
pub(super) struct Introduction {
    /// Its number among the signing shells.
    shell: usize,
    pid: u32,
    since: Duration,
    /// Output since: the echo.
    held: Vec<u8>,
}

/// The state of nested shells.
#[derive(Debug, Default)]
pub(super) struct Nested {
    introduction: Option<Introduction>,
    refused: Vec<u32>,
    /// The shell that was integrated last.
    last: Option<u32>,
}

impl Nested {
    pub fn held(&self) -> usize {
        self.introduction.as_ref().map_or(0, |one| one.held.len())
    }

    pub fn until(&self) -> Option<Duration> {
        self.introduction.as_ref().map(|one| one.since + PATIENCE)
    }

    fn refuse(&mut self, pid: u32) {
        if self.refused.len() >= REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(pid);
    }
}

impl Session {
    /// Called before a run is typed into a nested shell: true while it must wait.
    pub(super) fn introduce(&mut self, at: usize, now: Duration) -> bool {
        if self.nested.introduction.is_some() {
            return true;
        }
        if self.config.nonce.is_none() || self.commands.phase != Phase::InCommand {
            return false;
        }
        let Some((shell, pid)) = self.unmarked_shell() else {
            return false;
        };
        let known = match shell {
            _ if self.nested.refused.contains(&pid) => None,
            // For some shells the kernel does not tell whether they wait for the terminal alone.
            Unmarked::Known(_) if !self.is_read() && !self.quiet(now) => return true,
            Unmarked::Known(shell) => Some(Some(shell)),
            // A remote shell is only known by its prompt, which must be complete.
            Unmarked::Remote if !self.quiet(now) => return true,
            Unmarked::Remote => Some(None),
            Unmarked::Drawn | Unmarked::Other => None,
        };
        let (Some(known), Ok(nonce)) = (known, Nonce::random()) else {
            self.waiters[at].warn(if shell == Unmarked::Drawn {
                DRAWN
            } else {
                NOT_KNOWN
            });
            return false;
        };
        let line = typed::line(known, &nonce);
        self.typed += line.len() as u64;
        self.input.extend_from_slice(line.as_bytes());
        self.last_input = now;
        self.nested.last = Some(pid);
        self.nested.introduction = Some(Introduction {
            shell: self.listener.meet(nonce),
            pid,
            since: now,
            held: Vec::new(),
        });
        true
    }

    fn is_read(&self) -> bool {
        self.fresh_facts()
            .is_some_and(|facts| facts.reading() == Some(true))
    }

    fn unmarked_shell(&self) -> Option<(Unmarked, u32)> {
        let view = self.screen.view();
        classify::unmarked_shell(&Evidence {
            phase: self.commands.phase,
            facts: Some(self.fresh_facts()?),
            view: &view,
            prompt_regex: self.config.prompt_regex.as_ref(),
            quiet: true,
            foreign_prompt: self.commands.foreign_prompt,
            ended: self.ended,
        })
    }

    /// Holds a piece back while a shell is being integrated; false if it is to be shown.
    pub(super) fn hold(&mut self, piece: &Piece<'_>, now: Duration) -> bool {
        let Some(one) = &mut self.nested.introduction else {
            return false;
        };
        if let Some(Seen::Osc(payload)) = &piece.seen
            && self.listener.is_of(one.shell, payload)
        {
            // The shell has read all earlier input too.
            self.commands.loose = false;
            self.nested.introduction = None;
            return false;
        }
        one.held.extend_from_slice(piece.bytes);
        if one.held.len() > HELD_BYTES {
            self.stop_introducing(now);
        }
        true
    }

    /// The shell did not answer: its output is shown.
    pub(super) fn stop_introducing(&mut self, now: Duration) {
        let Some(one) = self.nested.introduction.take() else {
            return;
        };
        self.nested.refuse(one.pid);
        // Its nonce has been displayed by now.
        self.listener.disown(one.shell);
        self.warn_of_unknown();
        Scanner::default().push(&one.held, &mut |piece| self.piece(&piece, now));
    }

    /// Warns the request that is about to type a command there.
    fn warn_of_unknown(&mut self) {
        for waiter in &mut self.waiters {
            if waiter.is_waiting_to_start() {
                waiter.warn(NOT_KNOWN);
            }
        }
    }

    /// A remote shell reports that it is not supported.
    pub(super) fn refused(&mut self) {
        if let Some(pid) = self.nested.last {
            self.nested.refuse(pid);
        }
        self.warn_of_unknown();
    }
}
