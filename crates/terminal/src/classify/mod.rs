//! Classifies what the terminal is waiting for.
//!
//! Evidence in this order: the shell's signed marks, which are facts; the kernel's view (foreground
//! processes, terminal settings, who is blocked in a read); the text on the screen. Text alone
//! never overrules the other two: a program that computes may print anything, and still computes.

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

/// The phase by our shell's marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No mark has been seen.
    #[default]
    Unmarked,
    /// The prompt is drawn and no command has been started since.
    AtPrompt,
    /// A command is running.
    InCommand,
    /// A command has ended, and the next prompt is not drawn yet.
    Between,
}

/// A process of the foreground group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// The kernel's name (`comm`), at most 15 bytes.
    pub name: String,
    /// Its arguments as far as known; they distinguish `python -m pdb` from `python`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Whether it is blocked waiting for the terminal. The guest derives it from
    /// `/proc/PID/syscall`: `true` for a `read` of the terminal (or `/dev/tty`), or a `poll`,
    /// `select` or the like that watches no other descriptor for input; `None` if it watches others
    /// too, or is in `epoll`, because it is unknown what it waits for; otherwise `false`.
    #[serde(default)]
    pub reads_tty: Option<bool>,
}

/// The kernel's view of the terminal, taken in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// The foreground process group, its leader first.
    #[serde(default)]
    pub foreground: Vec<Process>,
    /// The session's own shell leads the foreground group.
    pub shell_in_front: bool,
    /// `ECHO` of the terminal.
    pub echo: bool,
    /// `ICANON` of the terminal: lines, not keys.
    pub canonical: bool,
    /// Typed input that is not read yet, by `FIONREAD` of the slave: a reader with pending input is
    /// about to wake up.
    #[serde(default)]
    pub unread_input: Option<u32>,
    /// Bytes of output the guest had read when the look was complete, so that facts never overtake
    /// the output they belong to.
    #[serde(default)]
    pub output_bytes: Option<u64>,
    /// Bytes of input the terminal had received before the look began, so that a process that waits
    /// has seen them.
    #[serde(default)]
    pub input_bytes: Option<u64>,
    /// Programs that pass the keys on to a terminal of their own (sudo, script, tmux), outermost
    /// first; all other fields are about the innermost terminal.
    #[serde(default)]
    pub carriers: Vec<String>,
}

impl KernelFacts {
    /// The process that gets the input: the one that reads, or the innermost that is no wrapper.
    pub fn front(&self) -> Option<&Process> {
        (!self.foreground.is_empty()).then(|| programs::front(&self.foreground))
    }

    /// Whether that process is a shell.
    pub fn shell(&self) -> bool {
        let front = self.front();
        front.is_some_and(|front| programs::nature(front, &self.foreground) == Nature::Shell)
    }

    /// Whether a foreground process waits for input; `None` if unknown.
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

/// All evidence for a classification.
#[derive(Debug)]
pub struct Evidence<'a> {
    pub phase: Phase,
    pub facts: Option<&'a KernelFacts>,
    pub view: &'a View,
    /// The caller's pattern for a prompt.
    pub prompt_regex: Option<&'a Regex>,
    /// No output for longer than the quiet time.
    pub quiet: bool,
    /// An unsigned mark announced a prompt after the last output: from a shell elsewhere, or
    /// forged.
    pub foreign_prompt: bool,
    /// A line was typed, and nothing visible was printed since: what the screen asks is older.
    pub unanswered: bool,
    pub ended: Option<Ended>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Eof,
    Terminated,
}

/// The state, if the end of the session or the marks alone decide it.
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

/// The state at a prompt where something was typed: `pending` until the shell has begun it,
/// `unfinished` if it wants the rest.
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

/// Classifies by the kernel's view.
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
    // If it is unknown who reads, silence is the next best sign of waiting.
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
    let hidden = !facts.echo && facts.canonical && !nature.draws_itself();
    if hidden && (waits || !evidence.unanswered) {
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
    /// A shell on another host.
    Remote,
    /// A shell behind a multiplexer, which redraws its prompt.
    Drawn,
    /// A shell without integration.
    Other,
}

/// The shell at a prompt without marks, and its pid or that of its carrier.
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
        // Another host cannot be inspected; a usual prompt means a usual shell. Nothing is typed at
        // any other prompt, such as the bare `$` of a plain sh: what reads there is not known.
        Nature::Remote if evidence.quiet => {
            let kind = match front.name == "ssh" && screen.usual_shell() {
                true => Unmarked::Remote,
                false => Unmarked::Other,
            };
            Some((kind, front.pid))
        }
        _ => None,
    }
}

/// Classifies by the screen alone: without a guest, or if it did not answer.
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
    let new = !evidence.unanswered;
    if let Some(answer) = question(screen, "something", low).filter(|_| new) {
        return answer;
    }
    if let Some(prompt) = screen.repl().filter(|_| new) {
        return State::new(Status::Repl, prompt, low, "an interpreter's prompt is seen");
    }
    if screen.pager() {
        return State::new(Status::Pager, Prompt::None, low, "a pager's line is seen");
    }
    // During a command of our shell a prompt can only be another shell's: text is not enough to
    // tell.
    if new && screen.prompt_like() && (evidence.phase == Phase::Unmarked || screen.asked_for()) {
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
