//! Commands: run to the end, or streamed.

use crate::agent::Agent;
use crate::ask::{self, Command};
use crate::service::Outgoing;
use crate::wire::{
    ConnectProcessResponse, ExecRequest, ExecResponse, ExecStreamData, ExecStreamEnd,
    ExecStreamRequest, ExecStreamResponse, ExecStreamStart, connect_process_response,
    exec_stream_data::Output, exec_stream_response,
};
use bytes::BytesMut;
use futures_util::StreamExt;
use motu_core::exec::{Channel, ExecEvent, ExecSession, Exited, Gap};
use motu_core::limits;
use motu_core::{Error, Result, Service};

impl Agent {
    pub async fn run_command(self, message: ExecRequest) -> Result<ExecResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let command = Command {
            cmd: message.cmd,
            args: message.args,
            envs: message.envs,
            cwd: message.cwd,
            user: message.user,
        };
        let mut request = command.request()?;
        request.program.timeout_seconds = ask::number("timeout_sec", message.timeout_sec)?;
        let mut session = self.exec_stream(&id, request).await?;
        let mut kept = Kept::default();
        while let Some(event) = session.events.next().await {
            if let Some(exited) = kept.add(event?) {
                return Ok(kept.answer(&exited));
            }
        }
        Err(Error::transport(
            "the connection to the machine ended before the command did",
        ))
    }

    pub async fn follow_command(
        self,
        message: ExecStreamRequest,
    ) -> Result<Outgoing<ExecStreamResponse>> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let command = Command {
            cmd: message.cmd,
            args: message.args,
            envs: message.envs,
            cwd: message.cwd,
            user: message.user,
        };
        let mut request = command.request()?;
        request.program.timeout_seconds = ask::number("timeout_sec", message.timeout_sec)?;
        // No timeout by default: the command ends with the stream.
        request.no_timeout = request.program.timeout_seconds.is_none();
        let session = self.exec_stream(&id, request).await?;
        Ok(pieces(session))
    }
}

/// The output of a command up to the limit, and whether there was more.
#[derive(Debug, Default)]
struct Kept {
    stdout: BytesMut,
    stderr: BytesMut,
    truncated: bool,
}

impl Kept {
    /// Adds one event; returns the exit if it is the last.
    fn add(&mut self, event: ExecEvent) -> Option<Exited> {
        let (bytes, kept) = match event {
            ExecEvent::Stdout(bytes) => (bytes, &mut self.stdout),
            ExecEvent::Stderr(bytes) => (bytes, &mut self.stderr),
            ExecEvent::Gap(_) => {
                self.truncated = true;
                return None;
            }
            ExecEvent::Exited(exited) => return Some(exited),
            ExecEvent::Started(_) | ExecEvent::Sandbox(_) => return None,
        };
        let room = (limits::GRPC_OUTPUT_BYTES.max as usize).saturating_sub(kept.len());
        self.truncated |= bytes.len() > room;
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        None
    }

    fn answer(self, exited: &Exited) -> ExecResponse {
        ExecResponse {
            stdout: self.stdout.freeze(),
            stderr: self.stderr.freeze(),
            exit_code: exited.exit_code,
            timed_out: exited.timed_out,
            truncated: self.truncated,
        }
    }
}

/// One event of a process, for both message types that have them.
#[derive(Debug)]
pub enum Piece {
    Start(ExecStreamStart),
    Data(ExecStreamData),
    End(ExecStreamEnd),
}

impl From<Piece> for ExecStreamResponse {
    fn from(piece: Piece) -> ExecStreamResponse {
        use exec_stream_response::Event;
        let event = Some(match piece {
            Piece::Start(start) => Event::Start(start),
            Piece::Data(data) => Event::Data(data),
            Piece::End(end) => Event::End(end),
        });
        ExecStreamResponse { event }
    }
}

