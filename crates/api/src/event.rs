//! The JSON messages of a live stream, in both directions.

use crate::frame::{Frame, Kind};
use bytes::Bytes;
use motu_core::Error;
use motu_core::exec::{ExecEvent, ExecInput, Exited, Gap, Started, TtySize};
use motu_core::sandbox::Sandbox;
use motu_core::shown::misread;
use serde::{Deserialize, Serialize};

/// From the server: what happened. Output itself is in data frames.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Sandbox(Box<Sandbox>),
    Started(Started),
    Gap(Gap),
    Exited(Exited),
    /// The stream ends here because something broke.
    Error {
        error: Error,
    },
}

/// To the server: everything but input itself, which is in data frames.
#[derive(Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Control {
    CloseStdin,
    Resize { cols: u16, rows: u16 },
    Signal { signal: i32 },
}

/// Encodes a message as the payload of a JSON frame.
pub fn json(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message)
        .expect("messages have string keys and finite numbers")
        .into()
}

/// Encodes an event as a frame. The caller splits output that is longer than one frame.
pub fn encode_event(event: Result<ExecEvent, Error>) -> Frame {
    let event = match event {
        Ok(ExecEvent::Stdout(bytes)) => return Frame::new(Kind::Data, bytes),
        Ok(ExecEvent::Stderr(bytes)) => return Frame::new(Kind::Stderr, bytes),
        Ok(ExecEvent::Sandbox(sandbox)) => Event::Sandbox(sandbox),
        Ok(ExecEvent::Started(started)) => Event::Started(started),
        Ok(ExecEvent::Gap(gap)) => Event::Gap(gap),
        Ok(ExecEvent::Exited(exited)) => Event::Exited(exited),
        Err(error) => Event::Error { error },
    };
    Frame::new(Kind::Json, json(&event))
}

/// Decodes a frame from the server.
pub fn decode_event(frame: Frame) -> Result<ExecEvent, Error> {
    match frame.kind {
        Kind::Data => Ok(ExecEvent::Stdout(frame.payload)),
        Kind::Stderr => Ok(ExecEvent::Stderr(frame.payload)),
        Kind::Json => match serde_json::from_slice(&frame.payload) {
            Ok(Event::Sandbox(sandbox)) => Ok(ExecEvent::Sandbox(sandbox)),
            Ok(Event::Started(started)) => Ok(ExecEvent::Started(started)),
            Ok(Event::Gap(gap)) => Ok(ExecEvent::Gap(gap)),
            Ok(Event::Exited(exited)) => Ok(ExecEvent::Exited(exited)),
            Ok(Event::Error { error }) => Err(error),
            Err(error) => Err(Error::transport(format!(
                "the stream holds an event that cannot be read: {error}"
            ))),
        },
    }
}

/// Encodes an input as a frame.
pub fn encode_input(input: ExecInput) -> Frame {
    let control = match input {
        ExecInput::Stdin(bytes) => return Frame::new(Kind::Data, bytes),
        ExecInput::CloseStdin => Control::CloseStdin,
        ExecInput::Resize(TtySize { cols, rows }) => Control::Resize { cols, rows },
        ExecInput::Signal(signal) => Control::Signal { signal },
    };
    Frame::new(Kind::Json, json(&control))
}

/// Decodes a frame from a client.
pub fn decode_input(frame: Frame) -> Result<ExecInput, Error> {
    match frame.kind {
        Kind::Data => Ok(ExecInput::Stdin(frame.payload)),
        Kind::Stderr => Err(Error::invalid("clients send no frames of kind 2")),
        Kind::Json => match serde_json::from_slice(&frame.payload) {
            Ok(Control::CloseStdin) => Ok(ExecInput::CloseStdin),
            Ok(Control::Resize { cols, rows }) => Ok(ExecInput::Resize(TtySize { cols, rows })),
            Ok(Control::Signal { signal }) => Ok(ExecInput::Signal(signal)),
            Err(error) => Err(Error::invalid(format!(
                "the stream holds a control message that cannot be read: {}",
                misread(error)
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_look_as_documented() {
        let started = Started {
            pid: 7,
            tag: String::new(),
            stdout_from: 0,
            stderr_from: 3,
        };
        let frame = encode_event(Ok(ExecEvent::Started(started.clone())));
        assert_eq!(
            frame.payload,
            r#"{"type":"started","pid":7,"stdout_from":0,"stderr_from":3}"#
        );
        assert_eq!(decode_event(frame), Ok(ExecEvent::Started(started)));

        let frame = encode_event(Err(Error::not_found("gone")));
        assert_eq!(
            frame.payload,
            r#"{"type":"error","error":{"kind":"not_found","message":"gone"}}"#
        );
        assert_eq!(decode_event(frame), Err(Error::not_found("gone")));
    }

    #[test]
    fn inputs_come_back() {
        for input in [
            ExecInput::Stdin(Bytes::from_static(b"x")),
            ExecInput::CloseStdin,
            ExecInput::Resize(TtySize { cols: 80, rows: 24 }),
            ExecInput::Signal(15),
        ] {
            assert_eq!(decode_input(encode_input(input.clone())), Ok(input));
        }
    }

    #[test]
    fn unknown_controls_are_refused() {
        for text in [
            r#"{"type":"dance"}"#,
            r#"{"type":"signal","signal":9,"x":1}"#,
            "",
        ] {
            let frame = Frame::new(Kind::Json, text.as_bytes().to_vec());
            assert!(decode_input(frame).is_err(), "{text}");
        }
    }
}
