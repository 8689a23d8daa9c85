//! The agent in a machine.

use super::envelope::{Envelopes, Unreadable, sealed};
use super::event::{self, Happened};
use super::file::FileInfo;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use motu_core::files::encode_base64;
use motu_core::limits;
use motu_peer::{Address, Answer, Ask, Body, Connections, Patience, PeerError, Refusal, encoded};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The agent's port.
pub(crate) const PORT: u16 = 49983;
/// Keep-alive interval of a silent stream, in seconds.
const PING: &str = "50";
/// Longest token that a service may give.
const MAX_TOKEN: usize = 8192;

/// A command for the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) cmd: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Empty: the user's home directory.
    pub(crate) cwd: String,
    /// Empty: the template's user.
    pub(crate) user: String,
    /// Columns and rows of its terminal.
    pub(crate) pty: Option<(u32, u32)>,
    pub(crate) stdin: bool,
    pub(crate) tag: String,
    /// When the agent itself kills it; a caller that is still there does so earlier.
    pub(crate) deadline: Option<Duration>,
}

/// Metrics of the agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    pub(crate) cpu_count: u32,
    pub(crate) mem_used: u64,
    pub(crate) mem_total: u64,
    pub(crate) disk_used: u64,
    pub(crate) disk_total: u64,
}

/// A process known to the agent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Listed {
    #[serde(default)]
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) tag: String,
}

/// The agent of one machine.
pub(crate) struct Envd {
    connections: Connections,
    id: String,
    token: Mutex<Option<HeaderValue>>,
}

