//! Nested shells: integrated by a line typed at their prompt.
//!
//! A prompt is only text: any program may print one, and on another host nothing else is seen. So
//! whatever reads there is asked first, by a line that gives nothing away, and must answer as a
//! shell does. Only then, and only if nothing was typed in between, the line with a nonce is typed.
//! Both come before the first command that is run there. Their echo is held back until they are
//! answered, and then dropped; if no answer comes, it is shown.

use super::{End, Session};
use crate::classify::{self, Evidence, Phase, Status, Unmarked};
use crate::integration::{Shell, typed};
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

/// What was typed last.
#[derive(Debug)]
enum Step {
    /// The question what reads there.
    Asked(typed::Challenge),
    /// The integration of the shell with this number among the signing ones.
    Integrated(usize),
}

/// A shell that is being integrated.
#[derive(Debug)]
pub(super) struct Introduction {
    step: Step,
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
    proven: Option<Proven>,
}

/// A shell that has just answered, and nothing was typed since.
#[derive(Debug)]
struct Proven {
    shell: Shell,
    pid: u32,
    since: Duration,
}

impl Nested {
    pub fn held(&self) -> usize {
        self.introduction.as_ref().map_or(0, |one| one.held.len())
    }

    pub fn until(&self) -> Option<Duration> {
        let asked = self.introduction.as_ref().map(|one| one.since);
        let answered = self.proven.as_ref().map(|one| one.since);
        asked.or(answered).map(|since| since + PATIENCE)
    }

    fn refuse(&mut self, pid: u32) {
        if self.refused.len() >= REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(pid);
    }

    /// Whether a shell has answered that is not integrated yet.
    pub fn is_proven(&self) -> bool {
        self.proven.is_some()
    }

    /// Something else was typed: who reads from here on may be another one.
    pub fn forget_proof(&mut self) {
        self.proven = None;
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
        // Who has answered draws the prompt again.
        if self.nested.is_proven() && !self.quiet(now) {
            return true;
        }
        let Some((shell, pid)) = self.unmarked_shell() else {
            return self.nested.is_proven();
        };
        let takes = match shell {
            _ if self.nested.refused.contains(&pid) => false,
            // For some shells the kernel does not tell whether they wait for the terminal alone.
            Unmarked::Known(_) if !self.is_read() && !self.quiet(now) => return true,
            // A remote shell is only known by its prompt, which must be complete.
            Unmarked::Remote if !self.quiet(now) => return true,
            Unmarked::Known(_) | Unmarked::Remote => true,
            Unmarked::Drawn | Unmarked::Other => false,
        };
        let (true, Ok(nonce)) = (takes, Nonce::random()) else {
            self.waiters[at].warn(if shell == Unmarked::Drawn {
                DRAWN
            } else {
                NOT_KNOWN
            });
            return false;
        };
        let (step, line) = match self.nested.proven.take() {
            Some(proven) if proven.pid == pid => {
                let line = typed::line(proven.shell, &nonce);
                (Step::Integrated(self.listener.meet(nonce)), line)
            }
            _ => {
                let challenge = typed::Challenge::new(&nonce);
                let line = challenge.line();
                (Step::Asked(challenge), line)
            }
        };
        self.typed += line.len() as u64;
        self.input.extend_from_slice(line.as_bytes());
        self.last_input = now;
        self.nested.introduction = Some(Introduction {
            step,
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
            unanswered: self.reply.is_awaited(),
            ended: self.ended,
        })
    }

    /// Holds a piece back while a shell is being integrated; false if it is to be shown.
    pub(super) fn hold(&mut self, piece: &Piece<'_>, now: Duration) -> bool {
        let Some(one) = &mut self.nested.introduction else {
            return false;
        };
        if let Some(Seen::Osc(payload)) = &piece.seen {
            match &one.step {
                Step::Asked(challenge) => {
                    if let Some(answer) = challenge.answer(payload) {
                        let pid = one.pid;
                        self.answered(pid, answer, now);
                        return true;
                    }
                }
                Step::Integrated(shell) if self.listener.is_of(*shell, payload) => {
                    // The shell has read all earlier input too.
                    self.commands.loose = false;
                    self.nested.introduction = None;
                    return false;
                }
                Step::Integrated(_) => {}
            }
        }
        one.held.extend_from_slice(piece.bytes);
        if one.held.len() > HELD_BYTES {
            self.stop_introducing(now);
        }
        true
    }

    /// A shell has said what it is, and has read all earlier input too.
    fn answered(&mut self, pid: u32, answer: Option<Shell>, now: Duration) {
        self.commands.loose = false;
        self.nested.introduction = None;
        self.nested.proven = answer.map(|shell| Proven {
            shell,
            pid,
            since: now,
        });
        if answer.is_none() {
            self.nested.refuse(pid);
            self.warn_of_unknown();
        }
    }

    /// Nothing answered: what was printed is shown.
    pub(super) fn stop_introducing(&mut self, now: Duration) {
        self.nested.proven = None;
        let Some(one) = self.nested.introduction.take() else {
            return;
        };
        self.nested.refuse(one.pid);
        if let Step::Integrated(shell) = one.step {
            // Its nonce has been displayed by now.
            self.listener.disown(shell);
        }
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
}
