//! The agent of a machine: Connect calls with JSON, and files.

use super::files;
use super::process::{Order, Process};
use super::sandbox::Sandbox;
use super::served::{Known, complaint};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A Connect code and its message.
pub type Refused = (&'static str, String);

pub fn routes() -> Router<Known> {
    Router::new()
        .route("/process.Process/{method}", post(process))
        .route("/filesystem.Filesystem/{method}", post(filesystem))
        .route("/files", get(files::read).post(files::write))
        .route("/metrics", get(metrics))
}

/// The machine of a call, if the caller is authorized.
pub fn admitted(service: &Known, headers: &HeaderMap) -> Result<Arc<Sandbox>, Box<Response>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = text("e2b-sandbox-id").unwrap_or_default();
    let found = service.find(id).filter(|sandbox| !sandbox.is_paused());
    let Some(sandbox) = found.filter(|_| text("e2b-sandbox-port") == Some("49983")) else {
        let body = json!({ "sandboxId": id, "message": "The sandbox was not found", "code": 502 });
        return Err(Box::new(
            (StatusCode::BAD_GATEWAY, axum::Json(body)).into_response(),
        ));
    };
    if text("x-access-token") != Some(&sandbox.token) {
        return Err(Box::new(complaint(
            StatusCode::UNAUTHORIZED,
            "no such token",
        )));
    }
    let user = text("authorization").map(|basic| {
        let name = BASE64.decode(basic.strip_prefix("Basic ").unwrap_or_default());
        String::from_utf8(name.unwrap_or_default()).unwrap_or_default()
    });
    match user.as_deref() {
        None | Some("root:" | "user:") => Ok(sandbox),
        Some(_) => {
            let body = json!({ "code": "unauthenticated", "message": "invalid username" });
            Err(Box::new(
                (StatusCode::UNAUTHORIZED, axum::Json(body)).into_response(),
            ))
        }
    }
}

