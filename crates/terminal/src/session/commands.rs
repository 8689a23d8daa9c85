//! Derives commands from marks.

use crate::classify::Phase;
use crate::limits::{COMMAND_HEAD_BYTES, COMMANDS_KEPT};
use crate::osc::{Mark, MarkKind};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// One command of our shell, by its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The prompt where it was typed.
    pub turn: u64,
    /// Where its output begins.
    pub output_from: u64,
    /// Where its output ends, once it has.
    pub output_to: Option<u64>,
    pub exit_code: Option<i32>,
    pub started: Duration,
    pub ended: Option<Duration>,
}

/// The state by the marks so far.
#[derive(Debug, Default)]
pub(super) struct Commands {
    pub phase: Phase,
    /// Counts drawn prompts of all shells.
    pub turn: u64,
    /// The shell of the newest prompt, and the prompt's number in that shell.
    pub key: (usize, u64),
    /// Where input at the prompt begins.
    pub input_from: u64,
    /// The stream position when we typed a line at this prompt; what follows is its echo, until the
    /// command begins. Without it, output at the prompt comes from the background.
    typed_from: Option<u64>,
    pub cwd: Option<String>,
    /// The commands typed at the newest prompt; several if lines were pasted together.
    pub latest: Vec<Command>,
    /// The beginning of their output.
    head: Vec<u8>,
    /// Ranges of the stream that are echoes.
    echoes: VecDeque<Range<u64>>,
    /// The turn of the last command that began.
    pub command_turn: u64,
    /// A line was typed at the prompt, and the shell has neither begun it nor asked for more.
    pub pending: bool,
    /// The shell asks for the rest of the input.
    pub unfinished: bool,
    /// Lines were typed that no mark accounts for: a program may have read them, or the shell will.
    pub loose: bool,
    /// An unsigned mark announced a prompt.
    pub foreign_prompt: bool,
}

impl Commands {
    /// Handles a mark; `at` is the range of its bytes in the stream.
    pub fn mark(&mut self, mark: &Mark, at: Range<u64>, now: Duration) {
        if !mark.trusted {
            self.foreign_prompt = mark.kind == MarkKind::InputStart;
            return;
        }
        if mark.cwd.is_some() {
            self.cwd.clone_from(&mark.cwd);
        }
        let key = (mark.shell, mark.turn);
        if mark.kind != MarkKind::InputStart || self.key != key {
            self.pending = false;
            self.unfinished = mark.kind == MarkKind::Continuation;
        }
        match mark.kind {
            MarkKind::Continuation => {}
            MarkKind::PromptStart => self.phase = Phase::Between,
            MarkKind::InputStart => {
                // A prompt redrawn during input keeps its first position.
                if self.phase != Phase::AtPrompt || self.key != key {
                    self.input_from = at.end;
                    self.typed_from = None;
                }
                self.phase = Phase::AtPrompt;
                if self.key != key {
                    self.key = key;
                    self.turn += 1;
                }
            }
            MarkKind::CommandStart => {
                let turn = self.turn_of(key);
                self.start(turn, at, now);
            }
            MarkKind::CommandEnd { exit_code } => {
                if self.phase == Phase::InCommand
                    && let Some(command) = self.latest.last_mut()
                {
                    command.output_to = Some(at.start);
                    command.exit_code = exit_code;
                    command.ended = Some(now);
                }
                self.phase = Phase::Between;
            }
        }
    }

    /// The number of a prompt; lines run without a prompt between them get one each.
    fn turn_of(&mut self, key: (usize, u64)) -> u64 {
        if self.key != key {
            self.key = key;
            self.turn += 1;
        }
        self.turn
    }

    fn start(&mut self, turn: u64, at: Range<u64>, now: Duration) {
        if self.phase == Phase::AtPrompt {
            let from = self.typed_from.take().unwrap_or(self.input_from);
            self.echoes.push_back(from..at.start);
            if self.echoes.len() > COMMANDS_KEPT {
                self.echoes.pop_front();
            }
            // Typed at a drawn prompt: a new group of commands.
            self.latest.clear();
            self.head = Vec::new();
        }
        if self.latest.len() >= COMMANDS_KEPT {
            self.latest.remove(1);
        }
        self.phase = Phase::InCommand;
        self.command_turn = turn;
        self.latest.push(Command {
            turn,
            output_from: at.end,
            output_to: None,
            exit_code: None,
            started: now,
            ended: None,
        });
    }

    /// Handles output; its beginning is stored.
    pub fn output(&mut self, bytes: &[u8]) {
        self.foreign_prompt = false;
        if self.phase == Phase::InCommand && self.head.len() < COMMAND_HEAD_BYTES {
            let room = COMMAND_HEAD_BYTES - self.head.len();
            self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// The first bytes of the latest group's output, without marks.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The output of the latest group, up to `end` while it runs.
    pub fn output_range(&self, end: u64) -> Option<Range<u64>> {
        let first = self.latest.first()?;
        let last = self.latest.last()?;
        Some(first.output_from..last.output_to.unwrap_or(end))
    }

    /// Records that a line is typed at the prompt.
    pub fn typed(&mut self, at: u64) {
        self.typed_from.get_or_insert(at);
    }

    /// Records typed lines, at the prompt or elsewhere.
    pub fn typed_lines(&mut self, lines: usize) {
        if lines == 0 || self.phase == Phase::Unmarked {
            return;
        }
        let at_prompt = self.phase == Phase::AtPrompt && !self.pending;
        self.unfinished &= !at_prompt;
        self.loose |= !at_prompt || lines > 1;
        self.pending |= at_prompt;
    }

    /// The shell was seen waiting with all input read.
    pub fn idle(&mut self) {
        if self.phase == Phase::AtPrompt {
            self.unfinished |= self.pending;
            self.pending = false;
            self.loose = false;
        }
    }

    /// Whether the current output is the echo of a line.
    pub fn is_typing(&self) -> bool {
        self.phase == Phase::AtPrompt && self.typed_from.is_some()
    }

    /// Echo ranges that overlap `from..end`, in order.
    pub fn echoes(&self, from: u64, end: u64) -> Vec<Range<u64>> {
        let typed = self.typed_from.filter(|_| self.is_typing());
        let typing = typed.map(|typed| typed..end);
        self.echoes
            .iter()
            .cloned()
            .chain(typing)
            .filter(|range| range.end > from && range.start < end)
            .collect()
    }

    /// Whether the group typed at `turn` has ended and the next prompt is drawn.
    pub fn done_since(&self, turn: u64) -> bool {
        self.phase == Phase::AtPrompt && self.turn > turn
    }

    /// Whether a command has begun at or after `turn`.
    pub fn begun_since(&self, turn: u64) -> bool {
        self.latest.first().is_some_and(|first| first.turn >= turn)
    }
}
