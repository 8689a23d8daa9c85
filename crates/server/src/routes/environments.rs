//! What sandboxes start from.

use super::Answer;
use crate::app::App;
use crate::extract::{Json as Body, Named};
use crate::fault::Failure;
use crate::stream::respond_lines;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use motu_api::wire::{PruneBody, PullLine};
use motu_core::report::{Environment, Pruned};
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Steps waiting for a slow reader; more are not kept.
const STEPS: usize = 64;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(inspect))
        .routes(routes!(pull))
        .routes(routes!(prune))
}

/// Every environment, installed or known by name
#[utoipa::path(get, path = "/v1/environments", tag = "environments",
    operation_id = "list_environments",
    responses((status = 200, body = Vec<Environment>), Failure))]
async fn list(State(app): State<App>) -> Answer<Json<Vec<Environment>>> {
    Ok(Json(app.service.list_environments().await?))
}

/// One environment
#[utoipa::path(get, path = "/v1/environments/{name}", tag = "environments",
    operation_id = "inspect_environment",
    params(("name" = String, Path, description = "Percent-encoded, such as `debian%3A12`")),
    responses((status = 200, body = Environment), Failure))]
async fn inspect(State(app): State<App>, Named(name): Named) -> Answer<Json<Environment>> {
    Ok(Json(app.service.inspect_environment(&name).await?))
}

/// Install an environment
///
/// Answers with one `PullLine` per line; the last one is the result or the error.
#[utoipa::path(post, path = "/v1/environments/{name}/pull", tag = "environments",
    operation_id = "pull_environment",
    params(("name" = String, Path, description = "Percent-encoded, such as `debian%3A12`")),
    responses((status = 200, body = PullLine, content_type = "application/x-ndjson"), Failure))]
async fn pull(State(app): State<App>, Named(name): Named) -> Response {
    respond_lines(pull_lines(app, name))
}

/// The steps of a pull and its outcome. Dropping the stream ends the pull.
fn pull_lines(app: App, name: String) -> BoxStream<'static, PullLine> {
    let (sink, steps) = mpsc::channel(STEPS);
    let outcome = async move { app.service.pull_environment(&name, sink).await };
    let outcome = outcome.map(|outcome| match outcome {
        Ok(environment) => PullLine::Result(Box::new(environment)),
        Err(error) => PullLine::Error(error),
    });
    let state = Some((outcome.boxed(), steps));
    stream::unfold(state, async |state| {
        let (mut outcome, mut steps) = state?;
        tokio::select! {
            biased;
            Some(step) = steps.recv() => Some((PullLine::Progress(step), Some((outcome, steps)))),
            last = &mut outcome => Some((last, None)),
        }
    })
    .boxed()
}

/// Remove environments nobody uses
#[utoipa::path(post, path = "/v1/environments/prune", tag = "environments",
    operation_id = "prune_environments", request_body = PruneBody,
    responses((status = 200, body = Pruned), Failure))]
async fn prune(
    State(app): State<App>,
    Body(PruneBody { all }): Body<PruneBody>,
) -> Answer<Json<Pruned>> {
    Ok(Json(app.service.prune_environments(all).await?))
}
