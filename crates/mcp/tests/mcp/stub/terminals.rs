//! Terminals in memory.

use super::Stub;
use motu_core::lists::TerminalList;
use motu_core::terminal::*;
use motu_core::{Error, Result, verb};
use motu_testkit::answers;

fn terminal(name: &str, ended: bool) -> Result<Terminal> {
    let id = TerminalId::parse(name)?;
    Ok(match ended {
        true => Terminal {
            state: TerminalState::terminated(),
            alive: false,
            terminated: true,
            ..answers::terminal(&id)
        },
        false => answers::terminal(&id),
    })
}

fn answer(terminal: Terminal, output: &str) -> TerminalAnswer {
    let ended = terminal.terminated;
    TerminalAnswer {
        state: terminal.state,
        exit_code: (!ended).then_some(0),
        ..match ended {
            true => answers::answer(End::CommandEnded, ""),
            false => answers::answer(End::CommandEnded, &format!("{output}\n")),
        }
    }
}

impl Stub {
    fn found(&self, id: &TerminalId) -> Result<Terminal> {
        let all = self.terminals.lock().unwrap();
        match all.get(id.as_str()) {
            Some(ended) => terminal(id.as_str(), *ended),
            None => Err(Error::not_found("no such session")),
        }
    }

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
                terminal: terminal(&ask.session_id, ended)?,
            })
        });
        let all = self.terminals.clone();
        it.on(move |_: verb::ListTerminals| {
            let all = all.lock().unwrap();
            let all = all.iter().map(|(name, ended)| terminal(name, *ended));
            Ok(TerminalList::new(all.collect::<Result<_>>()?))
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
        let text = match format {
            ScreenFormat::Png => "iVBORw0KGgo=",
            _ => "$ \n\n",
        };
        Ok(TerminalScreen {
            state: self.found(id)?.state,
            ..answers::screen(format, text)
        })
    }
}
