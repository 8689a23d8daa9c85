//! Parses the messages of a process's stream.

use super::envelope::Envelope;
use bytes::Bytes;
use motu_core::files::decode_base64;
use serde::Deserialize;
use serde_json::Value;

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The exit code, or 128 + signal.
    pub code: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Started(u32),
    Out(Bytes),
    Err(Bytes),
    Ended(End),
    /// A keep-alive, or an unknown message.
    Nothing,
    /// The stream ended successfully.
    Over,
    /// The stream ended with this error.
    Refused {
        code: String,
        message: String,
    },
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    event: Event,
}

#[derive(Default, Deserialize)]
struct Event {
    start: Option<Start>,
    data: Option<Data>,
    end: Option<Ended>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    pid: u32,
}

#[derive(Deserialize)]
struct Data {
    stdout: Option<String>,
    stderr: Option<String>,
    pty: Option<String>,
}

/// Zero and false values may be omitted.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ended {
    exit_code: i32,
    status: String,
}

#[derive(Deserialize)]
struct Last {
    error: Option<Complaint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Complaint {
    code: String,
    message: String,
}

/// Parses a message; `None` if it is invalid.
pub fn read(envelope: &Envelope) -> Option<Happened> {
    if envelope.last {
        // An empty last message also means success.
        let payload: &[u8] = match envelope.payload.is_empty() {
            true => b"{}",
            false => &envelope.payload,
        };
        let last: Last = serde_json::from_slice(payload).ok()?;
        return Some(match last.error {
            None => Happened::Over,
            Some(Complaint { code, message }) => Happened::Refused { code, message },
        });
    }
    // serde would accept a list as a struct.
    if envelope.payload.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let message: Message = serde_json::from_slice(&envelope.payload).ok()?;
    let Event { start, data, end } = message.event;
    if let Some(start) = start {
        return Some(Happened::Started(start.pid));
    }
    if let Some(end) = end {
        return Some(Happened::Ended(ended(&end)));
    }
    let Some(data) = data else {
        return Some(Happened::Nothing);
    };
    let bytes = |text: &str| decode_base64(text).ok();
    match (data.stdout, data.stderr, data.pty) {
        (Some(text), None, None) | (None, None, Some(text)) => bytes(&text).map(Happened::Out),
        (None, Some(text), None) => bytes(&text).map(Happened::Err),
        _ => None,
    }
}

fn ended(end: &Ended) -> End {
    let named = end.status.strip_prefix("signal: ");
    let signal = named.map_or(0, |name| signal(name.trim_end_matches(" (core dumped)")));
    match signal {
        0 => End {
            code: end.exit_code,
            signal: 0,
        },
        signal => End {
            code: 128 + signal,
            signal,
        },
    }
}

/// The number of a signal, by the agent's name for it. An unknown one counts as SIGKILL.
fn signal(name: &str) -> i32 {
    let known = [
        ("hangup", 1),
        ("interrupt", 2),
        ("quit", 3),
        ("illegal instruction", 4),
        ("trace/breakpoint trap", 5),
        ("aborted", 6),
        ("bus error", 7),
        ("floating point exception", 8),
        ("killed", 9),
        ("user defined signal 1", 10),
        ("segmentation fault", 11),
        ("user defined signal 2", 12),
        ("broken pipe", 13),
        ("alarm clock", 14),
        ("terminated", 15),
        ("CPU time limit exceeded", 24),
        ("file size limit exceeded", 25),
        ("bad system call", 31),
    ];
    let found = known.iter().find(|(known, _)| *known == name);
    let number = || name.strip_prefix("signal ")?.parse().ok();
    let found = found.map(|(_, number)| *number).or_else(number);
    found
        .filter(|number| (1..=64).contains(number))
        .unwrap_or(9)
}

/// A 64-bit number, which JSON may have as text.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<Happened> {
        read(&Envelope {
            last: false,
            payload: Bytes::copy_from_slice(text.as_bytes()),
        })
    }

    #[test]
    fn every_event_is_understood() {
        let out = |text: &'static str| Some(Happened::Out(Bytes::from_static(text.as_bytes())));
        assert_eq!(
            said(r#"{"event":{"start":{"pid":7}}}"#),
            Some(Happened::Started(7))
        );
        assert_eq!(said(r#"{"event":{"data":{"stdout":"aGk="}}}"#), out("hi"));
        assert_eq!(said(r#"{"event":{"data":{"pty":"aGk="}}}"#), out("hi"));
        assert_eq!(
            said(r#"{"event":{"keepalive":{}}}"#),
            Some(Happened::Nothing)
        );
        let end = |code, signal| Some(Happened::Ended(End { code, signal }));
        assert_eq!(said(r#"{"event":{"end":{"exited":true}}}"#), end(0, 0));
        let text = r#"{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}"#;
        assert_eq!(said(text), end(3, 0));
        let text = r#"{"event":{"end":{"exitCode":-1,"status":"signal: segmentation fault (core dumped)"}}}"#;
        assert_eq!(said(text), end(139, 11));
        let text = r#"{"event":{"end":{"exitCode":-1,"status":"signal: never heard of"}}}"#;
        assert_eq!(said(text), end(137, 9));
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        for text in [
            "",
            "[]",
            "{",
            r#"{"event":{"data":{"stdout":"?"}}}"#,
            r#"{"event":{"data":{}}}"#,
            r#"{"event":{"data":{"stdout":7}}}"#,
            r#"{"event":{"start":{"pid":-1}}}"#,
        ] {
            assert_eq!(said(text), None, "{text}");
        }
    }
}
