//! Templates that are saved from sandboxes: an environment of their disks, and a template that
//! starts from it with their size.

use super::shapes::{NewSnapshot, Saved};
use super::{Answer, Desk, desk, id};
use crate::app::App;
use crate::extract::{Introduced, read_json};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use http::StatusCode;
use motu_core::sandbox::{AfterCommit, CommitSandbox};
use motu_core::size::Size;
use motu_core::template::{Template, TemplateDefinition};
use motu_core::{Error, ErrorKind, Result, verb};

/// The beginning of the names of environments that belong to such templates.
const SAVED: &str = "snapshot-";

/// Files are saved, not processes; the sandbox goes on as it was.
pub async fn create(
    app: State<App>,
    caller: Introduced,
    body: Body,
) -> Answer<(StatusCode, Json<Saved>)> {
    let desk = desk(app, caller);
    let new: NewSnapshot = read_json(body).await?;
    if new.name.is_empty() {
        let error = Error::invalid("no name is given").hint("give `name`");
        return Err(error.into());
    }
    let known = verb::GetTemplate {
        name: new.name.clone(),
        ask: Default::default(),
    };
    match desk.call(known).await {
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let error = Error::conflict(format!("the template {} exists already", new.name));
            return Err(error
                .hint("choose another name, or remove that one first")
                .into());
        }
    }
    let id = id(&new.sandbox_id)?;
    let look = verb::GetSandbox {
        id: id.clone(),
        ask: Default::default(),
    };
    let sandbox = desk.call(look).await?;
    let ask = CommitSandbox {
        name: format!("{SAVED}{}:1", new.name),
        then: AfterCommit::Start,
    };
    let made = desk.call(verb::Commit { id, ask }).await?;
    let disk = sandbox.limits.iter().find(|one| one.name == "disk_mib");
    let ask = TemplateDefinition {
        environment: made.name.clone(),
        size: Size {
            vcpu_count: Some(sandbox.vcpu_count),
            mem_mib: Some(sandbox.mem_mib),
            disk_mib: disk.map(|disk| disk.value),
        },
        ..TemplateDefinition::default()
    };
    match put(&desk, new.name, ask).await {
        Ok(template) => {
            let saved = Saved::of(template, made.size_bytes);
            Ok((StatusCode::CREATED, Json(saved)))
        }
        // Half of a template is none: what was made for it goes again.
        Err(error) => {
            forget(&desk, made.name).await?;
            Err(error.into())
        }
    }
}

async fn put(desk: &Desk, name: String, ask: TemplateDefinition) -> Result<Template> {
    let (progress, _) = tokio::sync::mpsc::channel(1);
    let caller = desk.caller.again();
    let call = verb::PutTemplate { name, ask };
    desk.app.gate.call(&caller, call, progress).await
}

async fn forget(desk: &Desk, name: String) -> Result<()> {
    let ask = Default::default();
    desk.call(verb::RemoveEnvironment { name, ask })
        .await
        .map(drop)
}

pub async fn list(app: State<App>, caller: Introduced) -> Answer<Json<Vec<Saved>>> {
    let ask = Default::default();
    let all = desk(app, caller).call(verb::ListTemplates { ask }).await?;
    Ok(Json(
        all.into_iter().map(|one| Saved::of(one, None)).collect(),
    ))
}

pub async fn remove(
    app: State<App>,
    caller: Introduced,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let desk = desk(app, caller);
    let ask = Default::default();
    let gone = desk.call(verb::RemoveTemplate { name, ask }).await?;
    let environment = gone.definition.environment;
    // Behind the name of a project, where it has one.
    if environment.starts_with(SAVED) || environment.contains(&format!("--{SAVED}")) {
        forget(&desk, environment).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
