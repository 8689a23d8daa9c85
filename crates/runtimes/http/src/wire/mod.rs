//! The custom provider protocol, as typed calls.
//!
//! ```text
//!   lines   streamed output
//!   file    what it says of files
//! ```

mod file;
pub mod lines;

pub(crate) use file::FileInfo;

use bytes::Bytes;
use http::{HeaderMap, Method};
use motu_core::files::decode_base64;
use motu_core::sandbox::AppliedLimit;
use motu_core::turns::Turns;
use motu_core::{Isolation, runtime::Lacks};
use motu_peer::{Answer, Ask, Connections, PeerError, encoded};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest id from a service.
const MAX_ID: usize = 256;

/// A service's features beyond the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) version: String,
    /// The isolation of its machines, if reported.
    pub(crate) isolation: Option<Isolation>,
    /// The prefix of ids that callers may choose; `None`: they may not.
    pub(crate) id_prefix: Option<String>,
    pub(crate) extensions: Vec<String>,
}

impl Offer {
    pub(crate) fn has(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known == extension)
    }

    /// Live output followed by an exit code.
    pub(crate) fn streams(&self) -> bool {
        self.has("exit") && self.has("binary")
    }

    /// What this service's machines cannot do.
    pub(crate) fn lacks(&self) -> Lacks {
        Lacks {
            background: true,
            input: true,
            live_output: !self.streams(),
            cancel: !self.has("cancel"),
            binary: !self.has("binary"),
            write_options: !self.has("write_options"),
            trees: true,
            metrics: !self.has("stats"),
            ports: true,
        }
    }
}

/// The request of `POST /spawn`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Spawn {
    pub(crate) image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vcpus: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disk_size_mb: Option<u64>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The requested id, if callers may choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spawned {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) isolation: Option<Isolation>,
    #[serde(default)]
    pub(crate) limits: Vec<AppliedLimit>,
}

/// The request of `POST /exec`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Exec {
    pub(crate) sandbox_id: String,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) mode: &'static str,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workdir: String,
    /// An extension; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_seconds: Option<u64>,
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) exit_code: i32,
    pub(crate) stdout: Bytes,
    pub(crate) stderr: Bytes,
}

/// The request of `POST /files`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Write {
    pub(crate) sandbox_id: String,
    pub(crate) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_base64: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) mode: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) append: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) create_new: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_parents: bool,
}

/// The answer of `GET /stats/{id}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Stats {
    pub(crate) cpu_us: u64,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) disk_limit_bytes: u64,
    pub(crate) processes: u32,
    pub(crate) uptime_ms: u64,
}

/// Whether the service still has a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    There,
    /// The reason why it is gone.
    Gone(String),
}

/// One service.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connections: Connections,
    /// Files that are being written, by machine and path.
    pub(crate) writing: Turns,
}

impl Peer {
    pub(crate) fn new(connections: Connections) -> Peer {
        Peer {
            connections,
            writing: Turns::default(),
        }
    }

