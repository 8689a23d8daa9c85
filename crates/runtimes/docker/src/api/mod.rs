//! The part of the engine's API that machines need, as typed calls.
//!
//! Docker and Podman answer these calls alike. No API version is requested: an engine then uses its
//! newest, and all of these calls are as old as the API.

mod error;
mod http;

pub(crate) use error::{ABSENT, ApiError, FORBIDDEN};
pub(crate) use http::Api;
#[cfg(test)]
pub(crate) use http::Patience;

use ::http::Method;
use bytes::Bytes;
use error::quoted;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// The kind of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Docker,
    Podman,
}

/// An engine's description of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Info {
    pub(crate) server_version: String,
    #[serde(rename = "OSType")]
    pub(crate) os_type: String,
    pub(crate) runtimes: Option<BTreeMap<String, Program>>,
    pub(crate) default_runtime: String,
    pub(crate) memory_limit: bool,
    pub(crate) pids_limit: bool,
    pub(crate) cpu_cfs_quota: bool,
    /// Which version of control groups it uses: "1" or "2".
    pub(crate) cgroup_version: String,
    /// Podman reports here whether it is rootless, Docker in its security options.
    pub(crate) rootless: bool,
    pub(crate) security_options: Option<Vec<String>>,
}

impl Info {
    /// Whether the engine is rootless with cgroup v1, which only root can use: it reports what the
    /// host could limit, and limits nothing.
    pub(crate) fn limits_nothing(&self) -> bool {
        let options = self.security_options.iter().flatten();
        let rootless = options.into_iter().any(|option| option == "name=rootless");
        (rootless || self.rootless) && self.cgroup_version == "1"
    }
}

/// An OCI runtime of the engine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Program {
    pub(crate) path: Option<String>,
}

/// The parts of a container that are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Inspected {
    pub(crate) id: String,
    pub(crate) state: Condition,
    pub(crate) config: Labelled,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Condition {
    pub(crate) running: bool,
    pub(crate) paused: bool,
    pub(crate) pid: i32,
    pub(crate) exit_code: i64,
    pub(crate) error: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Labelled {
    pub(crate) labels: Option<BTreeMap<String, String>>,
}

/// A container or an image in a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) size: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Made {
    id: String,
}

impl Api {
    /// Whether the engine answers, and which kind it is.
    pub(crate) async fn ping(&self) -> Result<Make, ApiError> {
        let patience = self.patience.probe;
        let answer = self.ask_within("answer", Method::GET, "/_ping", None, patience);
        let answer = answer.await?;
        if answer.body.as_ref().trim_ascii() != b"OK" {
            let (what, said) = ("answer", quoted(&answer.body));
            return Err(ApiError::Nonsense { what, said });
        }
        Ok(match answer.headers.contains_key("libpod-api-version") {
            true => Make::Podman,
            false => Make::Docker,
        })
    }

    pub(crate) async fn info(&self) -> Result<Info, ApiError> {
        let (what, patience) = ("describe itself", self.patience.probe);
        let answer = self.ask_within(what, Method::GET, "/info", None, patience);
        read(what, &answer.await?.body)
    }

    /// Imports a tar archive as an image.
    pub(crate) async fn import(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        pieces: mpsc::Receiver<std::io::Result<Bytes>>,
    ) -> Result<(), ApiError> {
        let what = "import an environment";
        let mut path = format!("/images/create?fromSrc=-&repo={}", encoded(name));
        for (key, value) in labels {
            // The engine parses this as a line of a Dockerfile, where quotes would have to be
            // escaped: values are chosen so that they need none.
            path += &format!("&changes={}", encoded(&format!("LABEL {key}={value}")));
        }
        let answer = self.send_tar(what, &path, pieces).await?;
        // The status is sent before the work is done: a failure is in the body.
        #[derive(Deserialize)]
        struct Step {
            error: Option<String>,
        }
        let steps = serde_json::Deserializer::from_slice(&answer.body).into_iter::<Step>();
        let mut known = false;
        for step in steps {
            let Ok(step) = step else { break };
            known = true;
            if let Some(error) = step.error {
                let said = quoted(error.as_bytes());
                let status = answer.status;
                return Err(ApiError::Refused { what, status, said });
            }
        }
        match known {
            true => Ok(()),
            false => Err(ApiError::Nonsense {
                what,
                said: quoted(&answer.body),
            }),
        }
    }

