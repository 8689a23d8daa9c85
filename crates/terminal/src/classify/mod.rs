//! What the terminal is waiting for.
//!
//! Evidence in this order: the shell's own signed marks, which are facts; the
//! kernel's view (who is in front, how the terminal is set, who is blocked in a
//! read of it); the text on the screen. Text alone never overrules the other
//! two: a program that is computing may print anything, and is still computing.

mod programs;
#[cfg(test)]
mod tests;
mod text;

pub use motu_core::terminal::{Confidence, Prompt, State, Status};

use crate::screen::View;
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
                name,
                nature,
                waits,
            },
        ),
    }
}

struct Front<'a> {
    name: &'a str,
    nature: Nature,
    waits: bool,
}

impl Front<'_> {
    fn confidence(&self) -> Confidence {
        if self.waits {
            Confidence::High
        } else {
            Confidence::Medium
        }
    }
}

/// A program that may be at a prompt: whose, the screen says.
fn asking(
    evidence: &Evidence<'_>,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let (name, medium) = (front.name, Confidence::Medium);
    if evidence.view.modes.alternate_screen && front.nature != Nature::Shell {
        let (status, what) = if screen.pager() {
            (Status::Pager, "a pager")
        } else {
            (Status::Editor, "a full-screen program")
        };
        let reason = format!("{what} has the screen ({name})");
        return State::new(status, Prompt::None, medium, reason);
    }
    if !front.waits && !evidence.quiet {
        let reason = format!("{name} is in front and has just written");
        return State::new(Status::Running, Prompt::None, medium, reason);
    }
    match front.nature {
        Nature::Repl(prompt) => at_a_repl(prompt, facts, screen, front),
        Nature::Shell => at_a_shell(facts, screen, front),
        _ => remote_or_other(evidence, facts, screen, front),
    }
}

fn at_a_repl(
    prompt: Prompt,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let (name, confidence) = (front.name, front.confidence());
    if let Some(answer) = question(screen, name, confidence) {
        return answer;
    }
    // A line read without a prompt before the cursor is `input()` of a script.
    if let Some(seen) = screen.repl() {
        let reason = format!("{name} waits at its prompt");
        return State::new(Status::Repl, repl_of(prompt, seen), confidence, reason);
    }
    if !facts.canonical && screen.prompt_like() {
        let reason = format!("{name} waits in its line editor");
        return State::new(Status::Repl, prompt, confidence, reason);
    }
    waiting_for_a_line(front, facts)
}

fn at_a_shell(facts: &KernelFacts, screen: &text::Screen<'_>, front: &Front<'_>) -> State {
    let (name, confidence) = (front.name, front.confidence());
    if !front.waits && !screen.prompt_like() {
        let reason = format!("{name} is in front, no prompt is seen");
        return State::new(Status::Running, Prompt::None, Confidence::Low, reason);
    }
    // A shell that reads lines without a prompt runs a script that asks something.
    if facts.canonical && facts.echo && !screen.prompt_like() {
        return question(screen, name, confidence)
            .unwrap_or_else(|| waiting_for_a_line(front, facts));
    }
    let reason = format!("{name} waits for a command");
    State::new(Status::Ready, Prompt::Shell, confidence, reason)
}

/// Programs that carry others (ssh, docker) and programs nobody knows: only the screen can say.
fn remote_or_other(
    evidence: &Evidence<'_>,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let name = front.name;
    let medium = Confidence::Medium;
    if let Some(answer) = question(screen, name, medium) {
        return answer;
    }
    if let Some(prompt) = screen.repl() {
        return State::new(
            Status::Repl,
            prompt,
            medium,
            format!("{name} shows a prompt"),
        );
    }
    if screen.pager() && !facts.canonical {
        return State::new(
            Status::Pager,
            Prompt::None,
            medium,
            format!("{name} shows a pager's line"),
        );
    }
    let remote = front.nature == Nature::Remote;
    if remote && (screen.prompt_like() || evidence.foreign_prompt) && evidence.quiet {
        return State::new(
            Status::Ready,
            Prompt::Shell,
            medium,
            format!("{name} shows a shell's prompt"),
        );
    }
    if remote {
        // It always waits for keys, whatever happens at the other end.
        return State::new(
            Status::Running,
            Prompt::None,
            Confidence::Low,
            format!("{name} shows no prompt"),
        );
    }
    if front.waits {
        return waiting_for_a_line(front, facts);
    }
    State::new(
        Status::Running,
        Prompt::None,
        Confidence::Low,
        format!("{name} is in front, no prompt is seen"),
    )
}

/// A program reads lines, and what for is not known.
fn waiting_for_a_line(front: &Front<'_>, facts: &KernelFacts) -> State {
    if !front.waits {
        return State::new(
            Status::Running,
            Prompt::None,
            Confidence::Low,
            format!("{} is in front, no prompt is seen", front.name),
        );
    }
    let what = if facts.canonical { "a line" } else { "keys" };
    State::new(
        Status::Unknown,
        Prompt::Unknown,
        Confidence::High,
        format!("{} waits for {what} of input", front.name),
    )
}

fn question(screen: &text::Screen<'_>, name: &str, confidence: Confidence) -> Option<State> {
    if screen.password() {
        return Some(State::new(
            Status::Password,
            Prompt::None,
            confidence,
            format!("{name} asks for a secret"),
        ));
    }
    screen.confirm().then(|| {
        State::new(
            Status::Confirm,
            Prompt::None,
            confidence,
            format!("{name} asks a question"),
        )
    })
}

/// The program in front knows its kind; the screen knows whether a debugger has taken over.
fn repl_of(program: Prompt, seen: Prompt) -> Prompt {
    match (program, seen) {
        (Prompt::Python | Prompt::Ipython, Prompt::Pdb | Prompt::Ipython | Prompt::Python) => seen,
        _ => program,
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