    /// Whether the service answers, and its features.
    pub(crate) async fn health(&self) -> Result<Offer, PeerError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Health {
            version: Value,
            isolation: Option<String>,
            id_prefix: Option<String>,
            extensions: Vec<String>,
        }
        let ask = Ask {
            patience: Some(self.connections.patience.connect),
            ..self.get("say that it is there", "/health".to_string())
        };
        let body = self.connections.whole(&ask).await?;
        // The protocol only defines the status: any other body means no features.
        let found: Health = serde_json::from_slice(&body).unwrap_or_default();
        let isolation = found.isolation.as_deref().map(str::parse);
        Ok(Offer {
            version: found.version.as_str().unwrap_or_default().to_string(),
            isolation: isolation.and_then(Result::ok),
            id_prefix: found.id_prefix.filter(|prefix| prefix.len() <= 16),
            extensions: found.extensions,
        })
    }

    /// Checks the key by asking for a sandbox that does not exist.
    pub(crate) async fn knows_us(&self) -> Result<(), PeerError> {
        match self.status("motu-is-this-the-key").await {
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    pub(crate) async fn spawn(&self, spawn: &Spawn) -> Result<Spawned, PeerError> {
        let what = "make a machine";
        let ask = Ask {
            patience: Some(self.connections.patience.spawn),
            ..self.post(what, "/spawn", spawn)
        };
        let body = self.connections.whole(&ask).await?;
        let made: Spawned = read(what, &body)?;
        let sane = !made.id.is_empty() && made.id.len() <= MAX_ID;
        match sane && !made.id.chars().any(char::is_control) {
            true => Ok(made),
            false => Err(PeerError::nonsense(what, &body)),
        }
    }

    /// Runs a command and waits for its end.
    pub(crate) async fn exec(&self, exec: &Exec) -> Result<Done, PeerError> {
        #[derive(Deserialize)]
        struct Result {
            exit_code: i32,
            #[serde(default)]
            stdout: String,
            #[serde(default)]
            stderr: String,
            stdout_base64: Option<String>,
            stderr_base64: Option<String>,
        }
        let what = "run a command";
        let ask = Ask {
            patience: None,
            ..self.post(what, "/exec", exec)
        };
        let body = self.connections.whole(&ask).await?;
        let done: Result = read(what, &body)?;
        let exact = |text: String, base64: Option<String>| match base64 {
            Some(base64) => {
                decode_base64(&base64).map_err(|_| PeerError::nonsense(what, base64.as_bytes()))
            }
            None => Ok(Bytes::from(text)),
        };
        Ok(Done {
            exit_code: done.exit_code,
            stdout: exact(done.stdout, done.stdout_base64)?,
            stderr: exact(done.stderr, done.stderr_base64)?,
        })
    }

    /// Runs a command; the body of the answer is its output, line by line.
    pub(crate) async fn exec_stream(&self, exec: &Exec) -> Result<Answer, PeerError> {
        #[derive(Serialize)]
        struct Streamed<'a> {
            #[serde(flatten)]
            exec: &'a Exec,
            stream: bool,
            exit: bool,
        }
        let streamed = Streamed {
            exec,
            stream: true,
            exit: true,
        };
        let ask = Ask {
            patience: Some(self.connections.patience.call),
            ..self.post("run a command", "/exec", &streamed)
        };
        let answer = self.connections.send(&ask).await?;
        answer.success(self.connections.patience.call).await
    }

    pub(crate) async fn write(&self, write: &Write) -> Result<(), PeerError> {
        self.tell(self.post("write a file", "/files", write)).await
    }

    /// The contents of a file as a stream.
    pub(crate) async fn read(&self, id: &str, path: &str) -> Result<Answer, PeerError> {
        let ask = self.get("read a file", at("/files", id, "path", path));
        let answer = self.connections.send(&ask).await?;
        answer.success(self.connections.patience.call).await
    }

    pub(crate) async fn remove(
        &self,
        id: &str,
        path: &str,
        recursive: bool,
    ) -> Result<(), PeerError> {
        let body = json!({ "sandbox_id": id, "path": path, "recursive": recursive });
        let ask = Ask {
            method: Method::DELETE,
            ..self.post("remove a file", "/files", &body)
        };
        self.tell(ask).await
    }

    pub(crate) async fn list(&self, id: &str, path: &str) -> Result<Vec<FileInfo>, PeerError> {
        let what = "list files";
        // Some services return `null` for an empty directory.
        let found: Option<Vec<FileInfo>> = self
            .fetch(what, at("/files/list", id, "path", path))
            .await?;
        Ok(found.unwrap_or_default())
    }

    pub(crate) async fn stat(
        &self,
        id: &str,
        path: &str,
        follow: bool,
    ) -> Result<FileInfo, PeerError> {
        let mut query = at("/files/stat", id, "path", path);
        if follow {
            query.push_str("&follow=true");
        }
        self.fetch("describe a file", query).await
    }

    pub(crate) async fn glob(&self, id: &str, pattern: &str) -> Result<Vec<String>, PeerError> {
        let what = "find files";
        let query = at("/files/glob", id, "pattern", pattern);
        let found: Option<Vec<String>> = self.fetch(what, query).await?;
        Ok(found.unwrap_or_default())
    }

    pub(crate) async fn rename(
        &self,
        id: &str,
        (from, to): (&str, &str),
        overwrite: bool,
    ) -> Result<(), PeerError> {
        let mut body = json!({ "sandbox_id": id, "old_path": from, "new_path": to });
        if !overwrite {
            body["overwrite"] = Value::Bool(false);
        }
        self.tell(self.post("move a file", "/files/move", &body))
            .await
    }

    pub(crate) async fn chmod(&self, id: &str, path: &str, mode: u32) -> Result<(), PeerError> {
        let mode = motu_core::files::format_mode(mode);
        let body = json!({ "sandbox_id": id, "path": path, "mode": mode });
        let ask = Ask {
            repeatable: true,
            ..self.post("change a mode", "/files/chmod", &body)
        };
        self.tell(ask).await
    }

    pub(crate) async fn mkdir(&self, id: &str, path: &str, mode: u32) -> Result<(), PeerError> {
        let mut body = json!({ "sandbox_id": id, "path": path });
        if mode > 0 {
            body["mode"] = Value::String(motu_core::files::format_mode(mode));
        }
        self.tell(self.post("make a directory", "/files/mkdir", &body))
            .await
    }

    /// Whether a sandbox exists; an error if that is unknown.
    pub(crate) async fn status(&self, id: &str) -> Result<Standing, PeerError> {
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            state: String,
        }
        let path = format!("/status/{}", encoded(id));
        let found: Result<Status, PeerError> = self.fetch("say how a machine is", path).await;
        match found {
            Ok(found) => Ok(standing(&found.state)),
            Err(PeerError::Refused { refusal, .. }) if refusal.status == 404 => Ok(Standing::Gone(
                "the service knows no such sandbox (not_found)".to_string(),
            )),
            Err(PeerError::Refused { refusal, .. }) if refusal.status == 410 => Ok(Standing::Gone(
                "it was destroyed at the service (destroyed)".to_string(),
            )),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn stats(&self, id: &str) -> Result<Stats, PeerError> {
        let path = format!("/stats/{}", encoded(id));
        self.fetch("measure a machine", path).await
    }

    /// Destroys a sandbox; one that is gone already is no error.
    pub(crate) async fn destroy(&self, id: &str) -> Result<(), PeerError> {
        let ask = Ask {
            method: Method::DELETE,
            ..self.get("destroy a machine", format!("/sandboxes/{}", encoded(id)))
        };
        match self.tell(ask).await {
            Err(error) if matches!(error.status(), Some(404 | 410)) => Ok(()),
            other => other,
        }
    }

    fn get(&self, what: &'static str, path: String) -> Ask {
        Ask {
            what,
            method: Method::GET,
            path,
            headers: HeaderMap::new(),
            body: None,
            repeatable: true,
            patience: Some(self.connections.patience.call),
        }
    }

    fn post(&self, what: &'static str, path: &str, body: &impl Serialize) -> Ask {
        // Serialization cannot fail: only maps with text keys, texts and numbers.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Ask {
            method: Method::POST,
            body: Some(Bytes::from(body)),
            repeatable: false,
            ..self.get(what, path.to_string())
        }
    }

    async fn fetch<T: DeserializeOwned>(
        &self,
        what: &'static str,
        path: String,
    ) -> Result<T, PeerError> {
        let body = self.connections.whole(&self.get(what, path)).await?;
        read(what, &body)
    }

    async fn tell(&self, ask: Ask) -> Result<(), PeerError> {
        self.connections.whole(&ask).await.map(drop)
    }
}

/// Interprets a state; services have their own words for running machines.
fn standing(state: &str) -> Standing {
    match state {
        "failed" | "error" | "destroying" | "destroyed" | "expired" | "stopped" | "exited"
        | "dead" => Standing::Gone(format!("the service says that it is {state}")),
        _ => Standing::There,
    }
}

fn at(route: &str, id: &str, name: &str, value: &str) -> String {
    format!(
        "{route}?sandbox_id={}&{name}={}",
        encoded(id),
        encoded(value)
    )
}

fn read<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, PeerError> {
    serde_json::from_slice(body).map_err(|_| PeerError::nonsense(what, body))
}
