//! The REST API of the service.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use motu_peer::{Ask, Connections, PeerError, encoded};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Longest id from a service; it becomes part of a host name.
const MAX_ID: usize = 63;
/// The metadata key by which a machine with unknown id is found.
const METADATA: &str = "motu_machine";

/// The request for a new machine.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) template: String,
    pub(crate) timeout: u64,
    /// Our own unique name for it.
    pub(crate) name: String,
    /// The sandbox it belongs to, for people who look at the service's list.
    pub(crate) sandbox: String,
}

#[derive(Serialize)]
struct NewSandbox<'a> {
    #[serde(rename = "templateID")]
    template: &'a str,
    timeout: u64,
    metadata: BTreeMap<&'a str, &'a str>,
    /// Off: motu controls the network of machines, and here it cannot.
    allow_internet_access: bool,
    /// Require a token for calls to the agent. Only the older route needs this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    secure: Option<bool>,
}

/// A machine that was made or resumed.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Made {
    #[serde(rename = "sandboxID")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) envd_version: String,
    #[serde(default)]
    pub(crate) envd_access_token: Option<String>,
}

/// The service's description of a machine.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(default)]
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) envd_version: String,
    #[serde(default)]
    pub(crate) envd_access_token: Option<String>,
    #[serde(default)]
    pub(crate) cpu_count: u64,
    #[serde(default, rename = "memoryMB")]
    pub(crate) memory_mb: u64,
    #[serde(default, rename = "diskSizeMB")]
    pub(crate) disk_mb: u64,
    /// `None` if the service does not report it.
    #[serde(default)]
    pub(crate) allow_internet_access: Option<bool>,
}

impl Detail {
    pub(crate) fn is_paused(&self) -> bool {
        self.state == "paused"
    }
}

/// Whether the service still has a machine.
pub(crate) enum Standing {
    There(Box<Detail>),
    /// The reason why it is gone.
    Gone(String),
}

/// The service.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) connections: Connections,
}

impl Control {
    /// Creates a machine. A repeated order returns the same one, if the service supports that.
    pub(crate) async fn create(&self, order: &Order) -> Result<Made, PeerError> {
        let what = "make a machine";
        let mut body = NewSandbox {
            template: &order.template,
            timeout: order.timeout,
            metadata: BTreeMap::from([
                (METADATA, order.name.as_str()),
                ("motu_sandbox", order.sandbox.as_str()),
            ]),
            allow_internet_access: false,
            secure: None,
        };
        let spawn = Some(self.connections.patience.spawn);
        let mut ask = Ask {
            patience: spawn,
            ..self.post(what, "/v2/sandboxes".to_string(), &body)
        };
        if let Ok(name) = HeaderValue::from_str(&order.name) {
            ask.headers.insert("idempotency-key", name);
        }
        let made = match self.fetch(&ask).await {
            Err(error) if is_elsewhere(&error) => {
                body.secure = Some(true);
                let older = self.post(what, "/sandboxes".to_string(), &body);
                self.fetch(&Ask {
                    patience: spawn,
                    ..older
                })
                .await
            }
            other => other,
        };
        sane(what, made?)
    }

    /// Resumes a machine and sets its timeout; for a running one it only sets the timeout.
    pub(crate) async fn connect(&self, id: &str, timeout: u64) -> Result<Made, PeerError> {
        let what = "let a machine go on";
        let body = json!({ "timeout": timeout });
        let at = |route: &str| {
            let path = format!("{route}/{}/connect", encoded(id));
            Ask {
                patience: Some(self.connections.patience.spawn),
                repeatable: true,
                ..self.post(what, path, &body)
            }
        };
        let made = match self.fetch(&at("/v2/sandboxes")).await {
            Err(error) if is_elsewhere(&error) => self.fetch(&at("/sandboxes")).await,
            other => other,
        };
        sane(what, made?)
    }

    pub(crate) async fn detail(&self, id: &str) -> Result<Standing, PeerError> {
        let path = format!("/sandboxes/{}", encoded(id));
        let ask = self.get("say how a machine is", path);
        match self.fetch(&ask).await {
            Ok(detail) => Ok(Standing::There(Box::new(detail))),
            Err(error) if matches!(error.status(), Some(404 | 410)) => Ok(Standing::Gone(
                "the service knows no such sandbox (not_found)".to_string(),
            )),
            Err(error) => Err(error),
        }
    }

