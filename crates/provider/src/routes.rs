//! What can be asked, and how it is understood.

use crate::lines::{self, Channel};
use crate::refusal::Refusal;
use crate::{Provider, is_ours};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{StatusCode, header};
use motu_core::exec::{ExecEvent, ExecMode, ExecRequest};
use motu_core::files::*;
use motu_core::sandbox::{self, CreateSandbox};
use motu_core::{Error, ErrorKind, Result, SandboxId, limits};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const HEALTH: &str = "/health";
/// How long a command may run whose caller says nothing.
const LONG: u64 = 600;
const NDJSON: &str = "application/x-ndjson";

type Shared = State<Arc<Provider>>;
type Answer<T> = std::result::Result<T, Refusal>;

pub(crate) fn router() -> Router<Arc<Provider>> {
    Router::new()
        .route("/spawn", post(spawn))
        .route("/exec", post(exec))
        .route("/files", get(read).post(write).delete(remove))
        .route("/files/list", get(list))
        .route("/files/move", post(rename))
        .route("/files/chmod", post(chmod))
        .route("/files/stat", get(stat))
        .route("/files/glob", get(glob))
        .route("/status/{id}", get(status))
        .route("/stats/{id}", get(stats))
        .route("/sandboxes", get(sandboxes))
        .route("/sandboxes/{id}", delete(destroy))
        .route(HEALTH, get(health))
}

#[derive(Deserialize)]
struct Spawn {
    image: String,
    #[serde(default)]
    memory_mb: u64,
    #[serde(default)]
    vcpus: u64,
    #[serde(default)]
    disk_size_mb: u64,
}

async fn spawn(State(provider): Shared, Json(asked): Json<Spawn>) -> Answer<Json<Value>> {
    if (provider.options.reads_host_files)(&asked.image) {
        let error = Error::new(ErrorKind::Denied, "images cannot be paths of this host");
        return Err(error.into());
    }
    // Nothing asked for is 0, as whoever leaves it out writes it.
    let given = |number: u64| (number > 0).then_some(number);
    let request = CreateSandbox {
        environment: asked.image.clone(),
        sandbox_id: Some(Provider::fresh_id()?),
        runtime: provider.options.runtime.clone(),
        policy: provider.options.policy.clone(),
        network: provider.options.policy.is_some(),
        mem_mib: given(asked.memory_mb),
        vcpu_count: given(asked.vcpus),
        disk_mib: given(asked.disk_size_mb),
        ttl_seconds: Some(provider.options.ttl_seconds),
        ..CreateSandbox::default()
    };
    let made = match provider.service.create_sandbox(request.clone()).await {
        // Known, and only not installed.
        Err(error) if error.kind == ErrorKind::NotFound && error.details["installed"] == false => {
            pull(&provider, &asked.image).await?;
            provider.service.create_sandbox(request).await
        }
        outcome => outcome,
    };
    // An image that is not there is no sandbox that is not there.
    let sandbox = made.map_err(|error| match error.kind {
        ErrorKind::NotFound => {
            Refusal::new(StatusCode::BAD_REQUEST, "IMAGE_NOT_FOUND", error.message)
        }
        _ => error.into(),
    })?;
    Ok(Json(json!({ "id": sandbox.sandbox_id })))
}

async fn pull(provider: &Provider, image: &str) -> Result<()> {
    let (sink, mut steps) = tokio::sync::mpsc::channel(16);
    let pulling = provider.service.pull_environment(image, sink);
    let listening = async { while steps.recv().await.is_some() {} };
    tokio::join!(pulling, listening).0.map(drop)
}

#[derive(Deserialize)]
struct Exec {
    sandbox_id: String,
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    workdir: String,
    #[serde(default)]
    stream: bool,
    /// Beyond the protocol: how long it may run.
    timeout_seconds: Option<u64>,
    /// Beyond the protocol: a last line of a stream says how it ended.
    #[serde(default)]
    exit: bool,
}

