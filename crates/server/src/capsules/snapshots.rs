//! Templates that are saved from sandboxes.

use super::create::known;
use super::shapes::{MINIMAL, NewSnapshot, Saved, Snapshotted};
use super::{Answer, desk, id};
use crate::app::App;
use crate::extract::{At, Introduced, Params, read_json};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use http::StatusCode;
use motu_core::commit::AfterCommit;
use motu_core::id::random_hex;
use motu_core::template::SaveTemplate;
use motu_core::{Error, ErrorKind, verb};
use serde::Deserialize;

/// With the memory where the runtime can save it; the sandbox goes on. The answer comes when it is
/// saved, and has both: the sandbox as it is then, and its template.
pub async fn create(
    app: State<App>,
    caller: Introduced,
    body: Body,
) -> Answer<(StatusCode, Json<Snapshotted>)> {
    let new: NewSnapshot = read_json(body).await?;
    let ask = SaveTemplate {
        name: match new.name.is_empty() {
            true => format!("template-{}", random_hex(8)),
            false => new.name,
        },
        memory: None,
        then: AfterCommit::Start,
    };
    let (id, desk) = (id(&new.sandbox_id)?, desk(app, caller));
    let save = verb::SaveTemplate {
        id: id.clone(),
        ask,
    };
    let template = desk.call(save).await?;
    let saved = Snapshotted::of(desk.sandbox(id).await?, template);
    Ok((StatusCode::ACCEPTED, Json(saved)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    #[serde(rename = "type")]
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Base,
    Snapshot,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Base => super::shapes::BASE,
            Kind::Snapshot => super::shapes::SNAPSHOT,
        }
    }
}

pub async fn list(
    app: State<App>,
    caller: Introduced,
    Params(which): Params<Which>,
) -> Answer<Json<Vec<Saved>>> {
    let ask = Default::default();
    let all = desk(app, caller).call(verb::ListTemplates { ask }).await?;
    let mut all: Vec<Saved> = all.into_iter().map(Saved::of).collect();
    if !all.iter().any(|one| one.name == MINIMAL) {
        all.insert(0, Saved::minimal());
    }
    if let Some(kind) = which.kind {
        all.retain(|one| one.kind == kind.as_str());
    }
    Ok(Json(all))
}

pub async fn remove(
    app: State<App>,
    caller: Introduced,
    At(name): At<String>,
) -> Answer<StatusCode> {
    let desk = desk(app, caller);
    if name == MINIMAL && known(&desk, &name).await?.is_none() {
        let error = Error::new(
            ErrorKind::Denied,
            format!("{name} is the host's own template"),
        );
        return Err(error
            .hint("templates that were saved can be removed")
            .into());
    }
    let ask = Default::default();
    let remove = verb::RemoveTemplate { name, ask };
    desk.call(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}