impl std::fmt::Debug for Envd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Envd")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Envd {
    pub(crate) fn new(address: Address, id: String, patience: Patience) -> Envd {
        Envd {
            connections: Connections::new(address, None, patience),
            id,
            token: Mutex::default(),
        }
    }

    /// Sets the token for calls. It is only kept in memory.
    pub(crate) fn admit(&self, token: Option<&str>) -> Result<(), PeerError> {
        let what = "admit callers to a machine";
        let value = match token {
            None => None,
            Some(token) if token.len() > MAX_TOKEN => return Err(PeerError::TooLong { what }),
            Some(token) => {
                let value = HeaderValue::from_str(token);
                let mut value = value.map_err(|_| PeerError::nonsense(what, "no token"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = value;
        Ok(())
    }

    pub(crate) fn patience(&self) -> Patience {
        self.connections.patience
    }

    /// Starts a command; its stream begins with its pid.
    pub(crate) async fn start(&self, run: &Run) -> Result<(u32, Events), PeerError> {
        let what = "run a command";
        let mut process = json!({ "cmd": run.cmd, "args": run.args, "envs": run.env });
        if !run.cwd.is_empty() {
            process["cwd"] = Value::from(run.cwd.as_str());
        }
        let mut body = json!({ "process": process, "stdin": run.stdin, "tag": run.tag });
        if let Some((cols, rows)) = run.pty {
            body["pty"] = json!({ "size": { "cols": cols, "rows": rows } });
        }
        let mut ask = self.stream(what, "Start", &body, &run.user);
        if let Some(deadline) = run.deadline {
            let value = HeaderValue::from(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
            ask.headers.insert("connect-timeout-ms", value);
        }
        self.begin(ask).await
    }

    /// Follows a process that runs, or has just ended.
    pub(crate) async fn attach(&self, pid: u32) -> Result<Events, PeerError> {
        let body = json!({ "process": { "pid": pid } });
        let ask = self.stream("follow a command", "Connect", &body, "");
        Ok(self.begin(ask).await?.1)
    }

    async fn begin(&self, ask: Ask) -> Result<(u32, Events), PeerError> {
        let what = ask.what;
        let patience = self.patience().call;
        let answer = self.connections.send(&ask).await?.success(patience).await?;
        let mut events = Events {
            what,
            answer,
            envelopes: Envelopes::new(limits::E2B_MESSAGE_BYTES.default as usize),
        };
        let first = async {
            loop {
                match events.next().await? {
                    Happened::Started(pid) if pid > 0 => return Ok(pid),
                    Happened::Nothing => {}
                    _ => return Err(PeerError::nonsense(what, "a stream without a beginning")),
                }
            }
        };
        let first = tokio::time::timeout(patience, first).await;
        let pid = first.map_err(|_| PeerError::Slow { what, patience })??;
        Ok((pid, events))
    }

    pub(crate) async fn processes(&self) -> Result<Vec<Listed>, PeerError> {
        #[derive(Deserialize)]
        struct List {
            #[serde(default)]
            processes: Vec<Listed>,
        }
        let what = "list processes";
        let found: List = self
            .call(what, "process.Process/List", &json!({}), "")
            .await?;
        Ok(found.processes)
    }

    /// Sends input to a process.
    pub(crate) async fn input(&self, pid: u32, pty: bool, bytes: &[u8]) -> Result<(), PeerError> {
        let channel = if pty { "pty" } else { "stdin" };
        let body = json!({
            "process": { "pid": pid },
            "input": { channel: encode_base64(bytes) },
        });
        self.tell("type into a command", "process.Process/SendInput", &body)
            .await
    }

    pub(crate) async fn close_stdin(&self, pid: u32) -> Result<(), PeerError> {
        let body = json!({ "process": { "pid": pid } });
        self.tell("end a command's input", "process.Process/CloseStdin", &body)
            .await
    }

    pub(crate) async fn resize(&self, pid: u32, (cols, rows): (u32, u32)) -> Result<(), PeerError> {
        let body = json!({
            "process": { "pid": pid },
            "pty": { "size": { "cols": cols, "rows": rows } },
        });
        self.tell("resize a terminal", "process.Process/Update", &body)
            .await
    }

    pub(crate) async fn stat(&self, path: &str, user: &str) -> Result<FileInfo, PeerError> {
        self.entry(
            "describe a file",
            "filesystem.Filesystem/Stat",
            &json!({ "path": path }),
            user,
        )
        .await
    }

    pub(crate) async fn mkdir(&self, path: &str, user: &str) -> Result<(), PeerError> {
        let body = json!({ "path": path });
        let method = "filesystem.Filesystem/MakeDir";
        let made: Result<Value, PeerError> =
            self.call("make a directory", method, &body, user).await;
        made.map(drop)
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), PeerError> {
        let body = json!({ "source": from, "destination": to });
        self.tell("move a file", "filesystem.Filesystem/Move", &body)
            .await
    }

    pub(crate) async fn remove(&self, path: &str) -> Result<(), PeerError> {
        let body = json!({ "path": path });
        self.tell("remove a file", "filesystem.Filesystem/Remove", &body)
            .await
    }

    /// The entries of a directory.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<FileInfo>, PeerError> {
        #[derive(Deserialize)]
        struct Entries {
            #[serde(default)]
            entries: Vec<FileInfo>,
        }
        let body = json!({ "path": path, "depth": 1 });
        let found: Entries = self
            .call("list files", "filesystem.Filesystem/ListDir", &body, "")
            .await?;
        Ok(found.entries)
    }

    /// The contents of a file from an offset. An answer with status 200 has the whole file.
    pub(crate) async fn read(&self, path: &str, from: u64) -> Result<Answer, PeerError> {
        let mut ask = self.ask("read a file", Method::GET, files(path, ""), "");
        if from > 0 {
            let range = HeaderValue::from_str(&format!("bytes={from}-"));
            ask.headers
                .extend(range.map(|range| (header::RANGE, range)));
        }
        let answer = self.connections.send(&ask).await?;
        // There is nothing at or after that offset.
        if answer.status == http::StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(answer);
        }
        answer.success(self.patience().call).await
    }

    /// Writes a file, owned by the user; its parents are created.
    pub(crate) async fn write(&self, path: &str, user: &str, body: Body) -> Result<(), PeerError> {
        let mut ask = self.ask("write a file", Method::POST, files(path, user), user);
        let kind = HeaderValue::from_static("application/octet-stream");
        ask.headers.insert(header::CONTENT_TYPE, kind);
        let patience = self.patience().call;
        let answer = self.connections.upload(&ask, body).await?;
        answer
            .success(patience)
            .await?
            .whole(patience)
            .await
            .map(drop)
    }

    pub(crate) async fn metrics(&self) -> Result<Measured, PeerError> {
        let what = "measure a machine";
        let ask = self.ask(what, Method::GET, "/metrics".to_string(), "");
        read(what, &self.connections.whole(&ask).await?)
    }

    async fn entry(
        &self,
        what: &'static str,
        method: &str,
        body: &Value,
        user: &str,
    ) -> Result<FileInfo, PeerError> {
        #[derive(Deserialize)]
        struct One {
            entry: FileInfo,
        }
        let one: One = self.call(what, method, body, user).await?;
        Ok(one.entry)
    }

    async fn tell(&self, what: &'static str, method: &str, body: &Value) -> Result<(), PeerError> {
        let _: Value = self.call(what, method, body, "").await?;
        Ok(())
    }

    /// A call with one answer.
    async fn call<T: DeserializeOwned>(
        &self,
        what: &'static str,
        method: &str,
        body: &Value,
        user: &str,
    ) -> Result<T, PeerError> {
        let mut ask = self.ask(what, Method::POST, format!("/{method}"), user);
        ask.body = Some(Bytes::from(body.to_string()));
        ask.headers
            .insert("connect-protocol-version", HeaderValue::from_static("1"));
        read(what, &self.connections.whole(&ask).await?)
    }

    /// A call answered with a stream.
    fn stream(&self, what: &'static str, method: &str, body: &Value, user: &str) -> Ask {
        let mut ask = self.ask(
            what,
            Method::POST,
            format!("/process.Process/{method}"),
            user,
        );
        ask.body = Some(sealed(body.to_string().as_bytes()));
        let kind = HeaderValue::from_static("application/connect+json");
        ask.headers.insert(header::CONTENT_TYPE, kind);
        ask.headers
            .insert("connect-protocol-version", HeaderValue::from_static("1"));
        ask.headers
            .insert("keepalive-ping-interval", HeaderValue::from_static(PING));
        ask
    }

    fn ask(&self, what: &'static str, method: Method, path: String, user: &str) -> Ask {
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value: Option<HeaderValue>| {
            headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
        };
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        put("x-access-token", token.clone());
        put("e2b-sandbox-id", HeaderValue::from_str(&self.id).ok());
        put("e2b-sandbox-port", Some(HeaderValue::from(PORT)));
        if !user.is_empty() {
            let basic = format!("Basic {}", encode_base64(format!("{user}:").as_bytes()));
            put("authorization", HeaderValue::from_str(&basic).ok());
        }
        Ask {
            what,
            repeatable: method == Method::GET,
            method,
            path,
            headers,
            body: None,
            patience: Some(self.patience().call),
        }
    }
}

/// The messages of a process.
#[derive(Debug)]
pub(crate) struct Events {
    what: &'static str,
    answer: Answer,
    envelopes: Envelopes,
}

impl Events {
    /// The next message. A stream that ends without an end message is broken, and one that ends
    /// with an error is refused.
    pub(crate) async fn next(&mut self) -> Result<Happened, PeerError> {
        let what = self.what;
        loop {
            let envelope = self.envelopes.take().map_err(|error| match error {
                Unreadable::TooLong => PeerError::TooLong { what },
                Unreadable::Nonsense(said) => PeerError::nonsense(what, said),
            })?;
            if let Some(envelope) = envelope {
                let said = event::read(&envelope);
                return match said.ok_or_else(|| PeerError::nonsense(what, &envelope.payload))? {
                    Happened::Refused { code, message } => Err(refused(what, code, &message)),
                    said => Ok(said),
                };
            }
            match self.answer.piece().await? {
                Some(piece) => self.envelopes.feed(&piece),
                None => {
                    let torn = self.envelopes.is_torn();
                    let reason = match torn {
                        true => "it ended in the middle of a message",
                        false => "it ended without saying so",
                    };
                    return Err(PeerError::Broken {
                        what,
                        reason: reason.to_string(),
                    });
                }
            }
        }
    }
}

/// Converts the error at the end of a stream to that of an answer.
fn refused(what: &'static str, code: String, message: &str) -> PeerError {
    let status = match code.as_str() {
        "invalid_argument" | "failed_precondition" | "out_of_range" => 400,
        "unauthenticated" => 401,
        "permission_denied" => 403,
        "not_found" => 404,
        "already_exists" | "aborted" => 409,
        "resource_exhausted" => 429,
        "unimplemented" => 501,
        "unavailable" => 503,
        "deadline_exceeded" => 504,
        _ => 500,
    };
    let said = motu_peer::error::quoted(message.as_bytes());
    let refusal = Refusal { status, code, said };
    PeerError::Refused { what, refusal }
}

fn files(path: &str, user: &str) -> String {
    let owner = match user.is_empty() {
        true => String::new(),
        false => format!("&username={}", encoded(user)),
    };
    format!("/files?path={}{owner}", encoded(path))
}

fn read<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, PeerError> {
    serde_json::from_slice(body).map_err(|_| PeerError::nonsense(what, body))
}
