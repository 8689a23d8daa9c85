//! Terminals in memory: every verb notes what reached it and answers with something to compare.
//!
//! `missing` is not there, `over` was terminated. The command lines `sudo`, `python`, `top`, `slow`,
//! `long`, `exit` and `wait` show the ways a run can come back.

use super::workspaces::shell;
use super::{OnDrop, Stub, started};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use motu_core::exec::*;
use motu_core::files::ByteStream;
use motu_core::hint;
use motu_core::lists::{ShellList, TerminalList};
use motu_core::terminal::*;
use motu_core::workspace::{
    AttachShell, OpenShell, ReadShell, Shell, ShellOutput, SignalShell, WorkspaceId, WriteShell,
};
use motu_core::{Error, Isolation, Program, Result, SandboxId};

/// A recording of 0.3 seconds.
pub const CAST: &str = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24},\"timestamp\":1700000000}\n\
    [0.1, \"o\", \"$ make\\r\\n\"]\n[0.1, \"o\", \"\\u001b[32mdone\\u001b[0m\\r\\n\"]\n[0.1, \"x\", \"0\"]\n";

fn moment() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000).unwrap()
}

pub fn ready() -> TerminalState {
    TerminalState {
        status: Status::Ready,
        prompt: Prompt::Shell,
        state_reason: "the shell has drawn its prompt".to_string(),
        confidence: Confidence::Certain,
    }
}

pub fn terminal(id: &TerminalId) -> Terminal {
    let over = id.as_str() == "over";
    Terminal {
        session_id: id.to_string(),
        state: match over {
            true => TerminalState::terminated(),
            false => ready(),
        },
        alive: !over,
        terminated: over,
        exit_code: over.then_some(137),
        sandbox_id: SandboxId::parse("terminals").unwrap(),
        runtime: "stub".to_string(),
        isolation: Isolation::None,
        command: vec!["bash".to_string()],
        cwd: Some("/workspace".to_string()),
        pid: Some(42),
        foreground: Some("bash".to_string()),
        cols: 80,
        rows: 24,
        title: Some("a \u{1b}title".to_string()),
        started_at: moment(),
        last_activity_at: moment(),
        description: Some("the build".to_string()),
        prompt_regex: None,
        quiescence_ms: 100,
        cursor: 12,
    }
}

pub fn answer(end: End, output: &str) -> TerminalAnswer {
    TerminalAnswer {
        state: ready(),
        end,
        output: output.to_string(),
        timed_out: end == End::TimedOut,
        output_truncated: false,
        dropped_bytes: 0,
        rest_from: None,
        rest_to: None,
        exit_code: None,
        duration_ms: 3,
        cwd: Some("/workspace".to_string()),
        found: None,
        cursor: 99,
        warnings: Vec::new(),
    }
}

fn in_state(mut answer: TerminalAnswer, status: Status, prompt: Prompt) -> TerminalAnswer {
    answer.state = TerminalState {
        status,
        prompt,
        state_reason: "the stub says so".to_string(),
        confidence: Confidence::High,
    };
    answer
}

impl Stub {
    /// Notes a verb about a session that must be there.
    fn seen(
        &self,
        verb: &'static str,
        id: &TerminalId,
        arguments: impl serde::Serialize,
    ) -> Result<()> {
        self.note(verb, (id, arguments));
        match id.as_str() {
            "missing" => Err(Error::not_found("there is no session \"missing\"")
                .hint(hint![hint::verb("list_terminals"), " shows them"])),
            _ => Ok(()),
        }
    }

    async fn run_line(&self, line: &str) -> TerminalAnswer {
        let ended = |output, code| TerminalAnswer {
            exit_code: Some(code),
            ..answer(End::CommandEnded, output)
        };
        match line {
            "sudo" => {
                let asked = answer(End::WaitsForInput, "[sudo] password: ");
                in_state(asked, Status::Password, Prompt::None)
            }
            "python" => {
                let asked = answer(End::WaitsForInput, ">>> ");
                in_state(asked, Status::Repl, Prompt::Python)
            }
            "slow" => in_state(
                answer(End::TimedOut, "so far\n"),
                Status::Running,
                Prompt::None,
            ),
            "long" => TerminalAnswer {
                output_truncated: true,
                dropped_bytes: 90,
                rest_from: Some(10),
                rest_to: Some(100),
                warnings: vec!["mind the gap".to_string()],
                ..ended("head\n[...]\ntail\n", 0)
            },
            "exit" => {
                let gone = in_state(answer(End::SessionEnded, ""), Status::Eof, Prompt::None);
                TerminalAnswer {
                    exit_code: Some(4),
                    ..gone
                }
            }
            "wait" => {
                let _guard = OnDrop(self.killed.clone(), false);
                futures_util::future::pending().await
            }
            line => ended(&format!("{line}\n"), i32::from(line.starts_with("false"))),
        }
    }
}

