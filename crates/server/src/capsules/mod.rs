//! Sandboxes in the words of host agents: `/v1/capsules`, and templates as `/v1/snapshots`.
//!
//! Each address translates a request, calls verbs at the gate and translates the answer. Errors are
//! those of every other address.

mod commands;
mod files;
mod live;
pub mod shapes;
mod snapshots;
mod telling;

use crate::app::App;
use crate::extract::{At, Introduced, read_json};
use crate::fault::Fault;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use http::StatusCode;
use motu_core::limits::TTL_SECONDS;
use motu_core::sandbox::{CreateSandbox, Keepalive, ListSandboxes, OnIdle};
use motu_core::size::Size;
use motu_core::verb::{self, Verb};
use motu_core::{Error, ErrorKind, SandboxId};
use motu_gate::Caller;
use shapes::{Capsule, NewCapsule};

type Answer<T> = Result<T, Fault>;

pub fn routes() -> Router<App> {
    let one = "/v1/capsules/{id}";
    Router::new()
        .route("/v1/capsules", post(create).get(list))
        .route(one, get(find).delete(destroy))
        .route(&format!("{one}/pause"), post(pause))
        .route(&format!("{one}/resume"), post(resume))
        .route(&format!("{one}/ping"), post(ping))
        .route(&format!("{one}/exec"), post(commands::exec))
        .route(&format!("{one}/processes"), get(commands::list))
        .route(
            &format!("{one}/processes/{{selector}}"),
            delete(commands::kill),
        )
        .route(&format!("{one}/exec/stream"), get(live::exec))
        .route(&format!("{one}/pty"), get(live::pty))
        .route(
            &format!("{one}/processes/{{selector}}/stream"),
            get(live::process),
        )
        .route(&format!("{one}/metrics"), get(commands::metrics))
        .route(&format!("{one}/files/write"), post(files::write))
        .route(&format!("{one}/files/read"), post(files::read))
        .route(&format!("{one}/files/list"), post(files::list))
        .route(&format!("{one}/files/mkdir"), post(files::mkdir))
        .route(&format!("{one}/files/remove"), post(files::remove))
        .route(
            "/v1/snapshots",
            post(snapshots::create).get(snapshots::list),
        )
        .route("/v1/snapshots/{name}", delete(snapshots::remove))
}

/// A caller at the gate.
struct Desk {
    app: App,
    caller: Caller,
}

impl Desk {
    async fn call<V: Verb<Extra = ()>>(&self, call: V) -> motu_core::Result<V::Answer> {
        let ticket = self.caller.ticket.clone();
        let caller = self.caller.again().with_ticket(ticket);
        self.app.gate.call(&caller, call, ()).await
    }

    async fn sandbox(&self, id: SandboxId) -> motu_core::Result<Capsule> {
        let ask = Default::default();
        self.call(verb::GetSandbox { id, ask })
            .await
            .map(Capsule::of)
    }
}

fn desk(State(app): State<App>, Introduced(caller): Introduced) -> Desk {
    Desk { app, caller }
}

fn id(text: &str) -> Answer<SandboxId> {
    Ok(SandboxId::parse(text)?)
}

/// A name is that of a template, or else of an environment. Disks are kept, so that templates can
/// be made of it; who is quiet for `timeout_sec` is paused.
async fn create(
    app: State<App>,
    caller: Introduced,
    body: Body,
) -> Answer<(StatusCode, Json<Capsule>)> {
    let desk = desk(app, caller);
    let new: NewCapsule = read_json(body).await?;
    if new.template.is_empty() {
        let error = Error::invalid("no template is named")
            .details(serde_json::json!({"field": "template"}));
        return Err(error
            .hint("give `template`: a template, or an environment")
            .into());
    }
    let name = new.template.clone();
    let known = verb::GetTemplate {
        name: name.clone(),
        ask: Default::default(),
    };
    // One that was saved with its memory goes on with the disks that it has.
    let (template, environment, keep) = match desk.call(known).await {
        Ok(known) => {
            let keep = known.asleep().is_none_or(|saved| saved.keep);
            (Some(name), String::new(), keep)
        }
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid) => {
            (None, name, true)
        }
        Err(error) => return Err(error.into()),
    };
    let idle_seconds = new.timeout_sec.filter(|seconds| *seconds > 0);
    let ask = CreateSandbox {
        template,
        environment,
        size: Size {
            vcpu_count: new.vcpus,
            mem_mib: new.memory_mb,
            disk_mib: None,
        },
        ttl_seconds: Some(TTL_SECONDS.max),
        idle_seconds,
        on_idle: idle_seconds.map_or(OnIdle::Destroy, |_| OnIdle::Pause),
        keep,
        ..CreateSandbox::default()
    };
    let made = desk.call(verb::CreateSandbox { ask }).await?;
    Ok((StatusCode::CREATED, Json(Capsule::of(made))))
}

async fn list(app: State<App>, caller: Introduced) -> Answer<Json<Vec<Capsule>>> {
    let ask = ListSandboxes::default();
    let all = desk(app, caller).call(verb::ListSandboxes { ask }).await?;
    Ok(Json(all.into_iter().map(Capsule::of).collect()))
}

async fn find(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<Json<Capsule>> {
    Ok(Json(desk(app, caller).sandbox(id(&one)?).await?))
}

async fn destroy(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<StatusCode> {
    let (id, ask) = (id(&one)?, Default::default());
    desk(app, caller)
        .call(verb::DestroySandbox { id, ask })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<Json<Capsule>> {
    let (id, ask) = (id(&one)?, Default::default());
    let paused = desk(app, caller)
        .call(verb::PauseSandbox { id, ask })
        .await?;
    Ok(Json(Capsule::of(paused)))
}

async fn resume(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<Json<Capsule>> {
    let (id, ask) = (id(&one)?, Default::default());
    let resumed = desk(app, caller)
        .call(verb::ResumeSandbox { id, ask })
        .await?;
    Ok(Json(Capsule::of(resumed)))
}

/// Counts as activity.
async fn ping(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<StatusCode> {
    let (id, ask) = (id(&one)?, Keepalive::default());
    desk(app, caller).call(verb::KeepAlive { id, ask }).await?;
    Ok(StatusCode::NO_CONTENT)
}