    pub(crate) async fn has_image(&self, name: &str) -> Result<bool, ApiError> {
        let path = format!("/images/{}/json", encoded_path(name));
        match self
            .ask("look for an image", Method::GET, &path, None)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The images that have a label.
    pub(crate) async fn images(&self, label: &str) -> Result<Vec<Listed>, ApiError> {
        let what = "list images";
        let path = format!("/images/json?filters={}", with_label(label));
        read(what, &self.ask(what, Method::GET, &path, None).await?.body)
    }

    pub(crate) async fn remove_image(&self, id: &str) -> Result<(), ApiError> {
        let path = format!("/images/{}", encoded_path(id));
        let removed = self.ask("remove an image", Method::DELETE, &path, None);
        removed.await.map(drop)
    }

    /// Creates a container without starting it; returns its id.
    pub(crate) async fn create(
        &self,
        name: &str,
        container: &serde_json::Value,
    ) -> Result<String, ApiError> {
        let what = "make a container";
        let path = format!("/containers/create?name={}", encoded(name));
        let answer = self.ask(what, Method::POST, &path, Some(container)).await?;
        read::<Made>(what, &answer.body).map(|made| made.id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), ApiError> {
        self.tell("start a container", id, "/start").await
    }

    pub(crate) async fn pause(&self, id: &str) -> Result<(), ApiError> {
        self.tell("pause a container", id, "/pause").await
    }

    pub(crate) async fn unpause(&self, id: &str) -> Result<(), ApiError> {
        self.tell("let a container go on", id, "/unpause").await
    }

    async fn tell(&self, what: &'static str, id: &str, verb: &str) -> Result<(), ApiError> {
        let path = format!("/containers/{}{verb}", encoded_path(id));
        self.ask(what, Method::POST, &path, None).await.map(drop)
    }

    /// A container by its id or name.
    pub(crate) async fn inspect(&self, id: &str) -> Result<Inspected, ApiError> {
        let what = "look at a container";
        let path = format!("/containers/{}/json", encoded_path(id));
        read(what, &self.ask(what, Method::GET, &path, None).await?.body)
    }

    /// The containers that have a label, whether they run or not.
    pub(crate) async fn containers(&self, label: &str) -> Result<Vec<Listed>, ApiError> {
        let what = "list containers";
        let path = format!("/containers/json?all=1&filters={}", with_label(label));
        read(what, &self.ask(what, Method::GET, &path, None).await?.body)
    }

    /// Kills a container and removes it with its volumes.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), ApiError> {
        let path = format!("/containers/{}?force=1&v=1", encoded_path(id));
        let removed = self.ask("remove a container", Method::DELETE, &path, None);
        removed.await.map(drop)
    }
}

fn read<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|_| ApiError::Nonsense {
        what,
        said: quoted(body),
    })
}

fn with_label(label: &str) -> String {
    encoded(&serde_json::json!({ "label": [label] }).to_string())
}

/// Escapes a query value.
fn encoded(text: &str) -> String {
    escape(text, b"-_.~")
}

/// Escapes a path component; image names contain slashes and a colon.
fn encoded_path(text: &str) -> String {
    escape(text, b"-_.~/:")
}

fn escape(text: &str, plain: &[u8]) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            true => out.push(char::from(byte)),
            false => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_paths_are_escaped() {
        assert_eq!(encoded("a b/c=ü"), "a%20b%2Fc%3D%C3%BC");
        assert_eq!(encoded_path("localhost/a:b?c"), "localhost/a:b%3Fc");
    }

    #[test]
    fn what_is_missing_in_an_answer_is_empty() {
        let info: Info = read("x", br#"{"Runtimes":null,"Other":[1]}"#).unwrap();
        assert!(info.runtimes.is_none() && !info.memory_limit);
        assert!(read::<Info>("x", b"<html>").is_err());
        assert!(read::<Vec<Listed>>("x", b"{}").is_err());
    }
}
