//! The verbs of terminals: the third part of the one list.

use super::*;
use crate::Result;
use crate::exec::ExecSession;
use crate::files::ByteStream;
use async_trait::async_trait;

/// A session that was terminated answers with status `terminated`; an unknown one is `not_found`.
#[async_trait]
pub trait Terminals: Send + Sync + 'static {
    // ── life ────────────────────────────────────────────────────────────
    /// Opens a session, or finds the one with this name and configures it.
    async fn open_terminal(&self, request: OpenTerminal) -> Result<TerminalOpened>;
    /// Living ones first, the most recently active first among them.
    async fn list_terminals(&self) -> Result<Vec<Terminal>>;
    async fn get_terminal(&self, id: &TerminalId) -> Result<Terminal>;
    async fn configure_terminal(
        &self,
        id: &TerminalId,
        change: ConfigureTerminal,
    ) -> Result<Terminal>;
    /// Ends the shell and everything on its terminal. Final: the name is not used again, its
    /// transcript stays.
    async fn terminate_terminal(&self, id: &TerminalId) -> Result<Terminal>;

    // ── typing and waiting ──────────────────────────────────────────────
    async fn run_in_terminal(&self, id: &TerminalId, run: RunInTerminal) -> Result<TerminalAnswer>;
    async fn send_to_terminal(
        &self,
        id: &TerminalId,
        send: SendToTerminal,
    ) -> Result<TerminalAnswer>;
    async fn send_terminal_password(
        &self,
        id: &TerminalId,
        password: TerminalPassword,
    ) -> Result<TerminalAnswer>;
    async fn signal_terminal(
        &self,
        id: &TerminalId,
        signal: SignalTerminal,
    ) -> Result<TerminalAnswer>;
    async fn poll_terminal(&self, id: &TerminalId, poll: PollTerminal) -> Result<TerminalAnswer>;
    async fn expect_in_terminal(
        &self,
        id: &TerminalId,
        expect: ExpectInTerminal,
    ) -> Result<TerminalAnswer>;
    /// Until a shell waits for a command; default 30 s.
    async fn expect_terminal_prompt(&self, id: &TerminalId, wait: Wait) -> Result<TerminalAnswer>;

    // ── looking ─────────────────────────────────────────────────────────
    async fn terminal_screen(
        &self,
        id: &TerminalId,
        format: ScreenFormat,
    ) -> Result<TerminalScreen>;
    /// The last `lines` rows (0: all), with escapes for colours unless `strip_ansi`.
    async fn terminal_scrollback(
        &self,
        id: &TerminalId,
        lines: u64,
        strip_ansi: bool,
    ) -> Result<TerminalScrollback>;
    async fn clear_terminal_scrollback(&self, id: &TerminalId) -> Result<Terminal>;
    async fn terminal_transcript(
        &self,
        id: &TerminalId,
        read: ReadTranscript,
    ) -> Result<TerminalTranscript>;
    /// The asciicast v3 file as it is now.
    async fn terminal_recording(&self, id: &TerminalId) -> Result<ByteStream>;
    /// Live, with the screen as it is now first. Leaving does not end the session; whoever only
    /// watches has no say in its size, and their input is refused.
    async fn attach_terminal(&self, id: &TerminalId, seat: Seat) -> Result<ExecSession>;
}
