//! A client with a simulated user, and the server it talks to.

use crate::stub::Stub;
use motu_mcp::{Options, Profile, Server};
use rmcp::model::*;
use rmcp::service::{ClientServiceExt, RequestContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A simulated user of a client, who answers questions.
#[derive(Clone)]
pub struct Person {
    pub version: ProtocolVersion,
    /// The user's answer; without it the client does not support questions.
    pub says: Option<bool>,
    pub asked: Arc<AtomicUsize>,
    pub heard: Arc<Mutex<Vec<String>>>,
}

impl Person {
    pub fn new(version: ProtocolVersion, says: Option<bool>) -> Person {
        Person {
            version,
            says,
            asked: Arc::default(),
            heard: Arc::default(),
        }
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.says.is_some() {
            capabilities.elicitation = Some(ElicitationCapability::default());
        }
        let mut config = ClientConfig::new(capabilities, Implementation::new("person", "1"));
        config.protocol_version = self.version.clone();
        config
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut result = ElicitResult::new(ElicitationAction::Accept);
        result.content = Some(json!({"approve": self.says.unwrap_or(false)}));
        Ok(result)
    }

    async fn on_progress(
        &self,
        note: ProgressNotificationParam,
        _: rmcp::service::NotificationContext<RoleClient>,
    ) {
        self.heard
            .lock()
            .unwrap()
            .push(note.message.unwrap_or_default());
    }
}

pub struct Desk {
    pub stub: Stub,
    pub client: RunningService<RoleClient, Person>,
}

pub async fn desk_with(person: Person, options: Options) -> Desk {
    let stub = Stub::new();
    let server = Server::new(Arc::new(stub.recorder.clone()), options);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        if let Ok(running) = server.serve(theirs).await {
            let _ = running.waiting().await;
        }
    });
    let client = match person.version >= ProtocolVersion::V_2026_07_28 {
        true => {
            let mode = rmcp::service::ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            };
            person.serve_with_lifecycle(ours, mode).await.unwrap()
        }
        false => person.serve(ours).await.unwrap(),
    };
    Desk { stub, client }
}

pub async fn desk(profile: Profile) -> Desk {
    let options = Options {
        profile,
        ..Options::default()
    };
    desk_with(Person::new(ProtocolVersion::V_2025_11_25, None), options).await
}

pub fn params(tool: &str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_string())
        .with_arguments(arguments.as_object().unwrap().clone())
}

impl Desk {
    pub async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        self.client
            .call_tool(params(tool, arguments))
            .await
            .unwrap()
    }

    /// The structured answer of a call that must not fail.
    pub async fn told(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        assert_ne!(result.is_error, Some(true), "{result:?}");
        result.structured_content.unwrap()
    }

    /// The code and the text of a call that must fail.
    pub async fn refused(&self, tool: &str, arguments: Value) -> (String, String) {
        let result = self.call(tool, arguments).await;
        assert_eq!(result.is_error, Some(true), "{result:?}");
        let structured = result.structured_content.clone().unwrap();
        (
            structured["kind"].as_str().unwrap().to_string(),
            text(&result),
        )
    }
}

pub fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|block| block.text.clone()).collect()
}
