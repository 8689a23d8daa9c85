//! The protocol's side: what rmcp calls.

use crate::answer::Answer;
use crate::approve::{Seal, binding};
use crate::arguments::Arguments;
use crate::call::{Call, Retry, Stop, is_stateless};
use crate::outputs::Outputs;
use crate::tool::{Effect, Tool};
use crate::watch::{self, Watches};
use crate::wording::Tools;
use crate::{Options, Shared, Text, schema};
use futures_util::FutureExt;
use motu_core::noted::noted;
use motu_core::{Error, Verbs};
use rmcp::model::{
    self, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ContentBlock, CustomRequest, CustomResult, ErrorCode,
    ErrorData, Implementation, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, ToolAnnotations, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{RoleServer as Role, ServerHandler};
use serde_json::json;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

/// Where `_meta` of a result has the names of the tool's calls in the audit log.
const AUDIT_META: &str = "motu/audit_ids";

/// The server of one profile. Cheap to clone: what it knows is shared.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    /// The list of tools, made when it is first asked for.
    listed: Arc<OnceLock<Vec<model::Tool>>>,
    /// What this connection follows.
    watches: Arc<Watches>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.shared.options.profile.as_str())
    }
}

impl Server {
    pub fn new(service: Arc<dyn Verbs>, options: Options) -> Server {
        Server {
            shared: Arc::new(Shared {
                service,
                options,
                outputs: Outputs::default(),
                seal: Seal::new(),
                unwalled: Default::default(),
                names: Default::default(),
                chores: tokio_util::task::TaskTracker::new(),
            }),
            listed: Arc::default(),
            watches: Arc::default(),
        }
    }

    /// The same server for another connection.
    pub(crate) fn for_another(&self) -> Server {
        Server {
            watches: Arc::default(),
            ..self.clone()
        }
    }

    fn describe(&self) -> Vec<model::Tool> {
        let profile = self.shared.options.profile;
        let describe = |tool: &'static Tool| {
            let input = schema::input(&profile.fields(tool));
            model::Tool::new(tool.name, tool.about, Arc::new(input))
                .with_raw_output_schema(Arc::new(schema::output(tool.output)))
                .with_annotations(annotations(tool.effect))
        };
        profile.tools().into_iter().map(describe).collect()
    }

    async fn answer(&self, tool: &'static Tool, call: &Call, given: model::JsonObject) -> Outcome {
        let fields = self.shared.options.profile.fields(tool);
        let arguments = match schema::check(&fields, given) {
            Ok(arguments) => Arguments(arguments),
            Err(error) => return self.failed(call.unread(tool.verb, error).await),
        };
        let work = AssertUnwindSafe((tool.run)(call, arguments)).catch_unwind();
        let outcome = tokio::select! {
            // Dropping the future ends what it started.
            () = call.context.ct.cancelled() => return Outcome::Cancelled,
            outcome = work => outcome,
        };
        match outcome {
            Ok(Ok(answer)) => Outcome::Answer(answer),
            Ok(Err(Stop::Failed(error))) => self.failed(error),
            Ok(Err(Stop::Ask(question))) => Outcome::Ask(question),
            Err(_) => self.failed(Error::internal("a bug in this tool")),
        }
    }

    fn failed(&self, error: Error) -> Outcome {
        Outcome::Answer(error.worded(&self.tools()).into())
    }

    /// What hints name.
    fn tools(&self) -> Tools {
        Tools(self.shared.options.profile)
    }

    /// An error of a request for a resource.
    fn refusal(&self, error: Error, uri: &str) -> ErrorData {
        let error = error.worded(&self.tools());
        let mut data = json!(error);
        data["uri"] = motu_core::shown::text(uri).into();
        let data = Some(data);
        match error.kind {
            motu_core::ErrorKind::NotFound => ErrorData::resource_not_found(error.message, data),
            motu_core::ErrorKind::Invalid => ErrorData::invalid_params(error.message, data),
            _ => ErrorData::internal_error(error.message, data),
        }
    }
}

enum Outcome {
    Answer(Answer),
    Ask(Box<model::InputRequiredResult>),
    Cancelled,
}

fn annotations(effect: Effect) -> ToolAnnotations {
    let (destructive, idempotent) = match effect {
        Effect::Reads => {
            return ToolAnnotations::new().read_only(true).open_world(false);
        }
        Effect::Changes => (false, false),
        Effect::Settles => (false, true),
        Effect::Destroys => (true, true),
        Effect::Runs => (true, false),
    };
    ToolAnnotations::new()
        .read_only(false)
        .destructive(destructive)
        .idempotent(idempotent)
        .open_world(false)
}

fn result(answer: Answer, as_json: bool) -> CallToolResult {
    let text = match as_json {
        true => answer.structured.to_string(),
        false => answer.text,
    };
    let mut content = vec![ContentBlock::text(text)];
    if let Some(image) = answer.image {
        content.push(ContentBlock::image(image, "image/png"));
    }
    let mut result = match answer.is_error {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    };
    result.structured_content = Some(answer.structured);
    result
}

