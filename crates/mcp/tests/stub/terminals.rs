//! Terminals in memory.

use super::{Stub, moment};
use motu_core::lists::TerminalList;
use motu_core::terminal::*;
use motu_core::{Error, Isolation, Result, SandboxId, verb};

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

impl Stub {
    pub(super) fn tell_terminals(&self) {
        self.tell_life();
        self.tell_typing();
        let stub = self.clone();
        self.recorder
            .on(move |call: verb::TerminalScreen| stub.screen(&call.terminal, call.ask.format));
    }

    fn tell_life(&self) {
        let it = &self.recorder;
        let all = self.terminals.clone();
        it.on(move |verb::OpenTerminal { ask }| {
            let mut all = all.lock().unwrap();
            let ended = all.get(&ask.session_id) == Some(&true);
            let created = !ended && all.insert(ask.session_id.clone(), false).is_none();
            Ok(TerminalOpened {
                created,
                terminal: terminal(&ask.session_id, ended),
            })
        });
        let all = self.terminals.clone();
        it.on(move |_: verb::ListTerminals| {
            let all = all.lock().unwrap();
            let all = all.iter().map(|(name, ended)| terminal(name, *ended));
            Ok(TerminalList::new(all.collect()))
        });
        let stub = self.clone();
        it.on(move |call: verb::GetTerminal| stub.found(&call.terminal));
        let stub = self.clone();
        it.on(move |call: verb::Configure| {
            let mut terminal = stub.found(&call.terminal)?;
            terminal.description = call.ask.description;
            terminal.prompt_regex = call.ask.prompt_regex;
            Ok(terminal)
        });
        let stub = self.clone();
        it.on(move |call: verb::TerminateTerminal| {
            stub.found(&call.terminal)?;
            let name = call.terminal.to_string();
            stub.terminals.lock().unwrap().insert(name, true);
            stub.found(&call.terminal)
        });
    }

    fn tell_typing(&self) {
        let it = &self.recorder;
        let stub = self.clone();
        it.on_with(move |call: verb::RunInTerminal, ()| {
            let terminal = stub.found(&call.terminal);
            async move {
                let terminal = terminal?;
                if call.ask.command == "sleep" {
                    std::future::pending::<()>().await;
                }
                Ok(answer(terminal, &call.ask.command))
            }
        });
        let stub = self.clone();
        it.on(move |call: verb::SendToTerminal| {
            if call.ask.control.as_deref() == Some("c") {
                stub.interrupted.notify_one();
            }
            Ok(answer(stub.found(&call.terminal)?, "typed"))
        });
        let stub = self.clone();
        it.on(move |call: verb::ExpectInTerminal| {
            let mut answer = answer(stub.found(&call.terminal)?, "");
            answer.found = Some(TerminalMatch {
                index: 0,
                text: "port 80".to_string(),
                groups: vec![Some("80".to_string()), None],
                before: "listening on ".to_string(),
                next_cursor: "20".to_string(),
            });
            Ok(answer)
        });
    }

    fn screen(&self, id: &TerminalId, format: ScreenFormat) -> Result<TerminalScreen> {
        Ok(TerminalScreen {
            state: self.found(id)?.state,
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
            hint: None,
        })
    }
}
