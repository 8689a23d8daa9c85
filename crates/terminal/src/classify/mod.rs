//! What the terminal is waiting for.
//!
//! Evidence in this order: the shell's own signed marks, which are facts; the
//! kernel's view (who is in front, how the terminal is set, who is blocked in a
//! read of it); the text on the screen. Text alone never overrules the other
//! two: a program that is computing may print anything, and is still computing.

mod asking;
mod programs;
#[cfg(test)]
mod tests;
mod text;

pub use motu_core::terminal::{Confidence, Prompt, State, Status};

use crate::integration::Shell;
use crate::screen::View;
use asking::{Front, asking, question};
use programs::Nature;
use regex::Regex;
use serde::{Deserialize, Serialize};

/// What our shell's marks say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No mark has come.
    #[default]
    Unmarked,
    /// The prompt is drawn and nothing has been started since.
    AtPrompt,
    /// A command runs.
    InCommand,
    /// A command has ended, its prompt is not drawn yet.
    Between,
}

/// A process of the foreground group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// The kernel's name of it, at most 15 bytes.
    pub name: String,
    /// Its arguments as far as they are known; tells `python -m pdb` from `python`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Whether it is blocked waiting for the terminal. In the guest, from `/proc/PID/syscall`: a
    /// `read` of a descriptor that is the terminal (or `/dev/tty`), or a `poll`, `select` or one
    /// of their relatives that watches nothing else for input, are `true`; one that watches others
    /// too, or an `epoll`, is `None`, since it is not seen who it waits for; all else is `false`.
    #[serde(default)]
    pub reads_tty: Option<bool>,
}

/// The kernel's view of the terminal, taken in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// The foreground process group, its leader first.
    #[serde(default)]
    pub foreground: Vec<Process>,
    /// The session's own shell is the leader of the foreground group.
    pub shell_in_front: bool,
    /// `ECHO` of the terminal.
    pub echo: bool,
    /// `ICANON` of the terminal: lines, not keys.
    pub canonical: bool,
    /// What was typed and not yet read, by `FIONREAD` of the slave: a reader that has something
    /// to read is about to wake up.
    #[serde(default)]
    pub unread_input: Option<u32>,
    /// Bytes of output the guest had taken from the terminal when it had looked, so that facts
    /// never overtake the output they belong to. Take what there is after looking, then count.
    #[serde(default)]
    pub output_bytes: Option<u64>,
    /// Bytes of input the terminal had been given before this look began, so that who waits then
    /// has seen them.
    #[serde(default)]
    pub input_bytes: Option<u64>,
    /// Programs that carry the keys to a terminal of their own (sudo, script, tmux), outermost
    /// first; all else here is of the innermost terminal.
    #[serde(default)]
    pub carriers: Vec<String>,
}

impl KernelFacts {
    /// Who is meant by what is typed: the one that reads, or the innermost that is no wrapper.
    pub fn front(&self) -> Option<&Process> {
        (!self.foreground.is_empty()).then(|| programs::front(&self.foreground))
    }

    /// Whether that one is a shell.
    pub fn shell(&self) -> bool {
        let front = self.front();
        front.is_some_and(|front| programs::nature(front, &self.foreground) == Nature::Shell)
    }

    /// Whether somebody in front waits for input. `None`: not known.
    pub fn reading(&self) -> Option<bool> {
        if self.unread_input.is_some_and(|bytes| bytes > 0) {
            return Some(false);
        }
        if self
            .foreground
            .iter()
            .any(|process| process.reads_tty == Some(true))
        {
            return Some(true);
        }
        let known = !self.foreground.is_empty()
            && self
                .foreground
                .iter()
                .all(|process| process.reads_tty.is_some());
        known.then_some(false)
    }
}

/// Everything there is to go by.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub phase: Phase,
    pub facts: Option<&'a KernelFacts>,
    pub view: &'a View,
    /// What the caller says a prompt looks like.
    pub prompt_regex: Option<&'a Regex>,
    /// No output for longer than the quiet time.
    pub quiet: bool,
    /// An unsigned mark says that a prompt was drawn after the last output: a shell elsewhere, or a lie.
    pub foreign_prompt: bool,
    pub ended: Option<Ended>,
}

/// How a session came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Eof,
    Terminated,
}

/// The state, where the end of the session or the shell's marks decide it alone.
pub fn by_marks(phase: Phase, ended: Option<Ended>) -> Option<State> {
    let (status, prompt, reason) = match (ended, phase) {
        (Some(Ended::Terminated), _) => (
            Status::Terminated,
            Prompt::None,
            "the session was terminated",
        ),
        (Some(Ended::Eof), _) => (Status::Eof, Prompt::None, "the shell has ended"),
        (None, Phase::AtPrompt) => (
            Status::Ready,
            Prompt::Shell,
            "the shell has drawn its prompt (mark)",
        ),
        (None, Phase::Between) => (
            Status::Running,
            Prompt::None,
            "the shell is about to draw its prompt (mark)",
        ),
        (None, Phase::InCommand | Phase::Unmarked) => return None,
    };
    Some(State::new(status, prompt, Confidence::Certain, reason))
}