/// Whether the text of an answer is JSON.
fn wants_json(call: &Call) -> bool {
    match call.shared.options.text {
        Text::Json => true,
        Text::Plain => false,
        // Structured content was added in that revision; older clients get only text.
        Text::Auto => call
            .context
            .protocol_version()
            .is_some_and(|version| version.as_str() < ProtocolVersion::V_2025_06_18.as_str()),
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources();
        let profile = self.shared.options.profile;
        let capabilities = match profile.has_terminals() || profile.has_services() {
            true => capabilities.enable_resources_subscribe().build(),
            false => capabilities.build(),
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("motu", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.shared.options.profile.instructions())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<Role>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.listed.get_or_init(|| self.describe());
        Ok(ListToolsResult::with_all_items(tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tools = self.shared.options.profile.tools();
        let Some(tool) = tools.into_iter().find(|tool| tool.name == request.name) else {
            let shown = motu_core::shown::quoted(&request.name, 60);
            return Err(ErrorData::invalid_params(
                format!("unknown tool: {shown}"),
                None,
            ));
        };
        let given = request.arguments.unwrap_or_default();
        let call = Call {
            shared: self.shared.clone(),
            context,
            retry: Retry {
                state: request.request_state,
                responses: request.input_responses,
                binding: binding(tool.name, &given),
            },
        };
        let (outcome, audit_ids) = noted(self.answer(tool, &call, given)).await;
        match outcome {
            Outcome::Answer(answer) => {
                let mut result = result(answer, wants_json(&call));
                if !audit_ids.is_empty() {
                    let ids = json!({AUDIT_META: audit_ids});
                    result.meta = serde_json::from_value(ids).ok();
                }
                Ok(result.into())
            }
            Outcome::Ask(question) => Ok((*question).into()),
            Outcome::Cancelled => Err(ErrorData::internal_error("cancelled", None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<Role>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = self.shared.resources().await;
        let all = all.map_err(|error| self.refusal(error, "motu://"))?;
        Ok(ListResourcesResult::with_all_items(all))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<Role>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(
            self.shared.resource_templates(),
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<Role>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = self.shared.read_resource(&request.uri).await;
        let read = read.map_err(|error| self.refusal(error, &request.uri))?;
        Ok(model::ReadResourceResult::new(vec![read]).into())
    }

    /// There are no prompts, which is not the same as none now.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<Role>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<Role>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// A method that is known comes here only when its params are not its own.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<Role>,
    ) -> Result<CustomResult, ErrorData> {
        let method = &request.method;
        let of_revision = match is_stateless(&context) {
            true => &NEWER_METHODS[..],
            false => &OLDER_METHODS[..],
        };
        let is_known = METHODS
            .iter()
            .chain(of_revision)
            .any(|known| known == method);
        Err(match is_known {
            true => {
                ErrorData::invalid_params(format!("the params are not those of {method}"), None)
            }
            false => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.clone(), None),
        })
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<Role>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        let refused = |error: Error| self.refusal(error, &uri);
        let live = self.shared.live(&uri).map_err(refused)?;
        let ended = self.watches.begin(&uri).map_err(refused)?;
        let news = match self.shared.watch(&live).await {
            Ok(news) => news,
            Err(error) => {
                self.watches.end(&uri);
                return Err(refused(error));
            }
        };
        let peer = context.peer;
        tokio::spawn(ended.run_until_cancelled_owned(async move {
            let tell = || {
                let note = ResourceUpdatedNotificationParam::new(uri.clone());
                let telling = peer.notify_resource_updated(note);
                async move { telling.await.is_ok() }
            };
            watch::follow(news, tell).await;
        }));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<Role>,
    ) -> Result<(), ErrorData> {
        self.watches.end(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.iter().flatten();
        let live = uris.filter(|uri| self.shared.live(uri).is_ok());
        let live: Vec<String> = live.take(watch::MOST).cloned().collect();
        Some(
            SubscriptionFilter::builder()
                .resource_subscriptions(live)
                .build(),
        )
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = context.accepted().resource_subscriptions.clone();
        let followed = uris.unwrap_or_default().into_iter().map(|uri| {
            let sink = context.sink();
            async move {
                let tell = || async { sink.notify_resource_updated(uri.clone()).await.is_ok() };
                // The client is subscribed now: changes since its request must be announced.
                tell().await;
                if let Ok(live) = self.shared.live(&uri)
                    && let Ok(news) = self.shared.watch(&live).await
                {
                    watch::follow(news, tell).await;
                }
            }
        });
        tokio::select! {
            () = context.cancelled() => {}
            _ = futures_util::future::join_all(followed) => {}
        }
        Ok(())
    }
}

/// Methods of the protocol that this server answers in every revision.
const METHODS: [&str; 5] = [
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];
/// Those that came with revision 2026-07-28, and those that went.
const NEWER_METHODS: [&str; 2] = ["server/discover", "subscriptions/listen"];
const OLDER_METHODS: [&str; 4] = [
    "initialize",
    "ping",
    "resources/subscribe",
    "resources/unsubscribe",
];
