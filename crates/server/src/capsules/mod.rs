//! Sandboxes in the words of host agents: `/v1/capsules`, and templates as `/v1/snapshots`.
//!
//! Each address translates a request, calls verbs at the gate and translates the answer. Errors are
//! those of every other address, with the codes of host agents (`refusal`).

mod commands;
mod create;
mod files;
mod form;
mod happened;
mod live;
mod refusal;
pub mod shapes;
mod snapshots;
mod telling;
pub mod usage;

pub use refusal::{answers_for, coded};
pub use shapes::is_capsule;

use crate::app::App;
use crate::extract::{At, Introduced};
use crate::fault::Fault;
use axum::extract::State;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use http::StatusCode;
use motu_core::SandboxId;
use motu_core::sandbox::{Keepalive, ListSandboxes, Sandbox, State as Life};
use motu_core::verb::{self, Verb};
use motu_gate::Caller;
use shapes::Capsule;

type Answer<T> = Result<T, Fault>;

pub fn routes() -> Router<App> {
    let one = "/v1/capsules/{id}";
    Router::new()
        .route("/v1/capsules", post(create::create).get(list))
        .route("/v1/capsules/stats", get(usage::stats))
        .route("/v1/capsules/usage", get(usage::usage))
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
        .route(&format!("{one}/files/stream/write"), post(files::write))
        .route(&format!("{one}/files/stream/read"), post(files::read))
        .route(&format!("{one}/files/list"), post(files::list))
        .route(&format!("{one}/files/mkdir"), post(files::mkdir))
        .route(&format!("{one}/files/remove"), post(files::remove))
        .route(
            "/v1/snapshots",
            post(snapshots::create).get(snapshots::list),
        )
        .route("/v1/snapshots/{name}", delete(snapshots::remove))
        .route("/v1/events/stream", get(happened::stream))
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

    async fn sandbox(&self, id: SandboxId) -> motu_core::Result<Sandbox> {
        let ask = Default::default();
        self.call(verb::GetSandbox { id, ask }).await
    }

    /// The sandboxes that were made here; with those that are gone, as far as they are remembered.
    async fn capsules(&self, all: bool) -> motu_core::Result<Vec<Sandbox>> {
        let ask = ListSandboxes {
            all,
            ..ListSandboxes::default()
        };
        let found = self.call(verb::ListSandboxes { ask }).await?;
        Ok(found.into_iter().filter(shapes::is_capsule).collect())
    }
}

fn desk(State(app): State<App>, Introduced(caller): Introduced) -> Desk {
    Desk { app, caller }
}

fn id(text: &str) -> Answer<SandboxId> {
    Ok(SandboxId::parse(text)?)
}

/// Those that were made here and have not failed.
async fn list(app: State<App>, caller: Introduced) -> Answer<Json<Vec<Capsule>>> {
    let all = desk(app, caller).capsules(false).await?;
    let all = all.into_iter().filter(|one| one.state != Life::Failed);
    Ok(Json(all.map(Capsule::of).collect()))
}

/// Also one that is gone, for as long as it is remembered.
async fn find(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<Json<Capsule>> {
    let found = desk(app, caller).sandbox(id(&one)?).await?;
    Ok(Json(Capsule::of(found)))
}

async fn destroy(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<StatusCode> {
    let (id, ask) = (id(&one)?, Default::default());
    desk(app, caller)
        .call(verb::DestroySandbox { id, ask })
        .await?;
    Ok(StatusCode::ACCEPTED)
}

type Changed = Answer<(StatusCode, Json<Capsule>)>;

async fn pause(app: State<App>, caller: Introduced, At(one): At<String>) -> Changed {
    let (id, ask) = (id(&one)?, Default::default());
    let paused = desk(app, caller)
        .call(verb::PauseSandbox { id, ask })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(Capsule::of(paused))))
}

async fn resume(app: State<App>, caller: Introduced, At(one): At<String>) -> Changed {
    let (id, ask) = (id(&one)?, Default::default());
    let resumed = desk(app, caller)
        .call(verb::ResumeSandbox { id, ask })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(Capsule::of(resumed))))
}

/// Counts as activity; only what runs can have any.
async fn ping(app: State<App>, caller: Introduced, At(one): At<String>) -> Answer<StatusCode> {
    let (id, desk) = (id(&one)?, desk(app, caller));
    desk.sandbox(id.clone()).await?.check_running()?;
    let ask = Keepalive::default();
    desk.call(verb::KeepAlive { id, ask }).await?;
    Ok(StatusCode::NO_CONTENT)
}
