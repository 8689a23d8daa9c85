//! The verbs, sent over the wire.

use super::session::lines;
use super::{Call, Client};
use crate::wire::{
    AttachQuery, BackupBody, ChmodBody, DIAL_PROTOCOL, DoctorQuery, ENTRY_HEADER, ExecBody,
    ForkBody, GlobQuery, KeepaliveBody, ListQuery, MkdirBody, MoveBody, PathBody, PathQuery,
    PruneBody, PullLine, Reaped, RemoveQuery, SignalBody, StatQuery, WatchLine, WatchQuery,
    WriteQuery, encode_base64, format_mode, split_path,
};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{Method, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::TokioIo;
use motu_core::exec::{
    AttachFrom, Background, ExecRequest, ExecResult, ExecSession, Process, RunRequest, Selector,
};
use motu_core::files::{
    ByteStream, FileChange, FileEntry, FileHash, FilePage, GuestPath, ListOptions, ReadRange,
    TreeWritten, WriteOptions,
};
use motu_core::report::{Backup, Doctor, Environment, Metrics, Port, Pruned, Version};
use motu_core::runtime::Connection;
use motu_core::sandbox::{CreateSandbox, Sandbox};
use motu_core::service::ProgressSink;
use motu_core::{Error, Result, SandboxId, Service};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

pub(super) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

fn environment(name: &str) -> String {
    format!("/v1/environments/{}", utf8_percent_encode(name, SEGMENT))
}

fn sandbox(id: &SandboxId, rest: &str) -> String {
    format!("/v1/sandboxes/{id}{rest}")
}

fn process(id: &SandboxId, selector: &Selector, rest: &str) -> String {
    match selector {
        Selector::Pid(pid) => sandbox(id, &format!("/processes/{pid}{rest}")),
        Selector::Tag(tag) => sandbox(id, &format!("/processes/{tag}{rest}")),
    }
}

fn upload(content: ByteStream) -> super::Body {
    BodyExt::boxed_unsync(StreamBody::new(content.map(|chunk| chunk.map(Frame::data))))
}

impl Client {
    async fn sandbox_verb(&self, method: Method, id: &SandboxId, rest: &str) -> Result<Sandbox> {
        self.fetch(Call::new(method, sandbox(id, rest))).await
    }

    async fn file_query<T: serde::de::DeserializeOwned>(
        &self,
        id: &SandboxId,
        rest: &str,
        query: &impl Serialize,
    ) -> Result<T> {
        self.fetch(Call::get(sandbox(id, rest)).query(query)?).await
    }

    /// Turns a connection into plain bytes to and from the other side.
    async fn upgrade(&self, call: Call) -> Result<Connection> {
        let call = call
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, DIAL_PROTOCOL);
        let answer = self.send(call).await?;
        let upgraded = hyper::upgrade::on(answer.response)
            .await
            .map_err(|error| super::broken(&error))?;
        let (read, write) = tokio::io::split(TokioIo::new(upgraded));
        Ok(Connection {
            read: Box::new(read),
            write: Box::new(write),
        })
    }
}

#[async_trait]
impl Service for Client {
    async fn version(&self) -> Result<Version> {
        self.fetch(Call::get("/v1/version")).await
    }

    async fn doctor(&self, deep: bool) -> Result<Doctor> {
        let query = DoctorQuery { deep: Some(deep) };
        self.fetch(Call::get("/v1/doctor").query(&query)?).await
    }

    async fn backup(&self, output_path: &str) -> Result<Backup> {
        let output_path = output_path.to_string();
        self.fetch(Call::post("/v1/backup").json(&BackupBody { output_path }))
            .await
    }

    async fn list_environments(&self) -> Result<Vec<Environment>> {
        self.fetch(Call::get("/v1/environments")).await
    }

    async fn inspect_environment(&self, name: &str) -> Result<Environment> {
        self.fetch(Call::get(environment(name))).await
    }

    async fn pull_environment(&self, name: &str, progress: ProgressSink) -> Result<Environment> {
        let call = Call::post(format!("{}/pull", environment(name)));
        let mut lines = lines::<PullLine>(self.send(call).await?);
        while let Some(line) = lines.next().await {
            match line? {
                PullLine::Progress(step) => drop(progress.try_send(step)),
                PullLine::Result(environment) => return Ok(*environment),
                PullLine::Error(error) => return Err(error),
            }
        }
        Err(Error::transport("the pull ended without an answer"))
    }

    async fn prune_environments(&self, all: bool) -> Result<Pruned> {
        self.fetch(Call::post("/v1/environments/prune").json(&PruneBody { all }))
            .await
    }

    async fn create_sandbox(&self, request: CreateSandbox) -> Result<Sandbox> {
        self.fetch(Call::post("/v1/sandboxes").json(&request)).await
    }

    async fn list_sandboxes(&self) -> Result<Vec<Sandbox>> {
        self.fetch(Call::get("/v1/sandboxes")).await
    }

