//! Making a capsule: what a request that names little means, and what has to be pulled for it.

use super::shapes::{Capsule, MADE_HERE, MEMORY_MIB, MINIMAL, NewCapsule};
use super::{Answer, Desk, desk};
use crate::app::App;
use crate::extract::{Introduced, read_json};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use http::StatusCode;
use motu_core::report::not_installed;
use motu_core::sandbox::{CreateSandbox, OnIdle, Sandbox};
use motu_core::size::Size;
use motu_core::template::Template;
use motu_core::{Error, ErrorKind, Result, verb};
use tokio::sync::mpsc;

pub async fn create(
    app: State<App>,
    caller: Introduced,
    body: Body,
) -> Answer<(StatusCode, Json<Capsule>)> {
    let desk = desk(app, caller);
    let new: NewCapsule = read_json(body).await?;
    let ask = wanted(&desk, new).await?;
    let made = made(&desk, ask).await?;
    Ok((StatusCode::ACCEPTED, Json(Capsule::of(made))))
}

/// A name is that of a template, or else of an environment. Disks are kept, so that templates can
/// be made of it; who is quiet for `timeout_sec` is paused. It lives until it is destroyed.
async fn wanted(desk: &Desk, new: NewCapsule) -> Result<CreateSandbox> {
    if let Some(key) = new.metadata.keys().find(|key| *key == MADE_HERE) {
        return Err(Error::invalid(format!("metadata: {key} is reserved")).hint("take another key"));
    }
    let mut labels = new.metadata;
    labels.insert(MADE_HERE.to_string(), "true".to_string());
    let idle_seconds = new.timeout_sec.filter(|seconds| *seconds > 0);
    let mut ask = CreateSandbox {
        size: Size {
            vcpu_count: new.vcpus,
            mem_mib: new.memory_mb,
            disk_mib: None,
        },
        runtime: new.runtime,
        ttl_seconds: Some(0),
        idle_seconds,
        on_idle: idle_seconds.map_or(OnIdle::Destroy, |_| OnIdle::Pause),
        keep: true,
        labels,
        ..CreateSandbox::default()
    };
    let agents = &desk.app.agents;
    let name = match new.template.is_empty() {
        true => MINIMAL.to_string(),
        false => new.template,
    };
    match known(desk, &name).await? {
        Some(template) => {
            // One that was saved with its memory goes on with the disks and the size that it has.
            let asleep = template.asleep();
            ask.keep = asleep.is_none_or(|saved| saved.keep);
            if asleep.is_none() && template.definition.size.mem_mib.is_none() {
                ask.size.mem_mib.get_or_insert(MEMORY_MIB);
            }
            // What was saved from a capsule has the network that capsules have; what somebody
            // defined has the one that it says.
            if template.saved.is_some() && !template.definition.has_network() {
                ask.policy.clone_from(&agents.policy);
            }
            ask.template = Some(name);
        }
        None => {
            ask.size.mem_mib.get_or_insert(MEMORY_MIB);
            ask.policy.clone_from(&agents.policy);
            ask.environment = match name == MINIMAL {
                true => agents.environment.clone(),
                false => name,
            };
        }
    }
    Ok(ask)
}

/// The template of a name, if there is one.
pub async fn known(desk: &Desk, name: &str) -> Result<Option<Template>> {
    let known = verb::GetTemplate {
        name: name.to_string(),
        ask: Default::default(),
    };
    match desk.call(known).await {
        Ok(template) => Ok(Some(template)),
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a sandbox, after pulling its environment if that is all that is missing.
async fn made(desk: &Desk, ask: CreateSandbox) -> Result<Sandbox> {
    let create = || verb::CreateSandbox { ask: ask.clone() };
    let outcome = desk.call(create()).await;
    let missing = outcome.as_ref().err().and_then(not_installed);
    let Some(missing) = missing else {
        return outcome;
    };
    let name = match missing.is_empty() {
        true => ask.environment.clone(),
        false => missing.to_string(),
    };
    // Its steps are nobody's: they are dropped as they come.
    let (steps, mut told) = mpsc::channel(1);
    let pull = verb::PullEnvironment {
        name,
        ask: Default::default(),
    };
    let pulling = desk.app.gate.call(&desk.caller, pull, steps);
    let listening = async { while told.recv().await.is_some() {} };
    tokio::join!(pulling, listening).0?;
    desk.call(create()).await
}
