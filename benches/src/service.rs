//! The host as a service: calls through each of its faces, live sessions, bytes, pages of long
//! lists, what sampling costs, and what the Python SDK adds.

mod bytes;
mod calls;
mod echo;
mod grpc;
mod pages;
mod sampling;
mod sdk;

use crate::motu::Motu;
use crate::{Bench, ENVIRONMENT, Outcome};
use serde_json::json;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

pub fn measure(bench: &mut Bench) -> Outcome {
    calls::measure(bench)?;
    echo::measure(bench)?;
    bytes::measure(bench)?;
    sdk::measure(bench)?;
    pages::measure(bench)?;
    sampling::measure(bench)
}

/// A container that is destroyed on drop.
struct Live<'a> {
    motu: &'a Motu,
    id: String,
}

impl<'a> Live<'a> {
    /// As many CPUs as the host has, so that its own limit is not what is measured.
    fn create(motu: &'a Motu) -> Fallible<Live<'a>> {
        let cpus = std::thread::available_parallelism()?.get();
        let body = json!({
            "environment": ENVIRONMENT, "runtime": "container", "ttl_seconds": 3600, "vcpu_count": cpus,
        });
        let made = motu.api()?.call("POST", "/v1/sandboxes", Some(&body))?;
        let id = made["sandbox_id"].as_str().ok_or("no sandbox_id")?;
        Ok(Live {
            motu,
            id: id.to_string(),
        })
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if let Ok(mut api) = self.motu.api() {
            let _ = api.destroy(&self.id);
        }
    }
}
