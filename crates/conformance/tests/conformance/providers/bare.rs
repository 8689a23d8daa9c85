//! The bare provider protocol, as written by somebody who does not know motu: no base64, no exit
//! code in streams, missing files as 500, a health check without a body.

use axum::body::Bytes;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures_util::StreamExt as _;
use http::StatusCode;
use motu_core::exec::{ExecMode, ExecRequest};
use motu_core::files::*;
use motu_core::sandbox::{self, CreateSandbox};
use motu_core::{Error, ErrorKind, Program, SandboxId, Service, limits};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

struct App {
    service: Arc<dyn Service>,
    runtime: String,
    key: String,
}

type Shared = State<Arc<App>>;

/// An error as this service tells it.
struct Refused(StatusCode, String);

type Answer<T> = Result<T, Refused>;

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "message": self.1 }))).into_response()
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        let status = match error.kind {
            ErrorKind::Timeout => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::Limit => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refused(status, error.message)
    }
}

pub async fn serve(
    service: Arc<dyn Service>,
    runtime: &str,
    (address, key): (SocketAddr, &str),
    listening: impl FnOnce(SocketAddr),
) {
    let app = Arc::new(App {
        service,
        runtime: runtime.to_string(),
        key: key.to_string(),
    });
    let router = Router::new()
        .route("/spawn", post(spawn))
        .route("/exec", post(exec))
        .route("/files", get(read).post(write).delete(remove))
        .route("/files/list", get(list))
        .route("/files/move", post(rename))
        .route("/files/chmod", post(chmod))
        .route("/files/stat", get(stat))
        .route("/files/glob", get(glob))
        .route("/status/{id}", get(status))
        .route("/sandboxes/{id}", delete(destroy))
        .route("/health", get(|| async { "ok" }))
        .layer(axum::extract::DefaultBodyLimit::max(32 << 20))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guarded))
        .with_state(app);
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .expect("a port");
    listening(listener.local_addr().expect("an address"));
    axum::serve(listener, router).await.expect("it serves");
}

async fn guarded(State(app): Shared, request: Request, next: Next) -> Response {
    let shown = request.headers().get("x-api-key");
    let known = shown.is_some_and(|shown| shown.as_bytes() == app.key.as_bytes());
    match known || request.uri().path() == "/health" {
        true => next.run(request).await,
        false => Refused(StatusCode::UNAUTHORIZED, "no".into()).into_response(),
    }
}

/// The sandbox, if it is there.
async fn living(app: &App, id: &str) -> Answer<SandboxId> {
    let unknown = || Refused(StatusCode::NOT_FOUND, "no such sandbox".into());
    let id = SandboxId::parse(id).map_err(|_| unknown())?;
    match app
        .service
        .get_sandbox(&id)
        .await
        .map_err(|_| unknown())?
        .state
    {
        sandbox::State::Running => Ok(id),
        _ => Err(Refused(StatusCode::GONE, "destroyed".into())),
    }
}

#[derive(Deserialize)]
struct Spawn {
    image: String,
}

async fn spawn(State(app): Shared, Json(asked): Json<Spawn>) -> Answer<Json<Value>> {
    let request = CreateSandbox {
        environment: asked.image,
        runtime: Some(app.runtime.clone()),
        ..CreateSandbox::default()
    };
    let made = app.service.create_sandbox(request).await?;
    Ok(Json(json!({ "id": made.sandbox_id })))
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
}

async fn exec(State(app): Shared, Json(asked): Json<Exec>) -> Answer<Json<Value>> {
    let id = living(&app, &asked.sandbox_id).await?;
    let mut command = vec![asked.command];
    command.extend(asked.args);
    let request = ExecRequest {
        program: Program {
            command,
            mode: match asked.mode.as_str() {
                "argv" => ExecMode::Argv,
                _ => ExecMode::Shell,
            },
            env: asked.env,
            workdir: (!asked.workdir.is_empty()).then_some(asked.workdir),
            max_output_bytes: Some(limits::MAX_OUTPUT_BYTES.max),
            ..Program::default()
        },
        no_timeout: true,
        ..ExecRequest::default()
    };
    let done = app.service.exec(&id, request).await?;
    Ok(Json(json!({
        "exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr,
    })))
}

