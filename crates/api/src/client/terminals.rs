//! The verbs of terminals, sent over the wire: one request each.

use super::remote::SEGMENT;
use super::{Call, Client};
use crate::wire::{ScreenQuery, ScrollbackQuery, SeatQuery, TranscriptQuery};
use async_trait::async_trait;
use http::Method;
use motu_core::Result;
use motu_core::exec::ExecSession;
use motu_core::files::ByteStream;
use motu_core::terminal::*;
use percent_encoding::utf8_percent_encode;

fn terminal(id: &TerminalId, rest: &str) -> String {
    let id = utf8_percent_encode(id.as_str(), SEGMENT);
    format!("/v1/terminals/{id}{rest}")
}

#[async_trait]
impl Terminals for Client {
    async fn open_terminal(&self, request: OpenTerminal) -> Result<TerminalOpened> {
        self.fetch(Call::post("/v1/terminals").json(&request)).await
    }

    async fn list_terminals(&self) -> Result<Vec<Terminal>> {
        self.fetch(Call::get("/v1/terminals")).await
    }

    async fn get_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.fetch(Call::get(terminal(id, ""))).await
    }

    async fn configure_terminal(
        &self,
        id: &TerminalId,
        change: ConfigureTerminal,
    ) -> Result<Terminal> {
        self.fetch(Call::new(Method::PATCH, terminal(id, "")).json(&change))
            .await
    }

    async fn terminate_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.fetch(Call::new(Method::DELETE, terminal(id, "")))
            .await
    }

    async fn run_in_terminal(&self, id: &TerminalId, run: RunInTerminal) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/run")).json(&run))
            .await
    }

    async fn send_to_terminal(
        &self,
        id: &TerminalId,
        send: SendToTerminal,
    ) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/input")).json(&send))
            .await
    }

    async fn send_terminal_password(
        &self,
        id: &TerminalId,
        password: TerminalPassword,
    ) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/password")).json(&password))
            .await
    }

    async fn signal_terminal(
        &self,
        id: &TerminalId,
        signal: SignalTerminal,
    ) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/signal")).json(&signal))
            .await
    }

    async fn poll_terminal(&self, id: &TerminalId, poll: PollTerminal) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/poll")).json(&poll))
            .await
    }

    async fn expect_in_terminal(
        &self,
        id: &TerminalId,
        expect: ExpectInTerminal,
    ) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/expect")).json(&expect))
            .await
    }

    async fn expect_terminal_prompt(&self, id: &TerminalId, wait: Wait) -> Result<TerminalAnswer> {
        self.fetch(Call::post(terminal(id, "/expect-prompt")).json(&wait))
            .await
    }

    async fn terminal_screen(
        &self,
        id: &TerminalId,
        format: ScreenFormat,
    ) -> Result<TerminalScreen> {
        let query = ScreenQuery::from(format);
        self.fetch(Call::get(terminal(id, "/screen")).query(&query)?)
            .await
    }

    async fn terminal_scrollback(
        &self,
        id: &TerminalId,
        lines: u64,
        strip_ansi: bool,
    ) -> Result<TerminalScrollback> {
        let query = ScrollbackQuery {
            lines: Some(lines),
            strip_ansi: Some(strip_ansi),
        };
        self.fetch(Call::get(terminal(id, "/scrollback")).query(&query)?)
            .await
    }

    async fn clear_terminal_scrollback(&self, id: &TerminalId) -> Result<Terminal> {
        self.fetch(Call::new(Method::DELETE, terminal(id, "/scrollback")))
            .await
    }

    async fn terminal_transcript(
        &self,
        id: &TerminalId,
        read: ReadTranscript,
    ) -> Result<TerminalTranscript> {
        let query = TranscriptQuery::from(read);
        self.fetch(Call::get(terminal(id, "/transcript")).query(&query)?)
            .await
    }

    async fn terminal_recording(&self, id: &TerminalId) -> Result<ByteStream> {
        let answer = self.send(Call::get(terminal(id, "/recording"))).await?;
        Ok(answer.into_stream())
    }

    async fn attach_terminal(&self, id: &TerminalId, seat: Seat) -> Result<ExecSession> {
        let call = Call::post(terminal(id, "/stream"));
        self.open_attached(call.query(&SeatQuery::from(seat))?)
            .await
    }
}