impl Exec {
    fn request(&self) -> Result<ExecRequest> {
        let mode = match self.mode.as_str() {
            "" | "shell" => ExecMode::Shell,
            "argv" => ExecMode::Argv,
            other => return Err(Error::invalid(format!("there is no mode {other:?}"))),
        };
        if self.command.is_empty() {
            return Err(Error::invalid("there is no command"));
        }
        let mut command = vec![self.command.clone()];
        command.extend_from_slice(&self.args);
        Ok(ExecRequest {
            command,
            mode,
            env: self.env.clone(),
            workdir: (!self.workdir.is_empty()).then(|| self.workdir.clone()),
            timeout_seconds: Some(self.timeout_seconds.unwrap_or(LONG)),
            max_output_bytes: Some(limits::MAX_OUTPUT_BYTES.max),
            ..ExecRequest::default()
        })
    }
}

async fn exec(State(provider): Shared, Json(asked): Json<Exec>) -> Answer<Response> {
    let id = Provider::own_id(&asked.sandbox_id)?;
    let request = asked.request()?;
    let service = &*provider.service;
    if asked.stream {
        let session = match service.exec_stream(&id, request).await {
            Ok(session) => session,
            Err(error) => return Err(Refusal::about(service, &id, error).await),
        };
        return Ok((
            [(header::CONTENT_TYPE, NDJSON)],
            streamed(session, asked.exit),
        )
            .into_response());
    }
    let seconds = request.timeout_seconds.unwrap_or(LONG);
    match service.exec(&id, request).await {
        Ok(done) if done.timed_out => Err(Refusal::timed_out(seconds)),
        Ok(done) => Ok(Json(Done {
            exit_code: done.exit_code,
            stdout: done.stdout,
            stderr: done.stderr,
            stdout_base64: done.stdout_base64,
            stderr_base64: done.stderr_base64,
            truncated: done.truncated,
        })
        .into_response()),
        Err(error) => Err(Refusal::about(service, &id, error).await),
    }
}

#[derive(Serialize)]
struct Done {
    exit_code: i32,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_base64: Option<String>,
    truncated: bool,
}

/// The events of a session as lines. A reader who leaves ends the command.
fn streamed(session: motu_core::exec::ExecSession, exit: bool) -> Body {
    let channels = (Channel::new("stdout"), Channel::new("stderr"));
    let lines = stream::unfold(Some((session, channels)), move |state| async move {
        let (mut session, (mut out, mut err)) = state?;
        let mut text = Vec::new();
        let over = match session.events.next().await {
            Some(Ok(ExecEvent::Stdout(bytes))) => {
                text = out.say(&bytes);
                false
            }
            Some(Ok(ExecEvent::Stderr(bytes))) => {
                text = err.say(&bytes);
                false
            }
            Some(Ok(ExecEvent::Gap(gap))) => {
                text = lines::failed(&format!("{} bytes of output were lost", gap.to - gap.from));
                false
            }
            Some(Ok(ExecEvent::Exited(exited))) => {
                text.extend(out.end());
                text.extend(err.end());
                if exited.timed_out {
                    text.extend(lines::failed("the command took too long and was ended"));
                }
                if exit {
                    text.extend(lines::ended(&exited));
                }
                true
            }
            Some(Ok(ExecEvent::Sandbox(_) | ExecEvent::Started(_))) => false,
            Some(Err(error)) => {
                text.extend(out.end());
                text.extend(err.end());
                text.extend(lines::failed(&error.message));
                true
            }
            None => true,
        };
        let next = (!over).then_some((session, (out, err)));
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), next))
    });
    Body::from_stream(lines)
}

#[derive(Deserialize)]
struct At {
    sandbox_id: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    mode: String,
}

impl At {
    fn id(&self) -> Result<SandboxId> {
        Provider::own_id(&self.sandbox_id)
    }

    fn path(&self) -> Result<GuestPath> {
        place(&self.path)
    }
}

