//! Messages on standard input and output, one per line.
//!
//! What is no message is answered too, with the code that JSON-RPC has for it: text that is not
//! JSON, JSON that is no message, and a line that is too long to be read. A client that waits
//! for an answer always gets one: the end of the input is reported only when every request that was
//! read before it has its answer, or when the client no longer reads.

use crate::unanswered::{Left, Unanswered};
use futures_util::future::BoxFuture;
use motu_core::shown::{misread, quoted};
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

/// The longest message; the clients of the SDKs read as much themselves.
pub const MAX_MESSAGE_BYTES: usize = motu_core::limits::MCP_MESSAGE_BYTES.max as usize;
/// What is kept of each end of a longer one, to find its id.
const END_BYTES: usize = 1024;

type Message = RxJsonRpcMessage<RoleServer>;

/// A line that is too long: its ends, and how long it is so far.
#[derive(Debug)]
struct TooLong {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes: usize,
}

/// Why a line is no message, and whose it was.
#[derive(Debug, PartialEq)]
struct Refused {
    code: ErrorCode,
    message: String,
    id: Value,
}

/// The transport. Everything that is being read is kept here, because the reader is dropped and
/// asked again whenever an answer has to be sent.
pub struct Lines<R, W> {
    read: BufReader<R>,
    line: Vec<u8>,
    too_long: Option<TooLong>,
    write: Arc<Mutex<Option<W>>>,
    unanswered: Arc<Unanswered>,
    /// Errors that are being written.
    refusals: TaskTracker,
    /// Whether the input has ended.
    ended: bool,
    /// Completes when the client no longer reads.
    gone: BoxFuture<'static, ()>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin + Send + 'static> Lines<R, W> {
    /// `gone` completes when nobody reads what is written any more; it is looked at after the end
    /// of the input.
    pub fn new(read: R, write: W, gone: BoxFuture<'static, ()>) -> Lines<R, W> {
        Lines {
            read: BufReader::new(read),
            line: Vec::new(),
            too_long: None,
            write: Arc::new(Mutex::new(Some(write))),
            unanswered: Arc::default(),
            refusals: TaskTracker::new(),
            ended: false,
            gone,
        }
    }

    /// The next whole line, or why it cannot be one; `None` at the end.
    async fn line(&mut self) -> Option<Result<Vec<u8>, Refused>> {
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                // The last line may have no newline.
                return match (self.too_long.take(), self.line.is_empty()) {
                    (Some(line), _) => Some(Err(line.refused())),
                    (None, false) => Some(Ok(std::mem::take(&mut self.line))),
                    (None, true) => None,
                };
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = &available[..newline.unwrap_or(available.len())];
            match &mut self.too_long {
                Some(line) => line.add(taken),
                None if self.line.len() + taken.len() > MAX_MESSAGE_BYTES => {
                    let mut line = TooLong::new(std::mem::take(&mut self.line));
                    line.add(taken);
                    self.too_long = Some(line);
                }
                None => self.line.extend_from_slice(taken),
            }
            let used = taken.len() + usize::from(newline.is_some());
            self.read.consume(used);
            if newline.is_some() {
                return Some(match self.too_long.take() {
                    Some(line) => Err(line.refused()),
                    None => Ok(std::mem::take(&mut self.line)),
                });
            }
        }
    }

    /// Says what is wrong, in a task of its own: half an answer must not be left behind when the
    /// reader is dropped.
    fn refuse(&self, refused: Refused) {
        let Refused { code, message, id } = refused;
        let answer = json!({
            "jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": message},
        });
        let write = self.write.clone();
        self.refusals.spawn(async move {
            // A client that no longer reads is gone; the next read reports it.
            let _ = written(&write, answer.to_string().into_bytes()).await;
        });
    }

    /// After the end of the input: questions to the client fail, because no answer can come, and
    /// `None` when every request has been answered or nobody reads the answers.
    async fn last(&mut self) -> Option<Message> {
        let left = tokio::select! {
            left = self.unanswered.left() => left,
            () = &mut self.gone => return None,
        };
        match left {
            Left::Question(id) => Some(nobody_answers(id)),
            Left::Nothing => {
                self.refusals.close();
                self.refusals.wait().await;
                None
            }
        }
    }
}

/// What a question gets after the client has closed its end.
fn nobody_answers(id: RequestId) -> Message {
    let why = "the client has closed its end and answers no questions";
    Message::error(ErrorData::internal_error(why, None), Some(id))
}

async fn written<W: AsyncWrite + Unpin>(
    write: &Mutex<Option<W>>,
    mut line: Vec<u8>,
) -> std::io::Result<()> {
    line.push(b'\n');
    let mut write = write.lock().await;
    let write = write.as_mut().ok_or(std::io::ErrorKind::NotConnected)?;
    write.write_all(&line).await?;
    write.flush().await
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let write = self.write.clone();
        let unanswered = self.unanswered.clone();
        unanswered.sending(&item);
        async move {
            let sent = written(&write, serde_json::to_vec(&item)?).await;
            unanswered.sent(&item);
            sent
        }
    }

    async fn receive(&mut self) -> Option<Message> {
        while !self.ended {
            let Some(line) = self.line().await else {
                self.ended = true;
                break;
            };
            match line.and_then(|line| parsed(&line)) {
                Ok(Some(message)) => {
                    self.unanswered.received(&message);
                    return Some(message);
                }
                Ok(None) => {}
                Err(refused) => self.refuse(refused),
            }
        }
        self.last().await
    }

    async fn close(&mut self) -> std::io::Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

