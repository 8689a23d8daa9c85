//! What the suite must be able to name: its own tools, prompts and resources, beside ours.
//!
//! Everything else is the server itself, which answers for whatever is not named here.

#![expect(deprecated, reason = "the suite asks for what older revisions had")]

use crate::Server;
use crate::approve::Seal;
use crate::call::is_stateless;
use rmcp::ServerHandler;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// A picture of one pixel, and a sound of none.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

const TOOLS: [&str; 25] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_error_handling",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_streaming_elicitation",
    "test_missing_capability",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_reconnection",
    "json_schema_2020_12_tool",
];

#[derive(Clone)]
pub struct Fixture {
    pub inner: Server,
    pub seal: Arc<Seal>,
}

/// Written as the protocol has it.
fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixture speaks the protocol")
}

fn said(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

fn picture() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn embedded(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

/// Tools whose answer is always the same.
fn fixed(tool: &str) -> Option<Value> {
    let content = match tool {
        "test_simple_text" => json!([
            {"type": "text", "text": "This is a simple text response for testing."},
        ]),
        "test_image_content" => json!([picture()]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]),
        "test_multiple_content_types" => json!([
            {"type": "text", "text": "Multiple content types test:"},
            picture(),
            embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        _ => return None,
    };
    Some(json!({"resultType": "complete", "content": content}))
}

/// A question with fields of these kinds.
fn form(message: &str, properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().expect("fields").keys().collect();
    json!({
        "message": message,
        "requestedSchema": {"type": "object", "properties": properties, "required": names},
    })
}

fn elicitation(message: &str, field: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": form(message, json!({field: {"type": kind}}))})
}

fn sampling(text: &str) -> Value {
    let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
    json!({
        "method": "sampling/createMessage",
        "params": {"messages": messages, "maxTokens": 100},
    })
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

fn titled(prefix: &str) -> Value {
    let one = |number: &str, word: &str| json!({"const": format!("value{number}"), "title": format!("{word} {prefix}")});
    json!([one("1", "First"), one("2", "Second"), one("3", "Third")])
}

/// The fields of the questions that older clients are asked.
fn asked(tool: &str) -> Value {
    match tool {
        "test_elicitation_sep1034_defaults" => json!({
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": true},
        }),
        "test_elicitation_sep1330_enums" => json!({
            "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
            "titledSingle": {"type": "string", "oneOf": titled("Option")},
            "legacyEnum": {
                "type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
            },
            "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
        }),
        _ => json!({"username": {"type": "string"}, "email": {"type": "string"}}),
    }
}

/// A schema with the words of JSON Schema 2020-12.
fn schema(tool: &str) -> JsonObject {
    let schema = match tool {
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {
                "$anchor": "addressDef", "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }},
            "properties": {
                "name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"}, "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        }),
        _ => json!({"type": "object"}),
    };
    read(schema)
}

impl Fixture {
    /// The rounds of a call that needs something of its client.
    fn rounds(
        &self,
        tool: &str,
        given: Option<&InputResponses>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let has = |name: &str| given.is_some_and(|given| given.contains_key(name));
        let sealed = |step: &str| self.seal.note(format!("{tool} {step}").as_bytes());
        let intact = |step: &str| {
            let bound = format!("{tool} {step}");
            state.is_some_and(|state| self.seal.redeem(state, bound.as_bytes()))
        };
        let name = || elicitation("What is your name?", "name", "string");
        let (requests, state) = match tool.trim_start_matches("test_input_required_result_") {
            "elicitation" | "test_streaming_elicitation" => {
                match given.and_then(|given| given.get("user_name")) {
                    Some(answer) if answer["content"]["name"].is_string() => {
                        return Ok(said(&format!("Hello, {}!", answer["content"]["name"])));
                    }
                    _ => (json!({"user_name": name()}), None),
                }
            }
            "sampling" => match given.and_then(|given| given.get("capital_question")) {
                Some(answer) => return Ok(said(&answer["content"].to_string())),
                None => (
                    json!({"capital_question": sampling("What is the capital of France?")}),
                    None,
                ),
            },
            "list_roots" => match given.and_then(|given| given.get("client_roots")) {
                Some(answer) => return Ok(said(&answer["roots"].to_string())),
                None => (json!({"client_roots": roots()}), None),
            },
            "request_state" if has("confirm") && intact("1") => return Ok(said("state-ok")),
            "tampered_state" if has("confirm") && intact("1") => return Ok(said("done")),
            "request_state" | "tampered_state" if state.is_some() => {
                return Err(ErrorData::invalid_params(
                    "the requestState is not ours",
                    None,
                ));
            }
            "request_state" | "tampered_state" => (
                json!({"confirm": elicitation("Please confirm", "ok", "boolean")}),
                Some(sealed("1")),
            ),
            "multiple_inputs"
                if has("user_name") && has("greeting") && has("client_roots") && intact("1") =>
            {
                return Ok(said("all of it came"));
            }
            "multiple_inputs" => (
                json!({"user_name": name(), "greeting": sampling("Generate a greeting"), "client_roots": roots()}),
                Some(sealed("1")),
            ),
            "multi_round" if has("step2") && intact("2") => return Ok(said("both steps are done")),
            "multi_round" if has("step1") && intact("1") => (
                json!({"step2": elicitation("Step 2: What is your favorite color?", "color", "string")}),
                Some(sealed("2")),
            ),
            "multi_round" => (
                json!({"step1": elicitation("Step 1: What is your name?", "name", "string")}),
                Some(sealed("1")),
            ),
            _ => {
                let can = json!(context.client_capabilities());
                let mut requests = json!({});
                if can["elicitation"].is_object() {
                    requests["user_name"] = name();
                }
                if can["sampling"].is_object() {
                    requests["greeting"] = sampling("Generate a greeting");
                }
                (requests, None)
            }
        };
        let requests: InputRequests = read(requests);
        Ok(InputRequiredResult::new(Some(requests), state).into())
    }

    async fn logged(&self, context: &RequestContext<RoleServer>) -> CallToolResponse {
        let steps = [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ];
        for step in steps {
            // From that revision on, log messages are sent only for requests that ask for a level.
            if !is_stateless(context) {
                let note = read(json!({"level": "info", "data": step}));
                let _ = context.peer.notify_logging_message(note).await;
            }
        }
        said("done, and logged")
    }

    async fn progressed(&self, context: &RequestContext<RoleServer>) -> CallToolResponse {
        if let Some(token) = context.meta.get_progress_token() {
            for step in [0.0, 50.0, 100.0] {
                let note = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
                let _ = context.peer.notify_progress(note).await;
            }
        }
        said("done, and told")
    }

    async fn sampled(
        &self,
        given: &JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let prompt = given
            .get("prompt")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let params = read(sampling(prompt)["params"].take());
        match context.peer.create_message(params).await {
            Ok(answer) => said(&format!(
                "LLM response: {}",
                json!(answer)["content"]["text"]
            )),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into(),
        }
    }

    async fn elicited(
        &self,
        tool: &str,
        given: &JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let message = given
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or("Please fill in");
        let mut params = form(message, asked(tool));
        params["mode"] = "form".into();
        match context.peer.create_elicitation(read(params)).await {
            Ok(answer) => {
                let answer = json!(answer);
                said(&format!(
                    "action={}, content={}",
                    answer["action"], answer["content"]
                ))
            }
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into(),
        }
    }
}

fn prompt(name: &str, given: &JsonObject) -> Option<Value> {
    let argument = |name: &str| {
        given
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string()
    };
    let from_user = |content: Value| json!({"role": "user", "content": content});
    let words = |text: String| from_user(json!({"type": "text", "text": text}));
    Some(match name {
        "test_simple_prompt" => json!([words("This is a simple prompt for testing.".to_string())]),
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            json!([words(format!(
                "Prompt with arguments: arg1='{one}', arg2='{two}'"
            ))])
        }
        "test_prompt_with_embedded_resource" => json!([
            from_user(embedded(
                &argument("resourceUri"),
                "text/plain",
                "Embedded resource content for testing."
            )),
            words("Please process the embedded resource above.".to_string()),
        ]),
        "test_prompt_with_image" => json!([
            from_user(picture()),
            words("Please analyze the image above.".to_string()),
        ]),
        _ => return None,
    })
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.inner.get_info();
        let mut capabilities = json!(info.capabilities);
        for name in ["prompts", "completions", "logging"] {
            capabilities[name] = json!({});
        }
        info.capabilities = read(capabilities);
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.inner.list_tools(request, context).await?;
        let tool =
            |name: &&'static str| Tool::new(*name, "A tool of the suite.", Arc::new(schema(name)));
        listed.tools.extend(TOOLS.iter().map(tool));
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(answer) = fixed(&request.name) {
            return Ok(read::<CallToolResult>(answer).into());
        }
        let given = request.arguments.clone().unwrap_or_default();
        Ok(match &*request.name {
            "test_tool_with_logging" | "test_logging_tool" => self.logged(&context).await,
            "test_tool_with_progress" => self.progressed(&context).await,
            "test_sampling" => self.sampled(&given, &context).await,
            "test_reconnection" => said("still here"),
            "test_error_handling" => {
                let text = "This tool intentionally returns an error for testing";
                CallToolResult::error(vec![ContentBlock::text(text)]).into()
            }
            "test_missing_capability" => {
                if json!(context.client_capabilities())["sampling"].is_object() {
                    return Ok(said("it has what it takes"));
                }
                let needed = read(json!({"sampling": {}}));
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            name if name.starts_with("test_input_required")
                || name == "test_streaming_elicitation" =>
            {
                let state = request.request_state.as_deref();
                return self.rounds(name, request.input_responses.as_ref(), state, &context);
            }
            name if name.starts_with("test_elicitation") => {
                self.elicited(name, &given, &context).await
            }
            _ => return self.inner.call_tool(request, context).await,
        })
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument =
            |name: &str| json!({"name": name, "description": "An argument.", "required": true});
        let one = |name: &str, arguments: Value| json!({"name": name, "description": "A prompt of the suite.", "arguments": arguments});
        Ok(read(json!({"resultType": "complete", "prompts": [
            one("test_simple_prompt", json!([])),
            one("test_prompt_with_arguments", json!([argument("arg1"), argument("arg2")])),
            one("test_prompt_with_embedded_resource", json!([argument("resourceUri")])),
            one("test_prompt_with_image", json!([])),
            one("test_input_required_result_prompt", json!([])),
        ]})))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            if request
                .input_responses
                .is_some_and(|given| given.contains_key("user_context"))
            {
                let messages = prompt("test_simple_prompt", &JsonObject::new());
                return Ok(read::<GetPromptResult>(
                    json!({"resultType": "complete", "messages": messages}),
                )
                .into());
            }
            let question = elicitation("What context should the prompt use?", "context", "string");
            let requests: InputRequests = read(json!({"user_context": question}));
            return Ok(InputRequiredResult::new(Some(requests), None).into());
        }
        let given = request.arguments.unwrap_or_default();
        let messages = prompt(&request.name, &given);
        let messages = messages.ok_or_else(|| ErrorData::invalid_params("unknown prompt", None))?;
        Ok(read::<GetPromptResult>(json!({"resultType": "complete", "messages": messages})).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut listed = self.inner.list_resources(request, context).await?;
        for name in ["static-text", "static-binary", "watched-resource"] {
            listed
                .resources
                .push(Resource::new(format!("test://{name}"), name));
        }
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = self.inner.list_resource_templates(request, context).await?;
        listed.resource_templates.push(ResourceTemplate::new(
            "test://template/{id}/data",
            "template",
        ));
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        let template = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri.as_str(), template) {
            ("test://static-text" | "test://watched-resource", _) => json!({
                "uri": uri, "mimeType": "text/plain",
                "text": "This is the content of the static text resource.",
            }),
            ("test://static-binary", _) => {
                json!({"uri": uri, "mimeType": "image/png", "blob": PNG})
            }
            (_, Some(id)) => json!({
                "uri": uri, "mimeType": "application/json",
                "text": json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string(),
            }),
            _ => return self.inner.read_resource(request, context).await,
        };
        Ok(ReadResourceResult::new(vec![read(contents)]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match request.uri.starts_with("test://") {
            true => Ok(()),
            false => self.inner.subscribe(request, context).await,
        }
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.inner.unsubscribe(request, context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.inner.on_custom_request(request, context).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.inner.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.inner.listen(context).await
    }
}
