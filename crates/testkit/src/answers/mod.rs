//! What a [`Recorder`] is told to answer in the place of machines: sessions of commands that
//! nobody runs ([`Sessions`]), and values to print or to compare, written as they travel.
//!
//! A test tells its recorder the few verbs that it needs; here is what several tests tell alike.

mod sessions;
mod terminals;
mod workspaces;

pub use sessions::{Sessions, exited, started};
pub use terminals::{answer, in_state, known, opened, ready, screen, terminal};
pub use workspaces::{
    diff_report, file_text, patch_report, path_list, result, service_status, shell, snapshot,
    workspace,
};

use motu_core::SandboxId;
use motu_core::report::{Environment, Version};
use motu_core::sandbox::Sandbox;
use motu_core::verb::Recorder;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The call that reached the service last, since the last time: its verb, and a list of the parts
/// of its address and its request. Clients ask for the version only to learn that the daemon lives.
pub fn called(recorder: &Recorder) -> (&'static str, Value) {
    let mut calls = recorder.take().into_iter();
    let last = calls.rfind(|(verb, _, _)| *verb != "version");
    let (verb, parts, ask) = last.expect("no verb was called");
    let parts = parts.into_iter().map(Value::from);
    (verb, parts.chain([ask]).collect())
}

/// A value, from what would be sent of it.
pub fn made<T: DeserializeOwned>(sent: Value) -> T {
    serde_json::from_value(sent).unwrap()
}

/// When everything here was made.
pub const MOMENT: &str = "2023-11-14T22:13:20Z";

pub fn version() -> Version {
    made(json!({"version": "0", "api_version": "1", "pid": 1, "home": "/"}))
}

pub fn sandbox(id: &SandboxId) -> Sandbox {
    made(json!({
        "sandbox_id": id, "owner": "uid:1000", "state": "running",
        "environment": "debian:12", "digest": "sha256:00", "runtime": "stub", "isolation": "none",
        "network": "off", "vcpu_count": 1, "mem_mib": 1024, "limits": [],
        "user": "root", "workdir": "/",
        "created_at": MOMENT, "last_activity_at": MOMENT, "expires_at": MOMENT,
        "ttl_seconds": 600, "idle_seconds": 0,
    }))
}

pub fn environment(name: &str) -> Environment {
    made(json!({
        "name": name, "description": "", "installed": true, "architecture": "amd64",
        "default_user": "root", "default_workdir": "/", "source": "stub", "packages": [],
    }))
}