/// A message, nothing (a blank line, a notification nobody knows), or why it is none.
fn parsed(line: &[u8]) -> Result<Option<Message>, Refused> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Ok(Some(message));
    }
    let refused = |code, message: String, id| Err(Refused { code, message, id });
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => {
            return refused(
                ErrorCode::PARSE_ERROR,
                format!("this is not JSON: {}", misread(error)),
                Value::Null,
            );
        }
    };
    let id = value["id"].clone();
    match (value["method"].as_str(), id) {
        (Some(_), Value::Null) => Ok(None),
        (Some(method), id) if id.is_u64() || id.is_i64() || id.is_string() => refused(
            ErrorCode::INVALID_PARAMS,
            format!("the params are not those of {}", quoted(method, 60)),
            id,
        ),
        (_, id) => refused(
            ErrorCode::INVALID_REQUEST,
            "this is no message of JSON-RPC 2.0".to_string(),
            if id.is_number() || id.is_string() {
                id
            } else {
                Value::Null
            },
        ),
    }
}

impl TooLong {
    fn new(begun: Vec<u8>) -> TooLong {
        let mut line = TooLong {
            head: Vec::new(),
            tail: Vec::new(),
            bytes: 0,
        };
        line.add(&begun);
        line
    }

    fn add(&mut self, more: &[u8]) {
        self.bytes += more.len();
        let room = END_BYTES - self.head.len();
        self.head.extend_from_slice(&more[..more.len().min(room)]);
        self.tail
            .extend_from_slice(&more[more.len().saturating_sub(END_BYTES)..]);
        let extra = self.tail.len().saturating_sub(END_BYTES);
        self.tail.drain(..extra);
    }

    fn refused(&self) -> Refused {
        let id = id_in_head(&self.head).or_else(|| id_in_tail(&self.tail));
        Refused {
            code: ErrorCode::INVALID_REQUEST,
            message: format!(
                "the message has {} bytes; at most {MAX_MESSAGE_BYTES} are read",
                self.bytes
            ),
            id: id.unwrap_or(Value::Null),
        }
    }
}

/// The id that stands after its name, and how many bytes that takes. One that may have been cut
/// in two is none.
fn id_after_name(text: &[u8]) -> Option<(Value, usize)> {
    let rest = text.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
    let id = values.next()?.ok()?;
    let end = values.byte_offset();
    let known = id.is_number() || id.is_string();
    (known && end < rest.len()).then_some((id, text.len() - rest.len() + end))
}

/// The id among the first fields of an object.
fn id_in_head(head: &[u8]) -> Option<Value> {
    let (mut depth, mut at) = (0_i32, 0);
    while at < head.len() {
        match head[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let begin = at;
                at += 1;
                while *head.get(at)? != b'"' {
                    at += if head[at] == b'\\' { 2 } else { 1 };
                }
                if depth == 1
                    && head[begin..=at] == *b"\"id\""
                    && let Some((id, _)) = id_after_name(&head[at + 1..])
                {
                    return Some(id);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The id as the last field of an object.
fn id_in_tail(tail: &[u8]) -> Option<Value> {
    const NAME: &[u8] = b"\"id\"";
    let begin = tail.windows(NAME.len()).rposition(|part| part == NAME)?;
    let after = &tail[begin + NAME.len()..];
    let (id, end) = id_after_name(after)?;
    (after[end..].trim_ascii() == b"}").then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> (i32, Value) {
        let refused = parsed(line.as_bytes()).unwrap_err();
        (refused.code.0, refused.id)
    }

    #[test]
    fn what_is_no_message_has_a_code() {
        assert_eq!(refused("{not json"), (-32700, Value::Null));
        assert_eq!(refused("[1, 2]"), (-32600, Value::Null));
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":7}"#), (-32600, json!(7)));
        assert!(parsed(b"  \r").unwrap().is_none());
        let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(parsed(ping).unwrap().is_some());
    }

    #[test]
    fn a_long_line_still_has_its_id() {
        let long = |before: &str, after: &str| {
            let mut line = TooLong::new(before.as_bytes().to_vec());
            line.add("x".repeat(5 * END_BYTES).as_bytes());
            line.add(after.as_bytes());
            line.refused().id
        };
        let first = r#"{"jsonrpc":"2.0","id":5,"method":"m","params":{"a":""#;
        assert_eq!(long(first, r#""}}"#), json!(5));
        let last = r#"{"method":"m","params":{"id":9,"a":""#;
        assert_eq!(
            long(last, r#""},"jsonrpc":"2.0","id":"six"}"#),
            json!("six")
        );
        // An `id` inside the arguments is not the message's.
        assert_eq!(long(last, r#"","id":4}}"#), Value::Null);
        assert_eq!(long("{\"a\":\"", "\"}"), Value::Null);
    }

    #[tokio::test]
    async fn a_long_line_is_answered_and_the_next_one_is_read() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(server);
        let mut lines = Lines::new(read, write, Box::pin(std::future::pending()));
        let (answers, mut input) = tokio::io::split(client);
        tokio::spawn(async move {
            let long = "x".repeat(MAX_MESSAGE_BYTES);
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"{long}\"}}\n");
            input.write_all(line.as_bytes()).await.unwrap();
            let ping = b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}\n";
            input.write_all(ping).await.unwrap();
        });
        assert!(lines.receive().await.is_some());
        let mut answers = BufReader::new(answers).lines();
        let answer = answers.next_line().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["id"], 3);
        assert_eq!(answer["error"]["code"], -32600);
    }
}
