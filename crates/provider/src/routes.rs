//! The routes and their parameters.

use crate::files;
use crate::lines::{self, Channel};
use crate::refusal::{Answer, Refusal, Shared, told};
use crate::{OURS, Provider, is_ours};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{StatusCode, header};
use motu_core::exec::{ExecEvent, ExecMode, ExecRequest};
use motu_core::sandbox::{self, CreateSandbox};
use motu_core::{Error, ErrorKind, Program, Result, Size, limits, project};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const HEALTH: &str = "/health";
/// The default timeout of a command, in seconds.
const LONG: u64 = 600;
/// Supported extensions of the protocol; docs/provider.md describes them.
const EXTENSIONS: [&str; 12] = [
    "binary",
    "cancel",
    "errors",
    "exit",
    "file_facts",
    "limits",
    "mkdir",
    "overwrite",
    "spawn_id",
    "stats",
    "timeout",
    "write_options",
];
const NDJSON: &str = "application/x-ndjson";

pub(crate) fn router() -> Router<Arc<Provider>> {
    Router::new()
        .route("/spawn", post(spawn))
        .route("/exec", post(exec))
        .merge(files::router())
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
    /// Extension of the protocol: the id of the new sandbox, so that a caller that never receives
    /// the answer can destroy it.
    id: Option<String>,
}

async fn spawn(State(provider): Shared, Json(asked): Json<Spawn>) -> Answer<Json<Value>> {
    if (provider.options.reads_host_files)(&asked.image) {
        let error = Error::new(ErrorKind::Denied, "images cannot be paths of this host");
        return Err(error.into());
    }
    check_image(&provider, &asked.image).await?;
    // 0 means unset, because some clients send it for missing values.
    let given = |number: u64| (number > 0).then_some(number);
    let request = CreateSandbox {
        environment: asked.image.clone(),
        sandbox_id: Some(match &asked.id {
            Some(id) => Provider::own_id(id).map_err(|_| wrong_id())?,
            None => Provider::fresh_id()?,
        }),
        runtime: provider.options.runtime.clone(),
        policy: provider.options.policy.clone(),
        network: provider.options.policy.is_some(),
        size: Size {
            mem_mib: given(asked.memory_mb),
            vcpu_count: given(asked.vcpus),
            disk_mib: given(asked.disk_size_mb),
        },
        ttl_seconds: Some(provider.options.ttl_seconds),
        ..CreateSandbox::default()
    };
    let made = match provider.service.create_sandbox(request.clone()).await {
        // A known environment that is not installed.
        Err(error) if error.kind == ErrorKind::NotFound && error.details["installed"] == false => {
            pull(&provider, &asked.image).await?;
            provider.service.create_sandbox(request).await
        }
        outcome => outcome,
    };
    // A missing image must not look like a missing sandbox.
    let sandbox = made.map_err(|error| match error.kind {
        ErrorKind::NotFound => {
            Refusal::new(StatusCode::BAD_REQUEST, "IMAGE_NOT_FOUND", error.message)
        }
        _ => error.into(),
    })?;
    Ok(Json(json!({
        "id": sandbox.sandbox_id,
        "isolation": sandbox.isolation,
        "limits": sandbox.limits,
    })))
}

/// The key of a provider is no project's: of environments, those of the host are there for it.
async fn check_image(provider: &Provider, image: &str) -> Answer<()> {
    let found = provider.service.inspect_environment(image).await;
    let theirs = found.is_ok_and(|found| !project::sees(None, &found.owner));
    if !theirs && !project::is_elsewhere(None, image) {
        return Ok(());
    }
    let message = motu_core::report::no_environment(image).message;
    let status = StatusCode::BAD_REQUEST;
    Err(Refusal::new(status, "IMAGE_NOT_FOUND", message))
}

fn wrong_id() -> Error {
    Error::invalid(format!(
        "an id that a caller chooses begins with {OURS} and has only a-z, 0-9 and '-'"
    ))
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
    /// Extension of the protocol: the timeout; 0 means none.
    timeout_seconds: Option<u64>,
    /// Extension of the protocol: the last line of a stream has the exit.
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
            program: Program {
                command,
                mode,
                env: self.env.clone(),
                workdir: (!self.workdir.is_empty()).then(|| self.workdir.clone()),
                timeout_seconds: Some(self.timeout_seconds.unwrap_or(LONG))
                    .filter(|limit| *limit > 0),
                max_output_bytes: Some(limits::MAX_OUTPUT_BYTES.max),
                ..Program::default()
            },
            no_timeout: self.timeout_seconds == Some(0),
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
    let seconds = request.program.timeout_seconds.unwrap_or(LONG);
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

/// The events of a session as lines. The command is killed if the client disconnects.
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
                if exited.timed_out && !exit {
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
                text.extend(lines::failed(&error.shown().message));
                true
            }
            None => true,
        };
        let next = (!over).then_some((session, (out, err)));
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), next))
    });
    Body::from_stream(lines)
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
        "cpus": found.cpus,
        "memory_bytes": found.memory_used_bytes,
        "memory_limit_bytes": found.memory_total_bytes,
        "disk_bytes": found.disk_used_bytes,
        "disk_limit_bytes": found.disk_total_bytes,
        "processes": found.processes,
        "uptime_ms": found.uptime_ms,
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
    Ok(Json(json!({
        "status": "ok",
        "version": version.version,
        "isolation": provider.isolation().await,
        "id_prefix": OURS,
        "extensions": EXTENSIONS,
    })))
}
