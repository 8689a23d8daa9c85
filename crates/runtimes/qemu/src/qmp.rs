//! A client of QEMU's control socket: one JSON object per line.
//!
//! The other side is a process that runs foreign code's machine, so its lines
//! are bounded and parsed without trust. A connection is opened for one piece
//! of work and closed after it: QEMU serves one client at a time.

use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The longest line taken.
pub const MAX_LINE: u64 = 1 << 20;
/// Events that may come before the answer to a command.
const MAX_EVENTS: usize = 1024;
/// How long QEMU may take to answer anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("QEMU's control socket: {0}")]
    Io(#[from] std::io::Error),
    #[error("QEMU closed its control socket")]
    Closed,
    #[error("QEMU said something that is not QMP")]
    Foreign,
    #[error("QEMU said more than {MAX_LINE} bytes in one line")]
    TooLong,
    #[error("QEMU said {MAX_EVENTS} other things instead of an answer")]
    Unanswered,
    #[error("QEMU refused {command}: {reason}")]
    Refused { command: String, reason: String },
    #[error("QEMU did not answer in {} s", PATIENCE.as_secs())]
    Timeout,
}

/// One line from QEMU.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Greeting,
    Return(Value),
    Failed(String),
    Event(String),
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "QMP")]
    greeting: Option<Value>,
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<RawError>,
    event: Option<String>,
}

#[derive(Deserialize)]
struct RawError {
    #[serde(default)]
    desc: String,
}

/// Reads one line.
pub fn parse(line: &[u8]) -> Result<Line, QmpError> {
    let raw: Raw = serde_json::from_slice(line).map_err(|_| QmpError::Foreign)?;
    match raw {
        Raw {
            event: Some(name), ..
        } => Ok(Line::Event(name)),
        Raw {
            error: Some(error), ..
        } => Ok(Line::Failed(error.desc.chars().take(500).collect())),
        Raw {
            answer: Some(value),
            ..
        } => Ok(Line::Return(value)),
        Raw {
            greeting: Some(_), ..
        } => Ok(Line::Greeting),
        _ => Err(QmpError::Foreign),
    }
}

/// An open control connection.
#[derive(Debug)]
pub(crate) struct Qmp {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Qmp {
    /// Connects and leaves the negotiation behind.
    pub(crate) async fn connect(socket: &Path) -> Result<Qmp, QmpError> {
        let connecting = async {
            let (read, write) = UnixStream::connect(socket).await?.into_split();
            let mut qmp = Qmp {
                read: BufReader::new(read),
                write,
            };
            match qmp.line().await? {
                Line::Greeting => {}
                _ => return Err(QmpError::Foreign),
            }
            qmp.ask("qmp_capabilities", json!({})).await?;
            Ok(qmp)
        };
        tokio::time::timeout(PATIENCE, connecting)
            .await
            .map_err(|_| QmpError::Timeout)?
    }

    /// Carries out one command.
    pub(crate) async fn execute(
        &mut self,
        command: &str,
        arguments: Value,
    ) -> Result<Value, QmpError> {
        tokio::time::timeout(PATIENCE, self.ask(command, arguments))
            .await
            .map_err(|_| QmpError::Timeout)?
    }

    async fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.write.write_all(line.as_bytes()).await?;
        for _ in 0..MAX_EVENTS {
            match self.line().await? {
                Line::Event(_) | Line::Greeting => {}
                Line::Return(value) => return Ok(value),
                Line::Failed(reason) => {
                    return Err(QmpError::Refused {
                        command: command.to_string(),
                        reason,
                    });
                }
            }
        }
        Err(QmpError::Unanswered)
    }