    /// The ids of machines with this name of ours.
    pub(crate) async fn find(&self, name: &str) -> Result<Vec<String>, PeerError> {
        #[derive(Deserialize)]
        struct Listed {
            #[serde(rename = "sandboxID")]
            id: String,
        }
        let metadata = encoded(&format!("{METADATA}={}", encoded(name)));
        let path = format!("/v2/sandboxes?metadata={metadata}&state=running,paused&limit=100");
        let found: Vec<Listed> = self.fetch(&self.get("list its machines", path)).await?;
        let ids = found.into_iter().map(|listed| listed.id);
        Ok(ids.filter(|id| is_id(id)).collect())
    }

    /// Checks the key by requesting the shortest list.
    pub(crate) async fn knows_us(&self) -> Result<(), PeerError> {
        let ask = Ask {
            patience: Some(self.connections.patience.connect),
            ..self.get(
                "list its machines",
                "/v2/sandboxes?state=running&limit=1".to_string(),
            )
        };
        let _: Vec<serde_json::Value> = self.fetch(&ask).await?;
        Ok(())
    }

    /// Sets a machine's timeout from now on.
    pub(crate) async fn set_timeout(&self, id: &str, seconds: u64) -> Result<(), PeerError> {
        let path = format!("/sandboxes/{}/timeout", encoded(id));
        let body = json!({ "timeout": seconds });
        let ask = Ask {
            repeatable: true,
            ..self.post("give a machine time", path, &body)
        };
        self.connections.whole(&ask).await.map(drop)
    }

    /// Pauses a machine; one that is paused already is no error.
    pub(crate) async fn pause(&self, id: &str) -> Result<(), PeerError> {
        let path = format!("/sandboxes/{}/pause", encoded(id));
        let ask = Ask {
            patience: Some(self.connections.patience.spawn),
            ..self.post("pause a machine", path, &json!({}))
        };
        match self.connections.whole(&ask).await {
            Err(error) if error.status() == Some(409) => match self.detail(id).await {
                Ok(Standing::There(detail)) if detail.is_paused() => Ok(()),
                _ => Err(error),
            },
            other => other.map(drop),
        }
    }

    /// Kills a machine; one that is gone already is no error.
    pub(crate) async fn kill(&self, id: &str) -> Result<(), PeerError> {
        let path = format!("/sandboxes/{}", encoded(id));
        let ask = Ask {
            method: Method::DELETE,
            ..self.get("destroy a machine", path)
        };
        match self.connections.whole(&ask).await {
            Err(error) if matches!(error.status(), Some(404 | 410)) => Ok(()),
            other => other.map(drop),
        }
    }

    fn get(&self, what: &'static str, path: String) -> Ask {
        Ask {
            what,
            method: Method::GET,
            path,
            headers: HeaderMap::new(),
            body: None,
            repeatable: true,
            patience: Some(self.connections.patience.call),
        }
    }

    fn post(&self, what: &'static str, path: String, body: &impl Serialize) -> Ask {
        // Serialization cannot fail: only maps with text keys, texts and numbers.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Ask {
            method: Method::POST,
            body: Some(Bytes::from(body)),
            repeatable: false,
            ..self.get(what, path)
        }
    }

    async fn fetch<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, PeerError> {
        let body = self.connections.whole(ask).await?;
        // The body may contain a token, so it is not quoted.
        serde_json::from_slice(&body)
            .map_err(|_| PeerError::nonsense(ask.what, "no answer of this API"))
    }
}

/// Whether the service probably does not have this route.
fn is_elsewhere(error: &PeerError) -> bool {
    matches!(error.status(), Some(404 | 405))
}

fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(plain)
}

fn sane(what: &'static str, made: Made) -> Result<Made, PeerError> {
    match is_id(&made.id) {
        true => Ok(made),
        false => Err(PeerError::nonsense(what, "a machine without an id")),
    }
}