/// A path in the sandbox; what is not absolute is below its usual working directory.
fn place(path: &str) -> Result<GuestPath> {
    match path.strip_prefix('/') {
        Some(_) => GuestPath::new(path.as_bytes().to_vec()),
        None => GuestPath::new(format!("/workspace/{path}").into_bytes()),
    }
}

#[derive(Deserialize)]
struct Write {
    sandbox_id: String,
    path: String,
    #[serde(default)]
    content: String,
    /// Beyond the protocol: bytes that are no text, instead of `content`.
    content_base64: Option<String>,
    #[serde(default)]
    mode: String,
}

async fn write(State(provider): Shared, Json(asked): Json<Write>) -> Answer<StatusCode> {
    let id = Provider::own_id(&asked.sandbox_id)?;
    let mode = match asked.mode.as_str() {
        "" => None,
        mode => Some(parse_mode(mode)?),
    };
    let content = match asked.content_base64 {
        Some(text) => decode_base64(&text)?,
        None => Bytes::from(asked.content),
    };
    let options = WriteOptions {
        mode,
        ..WriteOptions::default()
    };
    let write = WriteFile::new(place(&asked.path)?, options);
    let content = stream::iter([Ok(content)]).boxed();
    let written = provider.service.write_file(&id, write, content).await;
    settled(&provider, &id, written.map(drop)).await
}

async fn read(State(provider): Shared, Query(asked): Query<At>) -> Answer<Response> {
    let id = asked.id()?;
    let read = ReadFile::new(asked.path()?, ReadRange::default());
    match provider.service.read_file(&id, read).await {
        Ok((entry, content)) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream".to_string()),
                (header::CONTENT_LENGTH, entry.size_bytes.to_string()),
            ];
            Ok((headers, Body::from_stream(content)).into_response())
        }
        Err(error) => Err(Refusal::about(&*provider.service, &id, error).await),
    }
}

async fn remove(State(provider): Shared, Json(asked): Json<At>) -> Answer<StatusCode> {
    let id = asked.id()?;
    let remove = RemoveFile {
        path: asked.path()?,
        recursive: asked.recursive,
    };
    let removed = provider.service.remove_file(&id, remove).await;
    settled(&provider, &id, removed).await
}

#[derive(Deserialize)]
struct Rename {
    sandbox_id: String,
    old_path: String,
    new_path: String,
}

async fn rename(State(provider): Shared, Json(asked): Json<Rename>) -> Answer<StatusCode> {
    let id = Provider::own_id(&asked.sandbox_id)?;
    let move_file = MoveFile {
        from: place(&asked.old_path)?,
        to: place(&asked.new_path)?,
        overwrite: true,
    };
    let moved = provider.service.move_file(&id, move_file).await;
    settled(&provider, &id, moved.map(drop)).await
}

async fn chmod(State(provider): Shared, Json(asked): Json<At>) -> Answer<StatusCode> {
    let id = asked.id()?;
    let change = ChangeMode {
        path: asked.path()?,
        mode: parse_mode(&asked.mode)?,
    };
    let changed = provider.service.chmod(&id, change).await;
    settled(&provider, &id, changed.map(drop)).await
}

/// The names of these fields are the protocol's.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FileInfo {
    path: String,
    size: u64,
    mode: String,
    is_dir: bool,
    mod_time: String,
}

impl From<FileEntry> for FileInfo {
    fn from(entry: FileEntry) -> FileInfo {
        FileInfo {
            path: entry.path,
            size: entry.size_bytes,
            mode: format_mode(entry.mode),
            is_dir: entry.kind == FileType::Directory,
            mod_time: entry.modified_at.to_string(),
        }
    }
}

async fn stat(State(provider): Shared, Query(asked): Query<At>) -> Answer<Json<FileInfo>> {
    let id = asked.id()?;
    let stat = StatFile {
        path: asked.path()?,
        follow: false,
    };
    let found = provider.service.stat(&id, stat).await;
    told(&provider, &id, found)
        .await
        .map(|entry| Json(entry.into()))
}