    async fn line(&mut self) -> Result<Line, QmpError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.read).take(MAX_LINE);
        bounded.read_until(b'\n', &mut line).await?;
        match line.last() {
            Some(b'\n') => parse(&line),
            Some(_) if line.len() as u64 == MAX_LINE => Err(QmpError::TooLong),
            // Half a line is what a QEMU leaves that ends while it speaks.
            _ => Err(QmpError::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::QMP;
    use crate::replay::{Conversation, Line as Said, Replay, recorded};
    use proptest::prelude::*;

    #[test]
    fn every_kind_of_line_is_known() {
        let line = |text: &str| parse(text.as_bytes()).unwrap();
        assert_eq!(line(r#"{"QMP": {"version": {}}}"#), Line::Greeting);
        assert_eq!(
            line(r#"{"return": {"running": true}}"#),
            Line::Return(json!({"running": true}))
        );
        assert_eq!(
            line(r#"{"event": "STOP", "timestamp": {}}"#),
            Line::Event("STOP".into())
        );
        assert_eq!(
            line(r#"{"error": {"class": "GenericError", "desc": "no"}}"#),
            Line::Failed("no".into())
        );
        assert!(parse(b"{}").is_err());
        assert!(parse(b"[1]").is_err());
    }

    proptest! {
        #[test]
        fn foreign_lines_never_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }

    /// What comes of a `stop` after which QEMU says this.
    async fn stopping(answers: &str) -> (Result<Value, QmpError>, Replay) {
        let begin = recorded!("pause");
        let mut lines: Vec<_> = begin.0.clone();
        let stop = lines
            .iter()
            .rposition(|line| matches!(line, Said::Asked(_)));
        lines.truncate(stop.unwrap() + 1);
        lines.extend(Conversation::parse(answers).0);
        let replay = Replay::of(vec![Conversation(lines)]);
        let mut qmp = Qmp::connect(&replay.place.socket(QMP)).await.unwrap();
        (qmp.execute("stop", json!({})).await, replay)
    }

    #[tokio::test]
    async fn events_in_the_middle_of_an_answer_are_none() {
        let events = "< {\"event\": \"STOP\", \"timestamp\": {}}\n".repeat(20);
        let answer = "< {\"return\": {\"x\": 1}}\n".to_string();
        let (answered, replay) = stopping(&(events.clone() + &answer)).await;
        assert_eq!(answered.unwrap(), json!({"x": 1}));
        replay.ended().await;
        let (answered, replay) =
            stopping(&(events + "< {\"error\": {\"desc\": \"busy\"}}\n")).await;
        let error = answered.unwrap_err().to_string();
        assert!(error.contains("refused stop: busy"), "{error}");
        replay.ended().await;
    }

    #[tokio::test]
    async fn what_is_no_answer_has_a_name_and_an_end() {
        let endless = "< {\"event\": \"RTC_CHANGE\"}\n".repeat(MAX_EVENTS);
        for (answers, wanted) in [
            ("! gone\n", "closed its control socket"),
            ("< nonsense\n", "not QMP"),
            ("< []\n", "not QMP"),
            ("< {\"return\": \n", "not QMP"),
            ("! long\n", "more than 1048576 bytes"),
            (&endless, "1024 other things"),
        ] {
            let (answered, _) = stopping(answers).await;
            let error = answered.unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[tokio::test]
    async fn half_a_line_is_a_qemu_that_has_ended() {
        let (client, mut server) = tokio::net::UnixStream::pair().unwrap();
        let (read, write) = client.into_split();
        let mut qmp = Qmp {
            read: BufReader::new(read),
            write,
        };
        server.write_all(b"{\"return\": ").await.unwrap();
        drop(server);
        assert!(matches!(qmp.line().await, Err(QmpError::Closed)));
    }

    #[tokio::test]
    async fn who_does_not_greet_is_no_qemu() {
        for (said, wanted) in [("< {\"return\": {}}\n", "not QMP"), ("! gone\n", "closed")] {
            let replay = Replay::of(vec![Conversation::parse(said)]);
            let error = Qmp::connect(&replay.place.socket(QMP)).await.unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