#[async_trait]
impl Terminals for Stub {
    async fn open_terminal(&self, request: OpenTerminal) -> Result<TerminalOpened> {
        self.note("open_terminal", &request);
        let id = TerminalId::parse(&request.session_id)?;
        Ok(TerminalOpened {
            created: id.as_str() != "old",
            terminal: terminal(&id),
        })
    }
    async fn list_terminals(&self, _: motu_core::Page) -> Result<TerminalList> {
        self.note("list_terminals", ());
        let one = |name| TerminalId::parse(name).map(|id| terminal(&id));
        Ok(TerminalList::new(vec![one("db shell")?, one("over")?]))
    }
    async fn get_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.seen("get_terminal", id, ())?;
        Ok(terminal(id))
    }
    async fn configure_terminal(
        &self,
        id: &TerminalId,
        change: ConfigureTerminal,
    ) -> Result<Terminal> {
        self.seen("configure_terminal", id, &change)?;
        Ok(terminal(id))
    }
    async fn terminate_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.seen("terminate_terminal", id, ())?;
        let mut terminal = terminal(id);
        terminal.state = TerminalState::terminated();
        Ok(terminal)
    }
    async fn run_in_terminal(&self, id: &TerminalId, run: RunInTerminal) -> Result<TerminalAnswer> {
        self.seen("run_in_terminal", id, &run)?;
        if id.as_str() == "over" {
            let mut over = answer(End::SessionEnded, "");
            over.state = TerminalState::terminated();
            return Ok(over);
        }
        Ok(self.run_line(&run.command).await)
    }
    async fn send_to_terminal(
        &self,
        id: &TerminalId,
        send: SendToTerminal,
    ) -> Result<TerminalAnswer> {
        self.seen("send_to_terminal", id, &send)?;
        Ok(answer(End::Quiet, "typed\n"))
    }
    async fn send_terminal_password(
        &self,
        id: &TerminalId,
        password: TerminalPassword,
    ) -> Result<TerminalAnswer> {
        self.seen("send_terminal_password", id, &password)?;
        match password.password.as_str() {
            "shown" => Err(Error::conflict("the terminal would show it")
                .hint("wait for the question, or force it")),
            _ => Ok(answer(End::WaitsForInput, "welcome\n")),
        }
    }
    async fn signal_terminal(
        &self,
        id: &TerminalId,
        signal: SignalTerminal,
    ) -> Result<TerminalAnswer> {
        self.seen("signal_terminal", id, &signal)?;
        Ok(answer(End::Quiet, "Terminated\n"))
    }
    async fn poll_terminal(&self, id: &TerminalId, poll: PollTerminal) -> Result<TerminalAnswer> {
        self.seen("poll_terminal", id, poll)?;
        Ok(answer(End::TimedOut, ""))
    }
    async fn expect_in_terminal(
        &self,
        id: &TerminalId,
        expect: ExpectInTerminal,
    ) -> Result<TerminalAnswer> {
        self.seen("expect_in_terminal", id, &expect)?;
        let found = |index: usize| TerminalMatch {
            index,
            text: "listening on 80".to_string(),
            groups: vec![Some("80".to_string()), None],
            before: "starting\n".to_string(),
            next_cursor: "c-1-7".to_string(),
        };
        match expect.patterns.iter().position(|one| one != "never") {
            Some(index) => Ok(TerminalAnswer {
                found: Some(found(index)),
                ..answer(End::Matched, "starting\nlistening on 80")
            }),
            None => Ok(answer(End::TimedOut, "starting\n")),
        }
    }
    async fn expect_terminal_prompt(&self, id: &TerminalId, wait: Wait) -> Result<TerminalAnswer> {
        self.seen("expect_terminal_prompt", id, wait)?;
        Ok(answer(End::WaitsForInput, "Last login: today\n"))
    }
    async fn terminal_screen(&self, id: &TerminalId, ask: ReadScreen) -> Result<TerminalScreen> {
        let format = ask.format;
        self.seen("terminal_screen", id, format)?;
        let screen = match format {
            ScreenFormat::Text => "$ make\ndone\n$",
            ScreenFormat::Ansi => "$ make\n\u{1b}[32mdone\u{1b}[0m\n$",
            ScreenFormat::Html => "<pre>$ make</pre>\n",
            ScreenFormat::Svg => "<svg/>\n",
            // The first bytes of every picture of this kind.
            ScreenFormat::Png => "iVBORw0KGgo=",
        };
        Ok(TerminalScreen {
            state: ready(),
            format,
            screen: screen.to_string(),
            cursor_x: 2,
            cursor_y: 2,
            cursor_visible: true,
            cols: 80,
            rows: 24,
            title: None,
            modes: Modes::default(),
            vt100_ok: true,
            scrollback_rows: 7,
            cursor: 12,
            hint: None,
        })
    }
    async fn terminal_scrollback(
        &self,
        id: &TerminalId,
        ask: ReadScrollback,
    ) -> Result<TerminalScrollback> {
        let (lines, strip_ansi) = (ask.lines, ask.strip_ansi);
        self.seen("terminal_scrollback", id, (lines, strip_ansi))?;
        Ok(TerminalScrollback {
            state: ready(),
            scrollback: "older\nnewer\n".to_string(),
            lines: 2,
            total_lines: 9,
            cols: 80,
            rows: 24,
        })
    }
    async fn clear_terminal_scrollback(&self, id: &TerminalId) -> Result<Terminal> {
        self.seen("clear_terminal_scrollback", id, ())?;
        Ok(terminal(id))
    }
    async fn terminal_transcript(
        &self,
        id: &TerminalId,
        read: ReadTranscript,
    ) -> Result<TerminalTranscript> {
        self.seen("terminal_transcript", id, read)?;
        let directory = self.directory.lock().unwrap().clone();
        Ok(TerminalTranscript {
            state: ready(),
            transcript: Some(format!("{directory}/0.raw")),
            recording: format!("{directory}/session.cast"),
            interactions: format!("{directory}/log"),
            directory,
            text: "$ make\ndone\n".to_string(),
            from: read.from.unwrap_or(3),
            next_cursor: 15,
            oldest: 3,
            end: 20,
        })
    }
    async fn terminal_recording(&self, id: &TerminalId) -> Result<ByteStream> {
        self.seen("terminal_recording", id, ())?;
        let pieces = [&CAST[..50], &CAST[50..]];
        let pieces = pieces.map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        Ok(stream::iter(pieces).boxed())
    }
    async fn attach_terminal(&self, id: &TerminalId, ask: TakeSeat) -> Result<ExecSession> {
        let seat = ask.seat()?;
        self.seen("attach_terminal", id, seat)?;
        let request = ExecRequest::from(Program::argv(["cat"]));
        let screen = ExecEvent::Stdout("the screen\r\n".into());
        self.start(&request, vec![started(), screen])
    }
    async fn open_shell(&self, id: &WorkspaceId, request: OpenShell) -> Result<Shell> {
        self.note("open_shell", (id, &request));
        Ok(shell(id, "sh-1"))
    }
    async fn list_shells(&self, id: &WorkspaceId) -> Result<ShellList> {
        self.note("list_shells", id);
        Ok(ShellList::new(id.clone(), vec![shell(id, "sh-1")]))
    }
    async fn read_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: ReadShell,
    ) -> Result<ShellOutput> {
        self.note("read_shell", (id, shell, request));
        Ok(ShellOutput {
            workspace_id: id.clone(),
            shell_id: shell.to_string(),
            state: "running".to_string(),
            cursor: request.cursor,
            next_cursor: request.cursor + 4,
            output: "\u{1b}[1m$ ".to_string(),
            truncated: false,
            lost: true,
            plain: request.plain,
        })
    }
    async fn write_shell(
        &self,
        id: &WorkspaceId,
        shell_id: &str,
        request: WriteShell,
    ) -> Result<Shell> {
        self.note("write_shell", (id, shell_id, &request));
        Ok(shell(id, shell_id))
    }
    async fn signal_shell(
        &self,
        id: &WorkspaceId,
        shell_id: &str,
        ask: SignalShell,
    ) -> Result<Shell> {
        let signal = ask.signal;
        self.note("signal_shell", (id, shell_id, signal));
        Ok(shell(id, shell_id))
    }
    async fn resize_shell(&self, id: &WorkspaceId, shell_id: &str, size: TtySize) -> Result<Shell> {
        self.note("resize_shell", (id, shell_id, size));
        Ok(shell(id, shell_id))
    }
    async fn attach_shell(
        &self,
        id: &WorkspaceId,
        shell_id: &str,
        ask: AttachShell,
    ) -> Result<ExecSession> {
        let size = TtySize::from(ask);
        self.note("attach_shell", (id, shell_id, size));
        let request = ExecRequest::from(Program::argv(["cat"]));
        let screen = ExecEvent::Stdout("the screen\r\n".into());
        self.start(&request, vec![started(), screen])
    }
    async fn close_shell(&self, id: &WorkspaceId, shell_id: &str) -> Result<Shell> {
        self.note("close_shell", (id, shell_id));
        Ok(shell(id, shell_id))
    }
}