    async fn get_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandbox_verb(Method::GET, id, "").await
    }

    async fn destroy_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandbox_verb(Method::DELETE, id, "").await
    }

    async fn pause_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandbox_verb(Method::POST, id, "/pause").await
    }

    async fn resume_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandbox_verb(Method::POST, id, "/resume").await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandbox_verb(Method::POST, id, "/stop").await
    }

    async fn start_sandbox(&self, id: &SandboxId) -> Result<Sandbox> {
        self.sandbox_verb(Method::POST, id, "/start").await
    }

    async fn fork_sandbox(&self, id: &SandboxId, count: u64) -> Result<Vec<Sandbox>> {
        let call = Call::post(format!("/v1/sandboxes/{id}/fork"));
        self.fetch(call.json(&ForkBody { count })).await
    }

    async fn keepalive(&self, id: &SandboxId, ttl_seconds: Option<u64>) -> Result<Sandbox> {
        let call = Call::post(sandbox(id, "/keepalive"));
        self.fetch(call.json(&KeepaliveBody { ttl_seconds })).await
    }

    async fn reap_expired(&self) -> Result<Vec<SandboxId>> {
        let reaped: Reaped = self.fetch(Call::post("/v1/sandboxes/reap")).await?;
        Ok(reaped.sandbox_ids)
    }

    async fn plan(&self, request: CreateSandbox) -> Result<String> {
        let call = Call::post("/v1/plan").json(&request);
        let text = self.send(call).await?.read_all().await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    async fn run(&self, request: RunRequest) -> Result<ExecSession> {
        self.open("/v1/run".to_string(), &request).await
    }

    async fn exec(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecResult> {
        self.fetch(Call::post(sandbox(id, "/exec")).json(&request))
            .await
    }

    async fn exec_stream(&self, id: &SandboxId, request: ExecRequest) -> Result<ExecSession> {
        self.open(sandbox(id, "/exec"), &request).await
    }

    async fn exec_background(&self, id: &SandboxId, request: ExecRequest) -> Result<Background> {
        let body = ExecBody {
            exec: request,
            background: true,
        };
        self.fetch(Call::post(sandbox(id, "/exec")).json(&body))
            .await
    }

    async fn attach(
        &self,
        id: &SandboxId,
        selector: Selector,
        from: AttachFrom,
    ) -> Result<ExecSession> {
        let call = Call::post(process(id, &selector, "/stream"));
        self.open_attached(call.query(&AttachQuery::from(from))?)
            .await
    }

    async fn list_processes(&self, id: &SandboxId) -> Result<Vec<Process>> {
        self.fetch(Call::get(sandbox(id, "/processes"))).await
    }

    async fn signal_process(
        &self,
        id: &SandboxId,
        selector: Selector,
        signal: i32,
        tree: bool,
    ) -> Result<()> {
        let signal = signal.to_string();
        let call = Call::post(process(id, &selector, "/signal"));
        self.done(call.json(&SignalBody { signal, tree })).await
    }

    async fn stat(&self, id: &SandboxId, path: GuestPath, follow: bool) -> Result<FileEntry> {
        let (path, path_base64) = split_path(&path);
        let query = StatQuery {
            path,
            path_base64,
            follow: Some(follow),
        };
        self.file_query(id, "/files", &query).await
    }

    async fn list(
        &self,
        id: &SandboxId,
        path: GuestPath,
        options: ListOptions,
    ) -> Result<FilePage> {
        let (path, path_base64) = split_path(&path);
        let query = ListQuery {
            path,
            path_base64,
            depth: options.depth,
            after: options.after.map(|after| encode_base64(&after)),
            limit: options.limit,
        };
        self.file_query(id, "/files/list", &query).await
    }

    async fn read(
        &self,
        id: &SandboxId,
        path: GuestPath,
        range: ReadRange,
    ) -> Result<(FileEntry, ByteStream)> {
        let (path, path_base64) = split_path(&path);
        let query = PathQuery { path, path_base64 };
        let mut call = Call::get(sandbox(id, "/files/content")).query(&query)?;
        let nothing = range.length == Some(0);
        if !nothing && (range.offset > 0 || range.length.is_some()) {
            let last = range
                .length
                .map(|length| range.offset.saturating_add(length) - 1);
            let end = last.map_or(String::new(), |last| last.to_string());
            let value = header::HeaderValue::try_from(format!("bytes={}-{end}", range.offset))
                .map_err(|_| Error::internal("a range is not a header"))?;
            call.headers.insert(header::RANGE, value);
        }
        let answer = self.send(call).await?;
        let entry = answer.response.headers().get(ENTRY_HEADER);
        let entry = entry
            .and_then(|value| serde_json::from_slice(value.as_bytes()).ok())
            .ok_or_else(|| Error::transport("the answer does not describe the file"))?;
        // A range of no bytes cannot be asked for; the entry is all there is to fetch.
        let content = match nothing {
            true => futures_util::stream::empty().boxed(),
            false => answer.into_stream(),
        };
        Ok((entry, content))
    }

    async fn write(
        &self,
        id: &SandboxId,
        path: GuestPath,
        options: WriteOptions,
        content: ByteStream,
    ) -> Result<FileEntry> {
        let (path, path_base64) = split_path(&path);
        let query = WriteQuery {
            path,
            path_base64,
            mode: options.mode.map(format_mode),
            user: options.user,
            append: Some(options.append),
            create_new: Some(options.create_new),
            no_parents: Some(options.no_parents),
        };
        let call = Call::new(Method::PUT, sandbox(id, "/files/content")).query(&query)?;
        self.fetch(call.body(upload(content))).await
    }

    async fn mkdir(&self, id: &SandboxId, path: GuestPath, mode: Option<u32>) -> Result<FileEntry> {
        let (path, path_base64) = split_path(&path);
        let body = MkdirBody {
            at: PathBody { path, path_base64 },
            mode: mode.map(format_mode),
        };
        self.fetch(Call::post(sandbox(id, "/files/mkdir")).json(&body))
            .await
    }

    async fn remove(&self, id: &SandboxId, path: GuestPath, recursive: bool) -> Result<()> {
        let (path, path_base64) = split_path(&path);
        let query = RemoveQuery {
            path,
            path_base64,
            recursive: Some(recursive),
        };
        self.done(Call::new(Method::DELETE, sandbox(id, "/files")).query(&query)?)
            .await
    }

    async fn rename(
        &self,
        id: &SandboxId,
        from: GuestPath,
        to: GuestPath,
        overwrite: bool,
    ) -> Result<FileEntry> {
        let (from, from_base64) = split_path(&from);
        let (to, to_base64) = split_path(&to);
        let body = MoveBody {
            from,
            from_base64,
            to,
            to_base64,
            overwrite,
        };
        self.fetch(Call::post(sandbox(id, "/files/move")).json(&body))
            .await
    }

    async fn chmod(&self, id: &SandboxId, path: GuestPath, mode: u32) -> Result<FileEntry> {
        let (path, path_base64) = split_path(&path);
        let body = ChmodBody {
            at: PathBody { path, path_base64 },
            mode: format_mode(mode),
        };
        self.fetch(Call::post(sandbox(id, "/files/chmod")).json(&body))
            .await
    }

    async fn glob(&self, id: &SandboxId, pattern: &str, limit: Option<u64>) -> Result<FilePage> {
        let query = GlobQuery {
            pattern: Some(pattern.to_string()),
            limit,
        };
        self.file_query(id, "/files/glob", &query).await
    }

    async fn hash(&self, id: &SandboxId, path: GuestPath) -> Result<FileHash> {
        let (path, path_base64) = split_path(&path);
        self.file_query(id, "/files/hash", &PathQuery { path, path_base64 })
            .await
    }

    async fn watch(
        &self,
        id: &SandboxId,
        path: GuestPath,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<FileChange>>> {
        let (path, path_base64) = split_path(&path);
        let query = WatchQuery {
            path,
            path_base64,
            recursive: Some(recursive),
        };
        let call = Call::get(sandbox(id, "/files/watch")).query(&query)?;
        let lines = lines::<WatchLine>(self.send(call).await?);
        let changes = lines.map(|line| match line? {
            WatchLine::Change(change) => Ok(change),
            WatchLine::Error(error) => Err(error),
        });
        Ok(changes.boxed())
    }

    async fn read_tree(&self, id: &SandboxId, path: GuestPath) -> Result<ByteStream> {
        let (path, path_base64) = split_path(&path);
        let call = Call::get(sandbox(id, "/files/tree"));
        let call = call.query(&PathQuery { path, path_base64 })?;
        Ok(self.send(call).await?.into_stream())
    }

    async fn write_tree(
        &self,
        id: &SandboxId,
        path: GuestPath,
        archive: ByteStream,
    ) -> Result<TreeWritten> {
        let (path, path_base64) = split_path(&path);
        let call = Call::new(Method::PUT, sandbox(id, "/files/tree"));
        let call = call.query(&PathQuery { path, path_base64 })?;
        self.fetch(call.body(upload(archive))).await
    }

    async fn list_ports(&self, id: &SandboxId) -> Result<Vec<Port>> {
        self.fetch(Call::get(sandbox(id, "/ports"))).await
    }

    async fn dial(&self, id: &SandboxId, port: u16) -> Result<Connection> {
        self.upgrade(Call::get(sandbox(id, &format!("/ports/{port}/dial"))))
            .await
    }

    async fn dial_unix(&self, id: &SandboxId, path: GuestPath) -> Result<Connection> {
        let (path, path_base64) = split_path(&path);
        let call = Call::get(sandbox(id, "/sockets/dial"));
        self.upgrade(call.query(&PathQuery { path, path_base64 })?)
            .await
    }

    async fn metrics(&self, id: &SandboxId) -> Result<Metrics> {
        self.fetch(Call::get(sandbox(id, "/metrics"))).await
    }
}
