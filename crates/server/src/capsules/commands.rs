//! Commands and processes of a capsule, and what it uses.

use super::shapes::{NewCommand, Point, Ran, Running, Started};
use super::{Answer, desk, id};
use crate::app::App;
use crate::extract::{At, Introduced, Params, read_json};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use motu_core::exec::{ExecResult, NotStarted, Selector, SignalProcess};
use motu_core::id::random_hex;
use motu_core::metrics::{MetricsRange, ReadMetrics};
use motu_core::{Error, ErrorKind, Signal, verb};
use serde::Deserialize;
use serde_json::{Value, json};

pub async fn exec(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    body: Body,
) -> Answer<Response> {
    let desk = desk(app, caller);
    let new: NewCommand = read_json(body).await?;
    let (id, mut ask) = (id(&one)?, new.request());
    if new.background {
        ask.tag
            .get_or_insert_with(|| format!("proc-{}", random_hex(8)));
        let started = desk
            .call(verb::ExecBackground {
                id: id.clone(),
                ask,
            })
            .await?;
        let started = Started {
            sandbox_id: id,
            cmd: new.cmd,
            pid: started.pid,
            tag: started.tag,
        };
        return Ok((StatusCode::ACCEPTED, Json(started)).into_response());
    }
    let limit = ask.program.timeout_seconds;
    let result = desk.call(verb::Exec { id, ask }).await?;
    if result.timed_out {
        return Err(overdue(limit, ran(new.cmd, result)).into());
    }
    if result.not_started == Some(NotStarted::NoSuchDirectory) {
        return Err(nowhere(&result).into());
    }
    Ok(Json(ran(new.cmd, result)).into_response())
}

/// The error of a command whose time was over, with what it had printed until then.
fn overdue(limit: Option<u64>, ran: Ran) -> Error {
    let limit = limit.map_or(String::new(), |seconds| format!(" of {seconds} s"));
    let message = format!("the command did not end within its time{limit}, and was killed");
    Error::new(ErrorKind::Timeout, message)
        .hint("give a longer `timeout_sec`, or run it with `background`")
        .details(json!({
            "timed_out": true, "stdout": ran.stdout, "stderr": ran.stderr,
            "encoding": ran.encoding, "exit_code": ran.exit_code, "truncated": ran.truncated,
        }))
}

/// The error of a command whose directory is not there, or is none.
fn nowhere(result: &ExecResult) -> Error {
    let why = result.stderr.trim().trim_start_matches("motu: ");
    Error::invalid(format!("cwd: {why}"))
        .hint("make the directory, or name another")
        .details(json!({"field": "cwd"}))
}

/// Both streams as text, or both in base64.
fn ran(cmd: String, result: ExecResult) -> Ran {
    let text = result.stdout_base64.is_none() && result.stderr_base64.is_none();
    let encoded =
        |base64: Option<String>, text: &str| base64.unwrap_or_else(|| STANDARD.encode(text));
    let (stdout, stderr) = match text {
        true => (result.stdout, result.stderr),
        false => (
            encoded(result.stdout_base64, &result.stdout),
            encoded(result.stderr_base64, &result.stderr),
        ),
    };
    Ran {
        sandbox_id: result.sandbox_id,
        cmd,
        stdout,
        stderr,
        exit_code: result.exit_code,
        duration_ms: result.duration_ms,
        encoding: if text { "utf-8" } else { "base64" },
        timed_out: result.timed_out,
        truncated: result.truncated,
    }
}

/// Those that run; what ended is in the list of the sandbox.
pub async fn list(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<Json<Value>> {
    let (id, ask) = (id(&one)?, Default::default());
    let all = desk(app, caller)
        .call(verb::ListProcesses { id, ask })
        .await?;
    let running = all.into_iter().filter(|process| process.exited.is_none());
    let running: Vec<Running> = running.map(Running::of).collect();
    Ok(Json(json!({"processes": running})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kill {
    signal: Option<Signal>,
}

/// Ends a process by its pid or tag.
pub async fn kill(
    app: State<App>,
    caller: Introduced,
    At((one, selector)): At<(String, String)>,
    Params(kill): Params<Kill>,
) -> Answer<StatusCode> {
    let ask = SignalProcess {
        signal: kill.signal.unwrap_or(Signal::KILL),
        tree: false,
    };
    let (id, selector) = (id(&one)?, Selector::parse(&selector)?);
    desk(app, caller)
        .call(verb::SignalOne { id, selector, ask })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Since {
    range: MetricsRange,
}

pub async fn metrics(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    Params(since): Params<Since>,
) -> Answer<Json<Value>> {
    let (id, ask) = (id(&one)?, ReadMetrics { range: since.range });
    let history = desk(app, caller)
        .call(verb::HistoryOfMetrics { id, ask })
        .await?;
    let points = history.points.into_iter().map(|point| Point {
        timestamp_unix: point.at.as_second(),
        cpu_pct: point.cpu_pct,
        mem_bytes: point.mem_bytes,
        disk_bytes: point.disk_bytes,
    });
    let points: Vec<Point> = points.collect();
    Ok(Json(json!({
        "sandbox_id": history.sandbox_id, "range": history.range, "points": points,
    })))
}