async fn process(
    State(service): State<Known>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let sandbox = match admitted(&service, &headers) {
        Ok(sandbox) => sandbox,
        Err(refused) => return *refused,
    };
    service.note(format!("agent {method}"));
    let streams = matches!(method.as_str(), "Start" | "Connect");
    let kind = if streams {
        "application/connect+json"
    } else {
        "application/json"
    };
    let version = headers
        .get("connect-protocol-version")
        .is_some_and(|one| one == "1");
    if !version
        || headers
            .get("content-type")
            .is_none_or(|found| found != kind)
    {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    if !streams {
        let asked = serde_json::from_slice(&body).unwrap_or_default();
        let unary = move || unary(&sandbox, &method, &asked);
        let said = tokio::task::spawn_blocking(unary)
            .await
            .expect("it is answered");
        return answered(said);
    }
    // Exactly one message.
    let length = body
        .get(1..5)
        .map(|four| u32::from_be_bytes(four.try_into().expect("four")) as usize);
    let whole = body.first() == Some(&0) && length == body.len().checked_sub(5);
    let asked: Value = match whole.then(|| serde_json::from_slice(&body[5..])) {
        Some(Ok(asked)) => asked,
        _ => return StatusCode::BAD_REQUEST.into_response(),
    };
    let begun = match method.as_str() {
        "Start" => start(&sandbox, &asked),
        _ => found(&sandbox, &asked).and_then(|process| {
            let heard = process.listen(service.kind.forgetful);
            let heard = heard.ok_or_else(|| missing(&asked))?;
            Ok((process.pid, heard))
        }),
    };
    streamed(begun)
}

fn start(sandbox: &Sandbox, asked: &Value) -> Result<(u32, mpsc::Receiver<Value>), Refused> {
    let size = &asked["pty"]["size"];
    let side = |name: &str| {
        size[name]
            .as_u64()
            .and_then(|side| u16::try_from(side).ok())
    };
    let order = Order {
        config: asked["process"].clone(),
        size: side("cols").zip(side("rows")),
        tag: asked["tag"].as_str().unwrap_or_default().to_string(),
        stdin: asked["stdin"].as_bool().unwrap_or(true),
    };
    let (process, heard) =
        Process::start(sandbox, order).map_err(|why| ("invalid_argument", why))?;
    let pid = process.pid;
    sandbox
        .processes
        .lock()
        .expect("not poisoned")
        .insert(pid, process);
    Ok((pid, heard))
}

fn missing(asked: &Value) -> Refused {
    (
        "not_found",
        format!("process {} not found", asked["process"]),
    )
}

fn found(sandbox: &Sandbox, asked: &Value) -> Result<Arc<Process>, Refused> {
    let pid = asked["process"]["pid"]
        .as_u64()
        .and_then(|pid| u32::try_from(pid).ok());
    let all = sandbox.processes.lock().expect("not poisoned");
    let process = pid.and_then(|pid| all.get(&pid)).cloned();
    process.ok_or_else(|| missing(asked))
}

fn unary(sandbox: &Sandbox, method: &str, asked: &Value) -> Result<Value, Refused> {
    let wrong = |why: String| ("failed_precondition", why);
    let number = |value: &Value| value.as_u64().and_then(|side| u16::try_from(side).ok());
    match method {
        "List" => {
            let all = sandbox.processes.lock().expect("not poisoned");
            let living = all.values().filter(|process| !process.has_ended());
            let listed =
                living.map(|one| json!({ "pid": one.pid, "tag": one.tag, "config": one.config }));
            Ok(json!({ "processes": listed.collect::<Vec<_>>() }))
        }
        "SendInput" => {
            let process = living(sandbox, asked)?;
            let pty = asked["input"]["pty"].is_string();
            let text = asked["input"][if pty { "pty" } else { "stdin" }].as_str();
            let bytes = BASE64.decode(text.unwrap_or_default());
            let bytes = bytes.map_err(|error| ("invalid_argument", error.to_string()))?;
            process.input(&bytes, pty).map_err(wrong)?;
            Ok(json!({}))
        }
        "CloseStdin" => {
            living(sandbox, asked)?.close_stdin();
            Ok(json!({}))
        }
        "Update" => {
            let size = &asked["pty"]["size"];
            let size = number(&size["cols"]).zip(number(&size["rows"]));
            let size = size.ok_or(("invalid_argument", "no size".to_string()))?;
            living(sandbox, asked)?.resize(size).map_err(wrong)?;
            Ok(json!({}))
        }
        other => Err(("unimplemented", other.to_string())),
    }
}

fn living(sandbox: &Sandbox, asked: &Value) -> Result<Arc<Process>, Refused> {
    let process = found(sandbox, asked)?;
    match process.has_ended() {
        true => Err(missing(asked)),
        false => Ok(process),
    }
}

async fn filesystem(
    State(service): State<Known>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match admitted(&service, &headers) {
        Ok(_) => {}
        Err(refused) => return *refused,
    }
    if headers
        .get("content-type")
        .is_none_or(|found| found != "application/json")
    {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let asked = serde_json::from_slice(&body).unwrap_or_default();
    answered(files::call(&method, &asked))
}

async fn metrics(State(service): State<Known>, headers: HeaderMap) -> Response {
    match admitted(&service, &headers) {
        Ok(_) => axum::Json(json!({
            "ts": 1, "cpu_count": 2, "cpu_used_pct": 0.5, "mem_total": 1 << 29, "mem_used": 1 << 20,
            "disk_used": 1 << 20, "disk_total": 1 << 30,
        }))
        .into_response(),
        Err(refused) => *refused,
    }
}

fn answered(said: Result<Value, Refused>) -> Response {
    match said {
        Ok(said) => axum::Json(said).into_response(),
        Err((code, message)) => {
            let status = match code {
                "not_found" => StatusCode::NOT_FOUND,
                "already_exists" => StatusCode::CONFLICT,
                "unimplemented" => StatusCode::NOT_IMPLEMENTED,
                "internal" => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::BAD_REQUEST,
            };
            let body = json!({ "code": code, "message": message });
            (status, axum::Json(body)).into_response()
        }
    }
}

fn message(flags: u8, said: &Value) -> Bytes {
    let text = said.to_string();
    let mut bytes = vec![flags];
    bytes.extend_from_slice(&u32::try_from(text.len()).expect("short").to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.into()
}

/// A stream of messages with status 200 in any case. A cut one has no end message.
fn streamed(begun: Result<(u32, mpsc::Receiver<Value>), Refused>) -> Response {
    let body = match begun {
        Err((code, why)) => {
            let error = json!({ "error": { "code": code, "message": why } });
            Body::from(message(2, &error))
        }
        Ok((pid, heard)) => {
            let first = json!({ "event": { "start": { "pid": pid } } });
            let state = (Some(first), heard, false);
            Body::from_stream(unfold(state, |(first, mut heard, over)| async move {
                if over {
                    return None;
                }
                let said = match first {
                    Some(first) => first,
                    None => heard.recv().await?,
                };
                let mut bytes = message(0, &said).to_vec();
                let over = said["event"].get("end").is_some();
                if over {
                    bytes.extend_from_slice(&message(2, &json!({})));
                }
                Some((
                    Ok::<_, std::io::Error>(Bytes::from(bytes)),
                    (None, heard, over),
                ))
            }))
        }
    };
    let kind = [("content-type", "application/connect+json")];
    (StatusCode::OK, kind, body).into_response()
}
