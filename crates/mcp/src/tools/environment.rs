//! Making something from an environment that may have to be installed first.

use super::DEFAULT_ENVIRONMENT;
use crate::arguments::Arguments;
use crate::call::Call;
use crate::progress::Seen;
use motu_core::Result;
use motu_core::report::not_installed;
use tokio::sync::mpsc;

/// What a machine starts from: with a template, what that says. Clients that send defaults send the
/// usual environment along with it.
pub fn named(arguments: &Arguments, template: Option<&str>) -> String {
    let environment = arguments.text_or("environment", DEFAULT_ENVIRONMENT);
    match template {
        Some(_) if environment == DEFAULT_ENVIRONMENT => String::new(),
        _ => environment,
    }
}

/// Whether machines of a template have a network.
pub async fn has_network(call: &Call, template: Option<&str>) -> Result<bool> {
    match template {
        Some(name) => Ok(call
            .service()
            .get_template(name)
            .await?
            .definition
            .has_network()),
        None => Ok(false),
    }
}

/// Makes something, after pulling its environment if that is all that is missing.
pub async fn installed<T, F>(
    call: &Call,
    seen: &Seen,
    name: &str,
    make: impl Fn() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let outcome = make().await;
    let missing = outcome.as_ref().err().and_then(not_installed);
    let Some(missing) = missing else {
        return outcome;
    };
    let missing = if missing.is_empty() { name } else { missing };
    pull(call, seen, missing).await?;
    make().await
}

async fn pull(call: &Call, seen: &Seen, name: &str) -> Result<()> {
    let (sink, mut steps) = mpsc::channel(64);
    let pulling = call.service().pull_environment(name, sink);
    let telling = async {
        while let Some(step) = steps.recv().await {
            seen.step(format!("installing {name}: {}", step.message));
        }
    };
    let (pulled, ()) = tokio::join!(pulling, telling);
    seen.step(String::new());
    pulled.map(drop)
}