async fn list(State(provider): Shared, Query(asked): Query<At>) -> Answer<Json<Vec<FileInfo>>> {
    let id = asked.id()?;
    let path = asked.path()?;
    let (mut all, mut after) = (Vec::new(), None);
    // The protocol has no pages; what is beyond this many entries is refused, never cut silently.
    loop {
        let limit = Some(limits::LIST_ENTRIES.max);
        let options = ListOptions {
            depth: None,
            after,
            limit,
        };
        let page = provider
            .service
            .list_files(&id, ListFiles::new(path.clone(), options));
        let page = told(&provider, &id, page.await).await?;
        all.extend(page.entries.into_iter().map(FileInfo::from));
        match page.next {
            None => return Ok(Json(all)),
            Some(_) if all.len() as u64 >= limits::PROVIDER_ENTRIES.max => {
                return Err(too_many(&limits::PROVIDER_ENTRIES).into());
            }
            Some(next) => after = Some(decode_base64(&next)?),
        }
    }
}

async fn glob(State(provider): Shared, Query(asked): Query<At>) -> Answer<Json<Vec<String>>> {
    let id = asked.id()?;
    let pattern = match asked.pattern.starts_with('/') {
        true => asked.pattern.clone(),
        false => format!("/workspace/{}", asked.pattern),
    };
    let find = FindFiles::new(pattern, Some(limits::LIST_ENTRIES.max));
    let found = told(&provider, &id, provider.service.glob(&id, find).await).await?;
    match found.next {
        None => Ok(Json(
            found.entries.into_iter().map(|entry| entry.path).collect(),
        )),
        Some(_) => Err(too_many(&limits::LIST_ENTRIES).into()),
    }
}

fn too_many(limit: &limits::Limit) -> Error {
    Error::limit(format!(
        "there are more paths than {} ({})",
        limit.name, limit.max
    ))
    .hint("ask for a directory further down, or for a narrower pattern")
}

async fn status(State(provider): Shared, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = Provider::own_id(&id)?;
    let found = provider.service.get_sandbox(&id).await;
    let found = told(&provider, &id, found).await?;
    match found.state {
        sandbox::State::Destroying | sandbox::State::Destroyed => Err(Refusal::new(
            StatusCode::GONE,
            "DESTROYED",
            format!("{id} was destroyed"),
        )),
        state => Ok(Json(json!({ "id": id, "state": state }))),
    }
}

async fn stats(State(provider): Shared, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = Provider::own_id(&id)?;
    let found = provider.service.metrics(&id).await;
    let found = told(&provider, &id, found).await?;
    Ok(Json(json!({
        "cpu_us": found.cpu_us,
        "memory_bytes": found.memory_used_bytes,
        "memory_limit_bytes": found.memory_total_bytes,
        "disk_bytes": found.disk_used_bytes,
    })))
}

async fn sandboxes(State(provider): Shared) -> Answer<Json<Value>> {
    let all = provider
        .service
        .list_sandboxes(sandbox::ListSandboxes::default())
        .await?;
    let own = all
        .sandboxes
        .into_iter()
        .filter(|one| is_ours(&one.sandbox_id));
    let own = own.map(|one| {
        json!({
            "id": one.sandbox_id,
            "state": one.state,
            "image": one.environment,
            "created_at": one.created_at,
        })
    });
    Ok(Json(own.collect()))
}

async fn destroy(State(provider): Shared, Path(id): Path<String>) -> Answer<StatusCode> {
    let id = Provider::own_id(&id)?;
    provider.service.destroy_sandbox(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn health(State(provider): Shared) -> Answer<Json<Value>> {
    let version = provider.service.version().await?;
    Ok(Json(json!({ "status": "ok", "version": version.version })))
}

async fn told<T>(provider: &Provider, id: &SandboxId, outcome: Result<T>) -> Answer<T> {
    match outcome {
        Ok(found) => Ok(found),
        Err(error) => Err(Refusal::about(&*provider.service, id, error).await),
    }
}

async fn settled(provider: &Provider, id: &SandboxId, outcome: Result<()>) -> Answer<StatusCode> {
    told(provider, id, outcome)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}
