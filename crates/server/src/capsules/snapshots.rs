//! Templates that are saved from sandboxes.

use super::shapes::{NewSnapshot, Saved};
use super::{Answer, desk, id};
use crate::app::App;
use crate::extract::{At, Introduced, read_json};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use http::StatusCode;
use motu_core::commit::AfterCommit;
use motu_core::template::SaveTemplate;
use motu_core::{Error, verb};

/// With the memory where the runtime can save it; the sandbox goes on.
pub async fn create(
    app: State<App>,
    caller: Introduced,
    body: Body,
) -> Answer<(StatusCode, Json<Saved>)> {
    let new: NewSnapshot = read_json(body).await?;
    if new.name.is_empty() {
        let error = Error::invalid("no name is given").hint("give `name`");
        return Err(error.into());
    }
    let ask = SaveTemplate {
        name: new.name,
        memory: None,
        then: AfterCommit::Start,
    };
    let save = verb::SaveTemplate {
        id: id(&new.sandbox_id)?,
        ask,
    };
    let template = desk(app, caller).call(save).await?;
    Ok((StatusCode::CREATED, Json(Saved::of(template))))
}

pub async fn list(app: State<App>, caller: Introduced) -> Answer<Json<Vec<Saved>>> {
    let ask = Default::default();
    let all = desk(app, caller).call(verb::ListTemplates { ask }).await?;
    Ok(Json(all.into_iter().map(Saved::of).collect()))
}

pub async fn remove(
    app: State<App>,
    caller: Introduced,
    At(name): At<String>,
) -> Answer<StatusCode> {
    let ask = Default::default();
    let remove = verb::RemoveTemplate { name, ask };
    desk(app, caller).call(remove).await?;
    Ok(StatusCode::NO_CONTENT)
}
