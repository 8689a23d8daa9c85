//! The verbs of terminals.

use super::Stub;
use async_trait::async_trait;
use motu_core::exec::ExecSession;
use motu_core::files::ByteStream;
use motu_core::terminal::*;
use motu_core::{Error, Result};

fn not_yet() -> Error {
    Error::unsupported("terminals are not in this build")
}

#[async_trait]
impl Terminals for Stub {
    async fn open_terminal(&self, _request: OpenTerminal) -> Result<TerminalOpened> {
        Err(not_yet())
    }
    async fn list_terminals(&self) -> Result<Vec<Terminal>> {
        Err(not_yet())
    }
    async fn get_terminal(&self, _id: &TerminalId) -> Result<Terminal> {
        Err(not_yet())
    }
    async fn configure_terminal(
        &self,
        _id: &TerminalId,
        _change: ConfigureTerminal,
    ) -> Result<Terminal> {
        Err(not_yet())
    }
    async fn terminate_terminal(&self, _id: &TerminalId) -> Result<Terminal> {
        Err(not_yet())
    }
    async fn run_in_terminal(
        &self,
        _id: &TerminalId,
        _run: RunInTerminal,
    ) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn send_to_terminal(
        &self,
        _id: &TerminalId,
        _send: SendToTerminal,
    ) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn send_terminal_password(
        &self,
        _id: &TerminalId,
        _password: TerminalPassword,
    ) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn signal_terminal(
        &self,
        _id: &TerminalId,
        _signal: SignalTerminal,
    ) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn poll_terminal(&self, _id: &TerminalId, _poll: PollTerminal) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn expect_in_terminal(
        &self,
        _id: &TerminalId,
        _expect: ExpectInTerminal,
    ) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn expect_terminal_prompt(
        &self,
        _id: &TerminalId,
        _wait: Wait,
    ) -> Result<TerminalAnswer> {
        Err(not_yet())
    }
    async fn terminal_screen(
        &self,
        _id: &TerminalId,
        _format: ScreenFormat,
    ) -> Result<TerminalScreen> {
        Err(not_yet())
    }
    async fn terminal_scrollback(
        &self,
        _id: &TerminalId,
        _lines: u64,
        _strip_ansi: bool,
    ) -> Result<TerminalScrollback> {
        Err(not_yet())
    }
    async fn clear_terminal_scrollback(&self, _id: &TerminalId) -> Result<Terminal> {
        Err(not_yet())
    }
    async fn terminal_transcript(
        &self,
        _id: &TerminalId,
        _read: ReadTranscript,
    ) -> Result<TerminalTranscript> {
        Err(not_yet())
    }
    async fn terminal_recording(&self, _id: &TerminalId) -> Result<ByteStream> {
        Err(not_yet())
    }
    async fn attach_terminal(&self, _id: &TerminalId, _seat: Seat) -> Result<ExecSession> {
        Err(not_yet())
    }
}
