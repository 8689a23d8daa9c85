//! Terminals in memory.

use super::{Stub, moment, not_stubbed};
use async_trait::async_trait;
use motu_core::exec::ExecSession;
use motu_core::files::ByteStream;
use motu_core::terminal::*;
use motu_core::{Error, Isolation, Result, SandboxId};

fn state(ended: bool) -> TerminalState {
    match ended {
        true => TerminalState::terminated(),
        false => State::new(Status::Ready, Prompt::Shell, Confidence::Certain, "marks").into(),
    }
}

fn terminal(name: &str, ended: bool) -> Terminal {
    Terminal {
        session_id: name.to_string(),
        state: state(ended),
        alive: !ended,
        terminated: ended,
        exit_code: None,
        sandbox_id: SandboxId::parse(DEFAULT_PLACE).unwrap(),
        runtime: "stub".to_string(),
        isolation: Isolation::Container,
        command: vec!["bash".to_string()],
        cwd: Some("/workspace".to_string()),
        pid: Some(7),
        foreground: Some("bash".to_string()),
        cols: 80,
        rows: 24,
        title: None,
        started_at: moment(),
        last_activity_at: moment(),
        description: None,
        prompt_regex: None,
        quiescence_ms: 100,
        cursor: 0,
    }
}

fn answer(terminal: Terminal, output: &str) -> TerminalAnswer {
    TerminalAnswer {
        end: End::CommandEnded,
        output: match terminal.terminated {
            true => String::new(),
            false => format!("{output}\n"),
        },
        state: terminal.state,
        timed_out: false,
        output_truncated: false,
        dropped_bytes: 0,
        rest_from: None,
        rest_to: None,
        exit_code: (!terminal.terminated).then_some(0),
        duration_ms: 3,
        cwd: Some("/workspace".to_string()),
        found: None,
        cursor: 9,
        warnings: Vec::new(),
    }
}

impl Stub {
    fn found(&self, id: &TerminalId) -> Result<Terminal> {
        let all = self.terminals.lock().unwrap();
        match all.get(id.as_str()) {
            Some(ended) => Ok(terminal(id.as_str(), *ended)),
            None => Err(Error::not_found("no such session")),
        }
    }
}

#[async_trait]
impl Terminals for Stub {
    async fn open_terminal(&self, request: OpenTerminal) -> Result<TerminalOpened> {
        self.note("open_terminal", &request);
        let mut all = self.terminals.lock().unwrap();
        if all.get(&request.session_id) == Some(&true) {
            return Ok(TerminalOpened {
                created: false,
                terminal: terminal(&request.session_id, true),
            });
        }
        let created = all.insert(request.session_id.clone(), false).is_none();
        Ok(TerminalOpened {
            created,
            terminal: terminal(&request.session_id, false),
        })
    }
    async fn list_terminals(&self) -> Result<Vec<Terminal>> {
        let all = self.terminals.lock().unwrap();
        Ok(all
            .iter()
            .map(|(name, ended)| terminal(name, *ended))
            .collect())
    }
    async fn get_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.found(id)
    }
    async fn configure_terminal(
        &self,
        id: &TerminalId,
        change: ConfigureTerminal,
    ) -> Result<Terminal> {
        self.note("configure_terminal", &change);
        let mut terminal = self.found(id)?;
        terminal.description = change.description;
        terminal.prompt_regex = change.prompt_regex;
        Ok(terminal)
    }
    async fn terminate_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.note("terminate_terminal", id);
        self.found(id)?;
        self.terminals.lock().unwrap().insert(id.to_string(), true);
        self.found(id)
    }
    async fn run_in_terminal(&self, id: &TerminalId, run: RunInTerminal) -> Result<TerminalAnswer> {
        let terminal = self.found(id)?;
        if run.command == "sleep" {
            std::future::pending::<()>().await;
        }
        Ok(answer(terminal, &run.command))
    }
    async fn send_to_terminal(
        &self,
        id: &TerminalId,
        send: SendToTerminal,
    ) -> Result<TerminalAnswer> {
        self.note("send_to_terminal", &send);
        if send.control.as_deref() == Some("c") {
            self.interrupted.notify_one();
        }
        Ok(answer(self.found(id)?, "typed"))
    }
    async fn send_terminal_password(
        &self,
        _: &TerminalId,
        _: TerminalPassword,
    ) -> Result<TerminalAnswer> {
        Err(not_stubbed())
    }
    async fn signal_terminal(&self, _: &TerminalId, _: SignalTerminal) -> Result<TerminalAnswer> {
        Err(not_stubbed())
    }
    async fn poll_terminal(&self, _: &TerminalId, _: PollTerminal) -> Result<TerminalAnswer> {
        Err(not_stubbed())
    }
    async fn expect_in_terminal(
        &self,
        id: &TerminalId,
        expect: ExpectInTerminal,
    ) -> Result<TerminalAnswer> {
        self.note("expect_in_terminal", &expect);
        let mut answer = answer(self.found(id)?, "");
        answer.found = Some(TerminalMatch {
            index: 0,
            text: "port 80".to_string(),
            groups: vec![Some("80".to_string()), None],
            before: "listening on ".to_string(),
            next_cursor: "20".to_string(),
        });
        Ok(answer)
    }
    async fn expect_terminal_prompt(&self, _: &TerminalId, _: Wait) -> Result<TerminalAnswer> {
        Err(not_stubbed())
    }
    async fn terminal_screen(&self, id: &TerminalId, ask: ReadScreen) -> Result<TerminalScreen> {
        let format = ask.format;
        let terminal = self.found(id)?;
        Ok(TerminalScreen {
            state: terminal.state,
            format,
            screen: match format {
                ScreenFormat::Png => "iVBORw0KGgo=".to_string(),
                _ => "$ \n\n".to_string(),
            },
            cursor_x: 2,
            cursor_y: 0,
            cursor_visible: true,
            cols: 80,
            rows: 24,
            title: None,
            modes: Modes::default(),
            vt100_ok: true,
            scrollback_rows: 0,
            cursor: 2,
        })
    }
    async fn terminal_scrollback(
        &self,
        _: &TerminalId,
        _: ReadScrollback,
    ) -> Result<TerminalScrollback> {
        Err(not_stubbed())
    }
    async fn clear_terminal_scrollback(&self, _: &TerminalId) -> Result<Terminal> {
        Err(not_stubbed())
    }
    async fn terminal_transcript(
        &self,
        _: &TerminalId,
        _: ReadTranscript,
    ) -> Result<TerminalTranscript> {
        Err(not_stubbed())
    }
    async fn terminal_recording(&self, _: &TerminalId) -> Result<ByteStream> {
        Err(not_stubbed())
    }
    async fn attach_terminal(&self, _: &TerminalId, _: TakeSeat) -> Result<ExecSession> {
        Err(not_stubbed())
    }
}
