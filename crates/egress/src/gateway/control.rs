//! The control socket of a gateway: one JSON line each way.

use crate::border::Border;
use crate::rules::Rules;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use zeroize::Zeroizing;

/// The longest request.
pub const MOST: usize = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Replaces the rules. Connections that they do not allow are cut before the answer.
    Replace(Rules),
    /// Replaces the secrets, from the next request on, also on open connections.
    Bind(Border),
    Status,
    /// Ends the gateway.
    Stop,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    Status(Status),
    /// The request was not understood.
    Refused(String),
}

/// The state of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub policy: String,
    /// Currently open connections.
    pub connections: u64,
    /// Bytes in both directions since it began.
    pub bytes: u64,
    /// Decisions that were not written: repeated refusals within a second, or beyond the file's
    /// limit.
    pub decisions_dropped: u64,
    pub resident_bytes: u64,
}

/// Sends a request over the control socket and waits for the answer.
pub fn ask(stream: &UnixStream, request: &Request) -> io::Result<Answer> {
    // Zeroized: the request may contain secrets.
    let mut line = Zeroizing::new(serde_json::to_vec(request)?);
    line.push(b'\n');
    let mut writer = stream;
    writer.write_all(&line)?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream.take(1 << 20));
    if reader.read_line(&mut answer)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&answer)?)
}

/// One connection to the control socket.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) stream: UnixStream,
    line: Zeroizing<Vec<u8>>,
}

impl Caller {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            line: Zeroizing::new(Vec::new()),
        }
    }

    /// The requests received so far, and whether the connection is still open.
    pub(super) fn requests(&mut self) -> (Vec<Result<Request, String>>, bool) {
        let mut buffer = [0; 16 * 1024];
        let going = loop {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => break false,
                Ok(count) => self.line.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
            if self.line.len() > MOST {
                break false;
            }
        };
        let mut requests = Vec::new();
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line = Zeroizing::new(self.line.drain(..=end).collect::<Vec<u8>>());
            requests.push(serde_json::from_slice(&line).map_err(|error| error.to_string()));
        }
        (requests, going)
    }

    pub(super) fn answer(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            // Ignore errors: a caller that does not read the short answer has gone.
            let _ = (&self.stream).write_all(&line);
        }
    }
}
