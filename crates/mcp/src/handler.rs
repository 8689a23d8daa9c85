//! The protocol's side: what rmcp calls.

use crate::answer::Answer;
use crate::approve::{Retry, Seal, binding};
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::outputs::Outputs;
use crate::tool::{Effect, Tool};
use crate::{Options, Shared, schema};
use futures_util::FutureExt;
use motu_core::{Error, Service};
use rmcp::model::{
    self, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{RoleServer as Role, ServerHandler};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

/// The server of one profile. Cheap to clone: what it knows is shared.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    /// The list of tools, made when it is first asked for.
    listed: Arc<OnceLock<Vec<model::Tool>>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.shared.options.profile.as_str())
    }
}

impl Server {
    pub fn new(service: Arc<dyn Service>, options: Options) -> Server {
        Server {
            shared: Arc::new(Shared {
                service,
                options,
                outputs: Outputs::default(),
                seal: Seal::new(),
                shared: Default::default(),
                chores: tokio_util::task::TaskTracker::new(),
            }),
            listed: Arc::default(),
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
            Err(error) => return Outcome::Answer(error.into()),
        };
        let work = AssertUnwindSafe((tool.run)(call, arguments)).catch_unwind();
        let outcome = tokio::select! {
            // Dropping the work ends what it started.
            () = call.context.ct.cancelled() => return Outcome::Cancelled,
            outcome = work => outcome,
        };
        match outcome {
            Ok(Ok(answer)) => Outcome::Answer(answer),
            Ok(Err(Stop::Failed(error))) => Outcome::Answer(error.into()),
            Ok(Err(Stop::Ask(question))) => Outcome::Ask(question),
            Err(_) => Outcome::Answer(Error::internal("a bug in this tool").into()),
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

fn result(answer: Answer) -> CallToolResult {
    let mut content = vec![ContentBlock::text(answer.text)];
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

/// An error of a request that is no tool.
pub(crate) fn refusal(error: &Error) -> ErrorData {
    let data = serde_json::to_value(error).ok();
    match error.kind {
        motu_core::ErrorKind::NotFound => {
            ErrorData::resource_not_found(error.message.clone(), data)
        }
        motu_core::ErrorKind::Invalid => ErrorData::invalid_params(error.message.clone(), data),
        _ => ErrorData::internal_error(error.message.clone(), data),
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
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
            let shown: String = request.name.chars().take(60).collect();
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
        match self.answer(tool, &call, given).await {
            Outcome::Answer(answer) => Ok(result(answer).into()),
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
        let all = all.map_err(|error| refusal(&error))?;
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
        let read = read.map_err(|error| refusal(&error))?;
        Ok(model::ReadResourceResult::new(vec![read]).into())
    }
}
