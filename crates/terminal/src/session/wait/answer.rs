//! Makes the answer of a request that has ended.

use super::super::nested::{self, NO_EXIT_CODE};
use super::super::{End, Outcome, Session};
use super::{Kind, Waiter, asks};
use crate::classify::{Phase, State};
use crate::expect::Found;
use crate::output::Excerpt;
use crate::record::Record;
use std::time::Duration;

/// What a terminal shows of Ctrl-C at most.
const SHOWN_KEY_BYTES: u64 = 2;

const IGNORED: &str = "the program in front ignores this key and still waits for its answer: an empty line (Enter) or Ctrl-D may end it";

impl Session {
    pub(in crate::session) fn finish(
        &mut self,
        waiter: Waiter,
        end: End,
        found: Option<Found>,
        now: Duration,
    ) {
        let state = self.state(now);
        let command = waiter
            .turn
            .filter(|turn| self.commands.begun_since(*turn))
            .and_then(|_| self.commands.latest.last());
        let exit_code = command
            .filter(|_| end == End::CommandEnded)
            .and_then(|command| command.exit_code);
        let began = self.commands.latest.first().map(|first| first.started);
        let ended = command.and_then(|command| command.ended);
        let duration = match (&waiter.kind, began.filter(|_| command.is_some())) {
            (Kind::Run { .. }, Some(began)) if !waiter.nested => {
                ended.unwrap_or(now).saturating_sub(began)
            }
            _ => now.saturating_sub(waiter.made),
        };
        let mut waiter = waiter;
        if waiter.is_waiting_to_start() && end == End::TimedOut {
            waiter.warn("the command was not typed: what was typed before it has not ended, or the shell has not drawn its prompt");
        }
        if exit_code.is_some() {
            // The command ended the nested shell, and our own shell tells its exit code.
            waiter.warnings.retain(|said| !NO_EXIT_CODE.contains(said));
        } else if waiter.is_unmarked()
            && let Some(unknown) = nested::untold(end, state.status)
        {
            waiter.warn(unknown);
        }
        if self.was_ignored(&waiter, now) {
            waiter.warn(IGNORED);
        }
        let output = self.output_of(&waiter, &state, end);
        if let Some(found) = &found {
            self.expect_from = self.expect_from.max(found.after);
        }
        if end != End::Cancelled {
            self.polled = self.ring.end();
        }
        self.record(Record::Answer {
            kind: waiter.kind.name(),
            end,
            status: state.status,
            exit_code,
            at: now,
        });
        let outcome = Outcome {
            end,
            state,
            output,
            exit_code,
            duration,
            cwd: self.cwd().map(str::to_owned),
            found,
            cursor: self.ring.end(),
            warnings: waiter.warnings,
        };
        self.outcomes.push((waiter.ticket, outcome));
    }

    /// Whether an interrupt changed nothing: the same program still waits for an answer.
    fn was_ignored(&self, waiter: &Waiter, now: Duration) -> bool {
        let silent = self.ring.end() <= waiter.from + SHOWN_KEY_BYTES;
        silent && waiter.interrupted.is_some() && waiter.interrupted == self.asks_in_front(now)
    }

    fn output_of(&self, waiter: &Waiter, state: &State, end: End) -> Excerpt {
        let stream_end = self.ring.end();
        let group = waiter
            .turn
            .filter(|turn| self.commands.begun_since(*turn))
            .and_then(|_| self.commands.output_range(stream_end));
        match (&waiter.kind, group) {
            (Kind::Prompt, _) => Excerpt::default(),
            (Kind::Run { .. }, Some(range)) if !waiter.nested => {
                self.excerpt(range, self.commands.head(), waiter.shape)
            }
            // A shell without a command prints nothing.
            (Kind::Run { .. }, None) if end == End::CommandEnded => Excerpt::default(),
            (Kind::Run { command, .. }, group) => {
                let over = group.filter(|_| self.commands.phase != Phase::InCommand);
                let until = over.as_ref().map_or(stream_end, |range| range.end);
                let mut excerpt = self.excerpt(waiter.from..until, &[], waiter.shape);
                if !waiter.shape.raw {
                    let prompt = over.is_none() && asks(state);
                    excerpt.text = own_output(&excerpt.text, command, prompt);
                }
                excerpt
            }
            (Kind::Send | Kind::Poll | Kind::Expect { .. }, group) => {
                // What the shell draws after the command's end is not output.
                let until = group
                    .filter(|_| self.commands.phase != Phase::InCommand)
                    .map_or(stream_end, |range| range.end.max(waiter.from));
                self.excerpt(waiter.from..until, &[], waiter.shape)
            }
        }
    }
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Run { .. } => "run",
            Kind::Send => "send",
            Kind::Poll => "poll",
            Kind::Expect { .. } => "expect",
            Kind::Prompt => "expect_prompt",
        }
    }
}

/// Without marks: removes the echoed lines and the final prompt, as far as they are recognized.
fn own_output(text: &str, command: &str, at_prompt: bool) -> String {
    let mut rest = text;
    for line in command.lines().filter(|line| !line.trim().is_empty()) {
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if !first.trim_end().ends_with(line.trim()) {
            break;
        }
        rest = after;
    }
    if at_prompt && !rest.ends_with('\n') {
        rest = rest.rfind('\n').map_or("", |at| &rest[..=at]);
    }
    rest.to_owned()
}