#[derive(Deserialize)]
struct At {
    sandbox_id: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    old_path: String,
    #[serde(default)]
    new_path: String,
}

fn place(path: &str) -> Answer<GuestPath> {
    Ok(GuestPath::new(path.as_bytes().to_vec())?)
}

async fn write(State(app): Shared, Json(at): Json<At>) -> Answer<StatusCode> {
    let id = living(&app, &at.sandbox_id).await?;
    let options = WriteOptions {
        mode: match at.mode.as_str() {
            "" => None,
            mode => Some(parse_mode(mode)?),
        },
        ..WriteOptions::default()
    };
    let content = futures_util::stream::iter([Ok(Bytes::from(at.content))]).boxed();
    let write = WriteFile::new(place(&at.path)?, options);
    app.service.write_file(&id, write, content).await?;
    Ok(StatusCode::CREATED)
}

async fn read(State(app): Shared, Query(at): Query<At>) -> Answer<Vec<u8>> {
    let id = living(&app, &at.sandbox_id).await?;
    let read = ReadFile::new(place(&at.path)?, ReadRange::default());
    let (_, mut content) = app.service.read_file(&id, read).await?;
    let mut whole = Vec::new();
    while let Some(piece) = content.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole)
}

async fn remove(State(app): Shared, Json(at): Json<At>) -> Answer<StatusCode> {
    let id = living(&app, &at.sandbox_id).await?;
    let remove = RemoveFile {
        path: place(&at.path)?,
        recursive: at.recursive,
        user: None,
    };
    app.service.remove_file(&id, remove).await?;
    Ok(StatusCode::OK)
}

fn info(entry: FileEntry) -> Value {
    json!({
        "path": entry.path, "size": entry.size_bytes, "mode": entry.permissions,
        "IsDir": entry.kind == FileType::Directory, "ModTime": entry.modified_at.to_string(),
    })
}

async fn list(State(app): Shared, Query(at): Query<At>) -> Answer<Json<Vec<Value>>> {
    let id = living(&app, &at.sandbox_id).await?;
    let options = ListOptions {
        limit: Some(limits::LIST_ENTRIES.max),
        ..ListOptions::default()
    };
    let list = ListFiles::new(place(&at.path)?, options);
    let page = app.service.list_files(&id, list).await?;
    Ok(Json(page.entries.into_iter().map(info).collect()))
}

async fn stat(State(app): Shared, Query(at): Query<At>) -> Answer<Json<Value>> {
    let id = living(&app, &at.sandbox_id).await?;
    let stat = StatFile {
        path: place(&at.path)?,
        follow: true,
        user: None,
    };
    Ok(Json(info(app.service.stat(&id, stat).await?)))
}

async fn glob(State(app): Shared, Query(at): Query<At>) -> Answer<Json<Vec<String>>> {
    let id = living(&app, &at.sandbox_id).await?;
    let found = app
        .service
        .glob(&id, FindFiles::new(at.pattern, None))
        .await?;
    Ok(Json(
        found.entries.into_iter().map(|entry| entry.path).collect(),
    ))
}

async fn rename(State(app): Shared, Json(at): Json<At>) -> Answer<StatusCode> {
    let id = living(&app, &at.sandbox_id).await?;
    let wanted = MoveFile {
        from: place(&at.old_path)?,
        to: place(&at.new_path)?,
        overwrite: true,
        user: None,
    };
    app.service.move_file(&id, wanted).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn chmod(State(app): Shared, Json(at): Json<At>) -> Answer<StatusCode> {
    let id = living(&app, &at.sandbox_id).await?;
    let change = ChangeMode {
        path: place(&at.path)?,
        mode: parse_mode(&at.mode)?,
        user: None,
    };
    app.service.chmod(&id, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn status(State(app): Shared, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = living(&app, &id).await?;
    Ok(Json(json!({ "id": id })))
}

async fn destroy(State(app): Shared, Path(id): Path<String>) -> Answer<StatusCode> {
    let id = living(&app, &id).await?;
    app.service.destroy_sandbox(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