impl From<Piece> for ConnectProcessResponse {
    fn from(piece: Piece) -> ConnectProcessResponse {
        use connect_process_response::Event;
        let event = Some(match piece {
            Piece::Start(start) => Event::Start(start),
            Piece::Data(data) => Event::Data(data),
            Piece::End(end) => Event::End(end),
        });
        ConnectProcessResponse { event }
    }
}

/// Converts the events of a session to messages. Dropping the stream drops the session.
pub fn pieces<T: From<Piece> + Send + 'static>(session: ExecSession) -> Outgoing<T> {
    // Keep the unused input open while the client reads.
    let ExecSession { events, input, .. } = session;
    let mut missing = Missing::default();
    let messages = events.filter_map(move |event| {
        let _open = &input;
        let piece = event.map(|event| piece(event, &mut missing)).transpose();
        std::future::ready(piece.map(|piece| piece.map(T::from)))
    });
    messages.boxed()
}

fn piece(event: ExecEvent, missing: &mut Missing) -> Option<Piece> {
    let data = |output| {
        Some(Piece::Data(ExecStreamData {
            output: Some(output),
        }))
    };
    match event {
        ExecEvent::Sandbox(_) => None,
        ExecEvent::Started(started) => Some(Piece::Start(ExecStreamStart {
            pid: started.pid,
            tag: started.tag,
            stdout_from: started.stdout_from,
            stderr_from: started.stderr_from,
        })),
        ExecEvent::Stdout(bytes) => data(Output::Stdout(bytes)),
        ExecEvent::Stderr(bytes) => data(Output::Stderr(bytes)),
        ExecEvent::Gap(gap) => {
            missing.note(&gap);
            None
        }
        ExecEvent::Exited(exited) => Some(Piece::End(ExecStreamEnd {
            exit_code: exited.exit_code,
            error: missing.and(&exited),
            timed_out: exited.timed_out,
        })),
    }
}

/// Counts output that was no longer buffered when it was requested.
#[derive(Debug, Default)]
pub struct Missing {
    stdout: u64,
    stderr: u64,
}

impl Missing {
    pub fn note(&mut self, gap: &Gap) {
        let bytes = gap.to.saturating_sub(gap.from);
        match gap.channel {
            Channel::Stdout => self.stdout += bytes,
            Channel::Stderr => self.stderr += bytes,
        }
    }

    /// Describes why a command did not end by itself and how much of its output is missing.
    pub fn and(&self, exited: &Exited) -> String {
        let mut reasons = Vec::new();
        if exited.timed_out {
            reasons.push("its time limit ended the command".to_string());
        }
        if exited.out_of_memory {
            reasons.push("the memory limit killed something of it".to_string());
        }
        for (bytes, channel) in [(self.stdout, "stdout"), (self.stderr, "stderr")] {
            if bytes > 0 {
                reasons.push(format!("{bytes} bytes of {channel} were no longer kept"));
            }
        }
        reasons.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn output_is_cut_at_the_limit_and_bytes_are_bytes() {
        let mut kept = Kept::default();
        let most = limits::GRPC_OUTPUT_BYTES.max as usize;
        kept.add(ExecEvent::Stderr(Bytes::from_static(&[0, 0xff, 0x80])));
        kept.add(ExecEvent::Stdout(Bytes::from(vec![7; most])));
        assert!(!kept.truncated);
        kept.add(ExecEvent::Stdout(Bytes::from_static(&[8])));
        let answer = kept.answer(&Exited::default());
        assert!(answer.truncated);
        assert_eq!(answer.stdout.len(), most);
        assert_eq!(&answer.stderr[..], [0, 0xff, 0x80]);
    }

    #[test]
    fn what_is_missing_is_told_at_the_end() {
        let mut missing = Missing::default();
        assert_eq!(missing.and(&Exited::default()), "");
        missing.note(&Gap {
            channel: Channel::Stderr,
            from: 2,
            to: 7,
        });
        let exited = Exited {
            timed_out: true,
            ..Exited::default()
        };
        assert_eq!(
            missing.and(&exited),
            "its time limit ended the command; 5 bytes of stderr were no longer kept"
        );
    }
}
