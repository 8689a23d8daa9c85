//! A program that may be at a prompt: judged by its name, arguments, terminal settings and screen.

use super::programs::{self, Nature};
use super::{Confidence, Evidence, KernelFacts, Phase, Process, Prompt, State, Status, text};
use crate::integration;

pub(super) struct Front<'a> {
    pub process: &'a Process,
    pub nature: Nature,
    pub waits: bool,
}

impl Front<'_> {
    fn confidence(&self) -> Confidence {
        if self.waits {
            Confidence::High
        } else {
            Confidence::Medium
        }
    }

    fn name(&self) -> &str {
        &self.process.name
    }
}

pub(super) fn asking(
    evidence: &Evidence<'_>,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let (name, medium) = (front.name(), Confidence::Medium);
    let remote = front.nature == Nature::Remote;
    // A program that carries a terminal (ssh, tmux) may show a prompt on the alternate screen.
    let shown = remote && screen.prompt_like() && !screen.pager();
    if evidence.view.modes.alternate_screen && front.nature != Nature::Shell && !shown {
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
    // Who is not known to read may still be busy with what it was told.
    if !front.waits && evidence.unanswered {
        let reason = format!("{name} is in front and has printed nothing since a line was typed");
        return State::new(Status::Running, Prompt::None, Confidence::Low, reason);
    }
    match front.nature {
        Nature::Repl(prompt) => at_a_repl(prompt, facts, screen, front),
        Nature::Shell => at_a_shell(evidence, facts, screen, front),
        _ => remote_or_other(evidence, facts, screen, front),
    }
}

fn at_a_repl(
    prompt: Prompt,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let (name, confidence) = (front.name(), front.confidence());
    if let Some(answer) = question(screen, name, confidence) {
        return answer;
    }
    if let Some(seen) = screen.repl() {
        let reason = format!("{name} waits at its prompt");
        return State::new(Status::Repl, repl_of(prompt, seen), confidence, reason);
    }
    // An interpreter's prompt may be anything, unless it runs a script that asks.
    let own = front.waits
        && screen.has_text()
        && !screen.question_like()
        && !programs::runs_a_script(front.process);
    if own || (!facts.canonical && screen.prompt_like()) {
        let reason = format!("{name} waits in its line editor");
        return State::new(Status::Repl, prompt, confidence, reason);
    }
    waiting(front, facts, screen)
}

fn at_a_shell(
    evidence: &Evidence<'_>,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let (name, confidence) = (front.name(), front.confidence());
    if !front.waits && !screen.prompt_like() {
        let reason = format!("{name} is in front, no prompt is seen");
        return State::new(Status::Running, Prompt::None, Confidence::Low, reason);
    }
    let asks = question(screen, name, confidence);
    // Our own shell has begun a command (mark) and not ended it: whatever it shows, `read` or
    // `select` is reading. A shell that replaced it by exec was started without our integration.
    let ours = facts.shell_in_front
        && facts.carriers.is_empty()
        && evidence.phase == Phase::InCommand
        && integration::started(&front.process.argv);
    if ours || programs::runs_a_script(front.process) {
        return asks.unwrap_or_else(|| waiting(front, facts, screen));
    }
    // A shell with a line editor reads in canonical mode only for `read`; other shells always do.
    let edits = programs::edits_lines(front.process);
    let asked = !screen.prompt_like() && (screen.question_like() || asks.is_some());
    let reads = match facts.canonical && facts.echo {
        true => edits && !screen.prompt_like() || asked || !screen.has_text(),
        false => asked,
    };
    if reads {
        return asks.unwrap_or_else(|| waiting(front, facts, screen));
    }
    let reason = match facts.carriers.last() {
        Some(carrier) => format!("{name} waits for a command, inside {carrier}"),
        None => format!("{name} waits for a command"),
    };
    State::new(Status::Ready, Prompt::Shell, confidence, reason)
}

/// Programs that carry others (ssh, docker) and unknown ones: only the screen can tell.
fn remote_or_other(
    evidence: &Evidence<'_>,
    facts: &KernelFacts,
    screen: &text::Screen<'_>,
    front: &Front<'_>,
) -> State {
    let (name, medium) = (front.name(), Confidence::Medium);
    if let Some(answer) = question(screen, name, medium) {
        return answer;
    }
    let state = |status, prompt, confidence, reason: &str| {
        State::new(status, prompt, confidence, format!("{name} {reason}"))
    };
    if let Some(prompt) = screen.repl() {
        return state(Status::Repl, prompt, medium, "shows a prompt");
    }
    if screen.pager() && !facts.canonical {
        return state(Status::Pager, Prompt::None, medium, "shows a pager's line");
    }
    let remote = front.nature == Nature::Remote;
    if remote && (screen.prompt_like() || evidence.foreign_prompt) && evidence.quiet {
        return state(
            Status::Ready,
            Prompt::Shell,
            medium,
            "shows a shell's prompt",
        );
    }
    if remote {
        // It always waits for keys, whatever happens at the other end.
        return state(
            Status::Running,
            Prompt::None,
            Confidence::Low,
            "shows no prompt",
        );
    }
    waiting(front, facts, screen)
}

/// A program reads, and it shows no known kind of prompt.
fn waiting(front: &Front<'_>, facts: &KernelFacts, screen: &text::Screen<'_>) -> State {
    let name = front.name();
    if !front.waits {
        return State::new(
            Status::Running,
            Prompt::None,
            Confidence::Low,
            format!("{name} is in front, no prompt is seen"),
        );
    }
    let chooses = !facts.canonical && screen.menu();
    if (screen.has_text() || chooses) && !programs::is_filter(name) {
        let reason = format!("{name} asks and waits for the answer");
        return State::new(Status::Confirm, Prompt::None, Confidence::High, reason);
    }
    let what = if facts.canonical { "a line" } else { "keys" };
    State::new(
        Status::Unknown,
        Prompt::Unknown,
        Confidence::High,
        format!("{name} waits for {what} of input"),
    )
}

pub(super) fn question(
    screen: &text::Screen<'_>,
    name: &str,
    confidence: Confidence,
) -> Option<State> {
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

/// The kind of prompt by the foreground program, unless the screen shows a debugger's prompt, or
/// the program's own.
fn repl_of(program: Prompt, seen: Prompt) -> Prompt {
    use Prompt::{Ipython, Other, Pdb, Python};
    match (program, seen) {
        (Python | Ipython | Pdb, Pdb | Ipython | Python | Other) => seen,
        _ => program,
    }
}
