//! Common steps of the terminal checks.

use crate::life::Life;
use motu_core::SandboxId;
use motu_core::sandbox::Sandbox;
use motu_core::terminal::*;
use std::path::Path;

pub(super) const PASSWORD: &str = "Tr0ub4dor-and-3";

pub(super) fn id(name: &str) -> TerminalId {
    TerminalId::parse(name).expect("a session's name")
}

pub(super) fn within(seconds: f64) -> Wait {
    Wait {
        timeout: Some(seconds),
        ..Wait::default()
    }
}

pub(super) fn request(name: &str, place: &SandboxId) -> OpenTerminal {
    OpenTerminal {
        session_id: name.to_string(),
        sandbox_id: Some(place.clone()),
        ..OpenTerminal::default()
    }
}

/// A session with a shell that has drawn its prompt.
pub(super) async fn open(life: &Life, name: &str) -> (Sandbox, TerminalId) {
    let sandbox = life.create().await;
    open_in(life, name, &sandbox.sandbox_id).await;
    (sandbox, id(name))
}

pub(super) async fn open_in(life: &Life, name: &str, place: &SandboxId) {
    let opened = life.engine.open_terminal(request(name, place)).await;
    let opened = opened.expect("a session is opened");
    assert!(opened.created);
    let session = id(name);
    let ready = life.engine.expect_terminal_prompt(&session, within(20.0));
    let ready = ready.await.expect("a prompt is waited for");
    assert_eq!(ready.state.status, Status::Ready, "{ready:?}");
}

pub(super) async fn run(life: &Life, session: &TerminalId, command: &str) -> TerminalAnswer {
    run_within(life, session, command, 20.0).await
}

pub(super) async fn run_within(
    life: &Life,
    session: &TerminalId,
    command: &str,
    seconds: f64,
) -> TerminalAnswer {
    let run = RunInTerminal {
        command: command.to_string(),
        wait: within(seconds),
        ..RunInTerminal::default()
    };
    let answer = life.engine.run_in_terminal(session, run).await;
    answer.unwrap_or_else(|error| panic!("{command}: {error:?}"))
}

pub(super) fn text(text: &str) -> SendToTerminal {
    SendToTerminal {
        text: Some(text.to_string()),
        wait: within(10.0),
        ..SendToTerminal::default()
    }
}

pub(super) async fn send(
    life: &Life,
    session: &TerminalId,
    send: SendToTerminal,
) -> TerminalAnswer {
    let answer = life.engine.send_to_terminal(session, send).await;
    answer.expect("something is typed")
}

pub(super) async fn screen(life: &Life, session: &TerminalId) -> TerminalScreen {
    let screen = life
        .engine
        .terminal_screen(session, ScreenFormat::Text.into());
    screen.await.expect("a screen")
}

/// Whether the kernel tells the foreground process of a terminal; gVisor's does not, and E2B's
/// agent does not ask.
pub(super) fn tells(life: &Life) -> bool {
    !matches!(life.subject.name, "gvisor" | "e2b")
}

/// Finds a text in files below a directory, without the disks of machines.
pub(super) fn is_below(dir: &Path, text: &str) -> Option<String> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        let kind = entry.file_type().ok()?;
        let disk = entry.metadata().is_ok_and(|found| found.len() > 64 << 20);
        if disk || entry.file_name() == "machines" || entry.file_name() == "environments" {
            continue;
        }
        if kind.is_dir() {
            if let Some(found) = is_below(&path, text) {
                return Some(found);
            }
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let text = text.as_bytes();
            if bytes.windows(text.len()).any(|window| window == text) {
                return Some(path.display().to_string());
            }
        }
    }
    None
}