/// The state of a prompt at which something was typed: `pending` until the shell has begun it,
/// `unfinished` when it wants the rest of it.
pub fn at_prompt(pending: bool, unfinished: bool) -> Option<State> {
    let certain = Confidence::Certain;
    if pending {
        let reason = "the shell has not begun what was typed yet (mark)";
        return Some(State::new(Status::Running, Prompt::None, certain, reason));
    }
    let reason = "the shell waits for the rest of a command";
    unfinished.then(|| State::new(Status::Ready, Prompt::Shell, certain, reason))
}

/// The state of a terminal.
pub fn classify(evidence: &Evidence<'_>) -> State {
    if let Some(state) = by_marks(evidence.phase, evidence.ended) {
        return state;
    }
    let screen = text::Screen::new(evidence.view, evidence.prompt_regex);
    match evidence.facts {
        Some(facts) if !facts.foreground.is_empty() => by_facts(evidence, facts, &screen),
        _ => by_text(evidence, &screen),
    }
}

/// The kernel says who is in front and whether it waits.
fn by_facts(evidence: &Evidence<'_>, facts: &KernelFacts, screen: &text::Screen<'_>) -> State {
    let leader = programs::front(&facts.foreground);
    let nature = programs::nature(leader, &facts.foreground);
    let name = leader.name.as_str();
    if facts.reading() == Some(false) {
        return State::new(
            Status::Running,
            Prompt::None,
            Confidence::High,
            format!("{name} is in front and waits for nothing"),
        );
    }
    // Where it is not known who reads, silence is the next best sign of waiting.
    let waits = facts.reading() == Some(true);
    let confidence = if waits {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let how = if waits {
        "waits for input"
    } else {
        "is in front"
    };
    if !facts.echo && facts.canonical && !nature.draws_itself() {
        return State::new(
            Status::Password,
            Prompt::None,
            confidence,
            format!("{name} {how} with echo off"),
        );
    }
    match nature {
        Nature::Editor | Nature::FullScreen => State::new(
            Status::Editor,
            Prompt::None,
            confidence,
            format!("{name}, a full-screen program, {how}"),
        ),
        Nature::Pager => State::new(
            Status::Pager,
            Prompt::None,
            confidence,
            format!("{name}, a pager, {how}"),
        ),
        Nature::Shell | Nature::Repl(_) | Nature::Remote | Nature::Other => asking(
            evidence,
            facts,
            screen,
            &Front {
                process: leader,
                nature,
                waits,
            },
        ),
    }
}

/// A shell at a prompt without marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmarked {
    Known(Shell),
    /// On another host.
    Remote,
    /// Its prompt passes through a multiplexer that draws it again.
    Drawn,
    /// One that cannot be integrated.
    Other,
}

/// The shell that waits at a prompt without marks, and its pid or that of who carries it.
pub fn unmarked_shell(evidence: &Evidence<'_>) -> Option<(Unmarked, u32)> {
    let facts = evidence
        .facts
        .filter(|facts| !facts.foreground.is_empty())?;
    let state = classify(evidence);
    if evidence.phase == Phase::AtPrompt || state.status != Status::Ready {
        return None;
    }
    let front = programs::front(&facts.foreground);
    let screen = text::Screen::new(evidence.view, evidence.prompt_regex);
    match programs::nature(front, &facts.foreground) {
        Nature::Shell => {
            let drawn = |name: &String| name.starts_with("tmux") || name == "screen";
            let kind = match Shell::of(front.name.trim_start_matches('-')) {
                _ if facts.carriers.iter().any(drawn) => Unmarked::Drawn,
                Some(shell) => Unmarked::Known(shell),
                None => Unmarked::Other,
            };
            Some((kind, front.pid))
        }
        // One cannot look into another host; a prompt like everybody's is a shell like most.
        Nature::Remote if front.name == "ssh" && evidence.quiet && screen.usual_shell() => {
            Some((Unmarked::Remote, front.pid))
        }
        _ => None,
    }
}

/// Nothing but the screen: a session without a guest, or one that did not answer.
fn by_text(evidence: &Evidence<'_>, screen: &text::Screen<'_>) -> State {
    let low = Confidence::Low;
    if evidence.view.modes.alternate_screen {
        let status = if screen.pager() {
            Status::Pager
        } else {
            Status::Editor
        };
        return State::new(
            status,
            Prompt::None,
            Confidence::Medium,
            "a full-screen program has the screen",
        );
    }
    if !evidence.quiet {
        return State::new(Status::Running, Prompt::None, low, "output is still coming");
    }
    if let Some(answer) = question(screen, "something", low) {
        return answer;
    }
    if let Some(prompt) = screen.repl() {
        return State::new(Status::Repl, prompt, low, "an interpreter's prompt is seen");
    }
    if screen.pager() {
        return State::new(Status::Pager, Prompt::None, low, "a pager's line is seen");
    }
    // During a command of our shell a shell prompt can only be another one's: text is not enough to say so.
    if screen.prompt_like() && (evidence.phase == Phase::Unmarked || screen.asked_for()) {
        return State::new(
            Status::Ready,
            Prompt::Shell,
            low,
            "a shell's prompt is seen",
        );
    }
    let reason = if evidence.phase == Phase::InCommand {
        "a command runs (mark)"
    } else {
        "no prompt is seen"
    };
    let confidence = if evidence.phase == Phase::InCommand {
        Confidence::Certain
    } else {
        low
    };
    State::new(Status::Running, Prompt::None, confidence, reason)
}
