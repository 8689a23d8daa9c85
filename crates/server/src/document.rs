//! The OpenAPI document, made from the list of verbs.
//!
//! The daemon serves `docs/openapi.json` as it is; a test makes it anew from here and compares.

mod capsules;
mod relations;
mod statements;

use crate::corridor::KILL_PATH;
use motu_api::event::{Control, Event};
use motu_api::wire::{
    DIAL_PROTOCOL, ExecBody, LINES_TYPE, PROBLEM_TYPE, Problem, STREAM_TYPE, WatchLine,
};
use motu_core::exec::{Background, ExecResult, ExecSession, SignalProcess};
use motu_core::files::{ByteStream, FileEntry, ReadFile};
use motu_core::report::{ProgressEvent, ProgressSink};
use motu_core::runtime::Connection;
use motu_core::terminal::TerminalOpened;
use motu_core::verb::{self, Ask, Changes, Exec, ExecWorkspace, Info, Nothing, Run, Verb, Visit};
use motu_core::{Error, form};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

const ABOUT: &str = "An isolated machine for every AI agent.\n\nLive streams are sequences of frames: one byte of kind (0 JSON, 1 stdin or stdout, 2 stderr), the length of the payload in four bytes, most significant first, and the payload, at most 1 MiB. JSON frames from the server hold an `Event`, those from the client a `Control`; the first frame of a stream is its request. The same frames travel over WebSockets, one per binary message.";

const FAMILIES: [(&str, &str); 14] = [
    ("service", "The daemon itself."),
    (
        "keys",
        "Keys of callers of other hosts; only for callers of the local socket.",
    ),
    ("events", "What happened on this host, in its order."),
    ("environments", "What sandboxes start from."),
    ("sandboxes", "Isolated machines."),
    ("commands", "Commands and processes inside a sandbox."),
    ("files", "Files inside a sandbox."),
    ("ports", "Ports, sockets and measurements of a sandbox."),
    (
        "workspaces",
        "Sandboxes that are kept, with `/workspace`, a baseline and a history.",
    ),
    (
        "workspace content",
        "What is in `/workspace`: pushing, reading, patching, comparing.",
    ),
    ("snapshots", "Named states of `/workspace`."),
    ("services", "Long-running processes of a workspace."),
    ("shells", "Persistent terminals of a workspace."),
    (
        "terminals",
        "Sessions on a PTY that know what they wait for.",
    ),
];

/// The document of everything served.
pub fn openapi() -> Value {
    let mut document = Document::default();
    verb::visit(&mut document);
    document.by_hand();
    document.capsules();
    statements::state(&mut document.schemas, &document.requests);
    document.give_paths_two_forms();
    relations::state(&mut document.schemas);
    let about: Vec<Value> = FAMILIES
        .iter()
        .chain([&capsules::FAMILY])
        .map(|(name, about)| json!({"name": name, "description": about}))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "motu",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": document.paths,
        "components": {"schemas": document.schemas},
        "tags": about,
    })
}

/// The document, being written.
#[derive(Default)]
struct Document {
    paths: BTreeMap<String, Map<String, Value>>,
    schemas: BTreeMap<String, Value>,
    /// The names of types that are requests.
    requests: BTreeSet<String>,
    /// Requests with paths of a machine, and which fields these are.
    paths_of: BTreeMap<String, &'static [&'static str]>,
}

fn written(schema: impl serde::Serialize) -> Value {
    serde_json::to_value(schema).expect("a schema is JSON")
}

fn content(kind: &str, schema: &Value) -> Value {
    json!({kind: {"schema": schema}})
}

fn answer(about: &str) -> Value {
    json!({"description": about})
}

impl Document {
    /// What refers to a type, which is described once.
    fn refer<T: ToSchema>(&mut self) -> Value {
        let mut found = Vec::new();
        T::schemas(&mut found);
        for (name, schema) in found {
            self.schemas.insert(name, written(schema));
        }
        let full = std::any::type_name::<T>();
        let mut schema = written(T::schema());
        let Some(items) = full.strip_prefix("alloc::vec::Vec<") else {
            return self.keep(&T::name(), schema);
        };
        // A list refers to what is in it.
        let name = items.trim_end_matches('>').rsplit("::").next();
        let items = self.keep(name.unwrap_or(items), schema["items"].take());
        json!({"type": "array", "items": items})
    }

    /// One line of an answer in steps: a step, or what all of them came to.
    fn step_line<T: ToSchema>(&mut self) -> Value {
        let kinds = [
            ("progress", self.refer::<ProgressEvent>()),
            ("result", self.refer::<T>()),
            ("error", self.refer::<Error>()),
        ];
        let one = |(name, schema): (&str, Value)| json!({"type": "object", "properties": {name: schema}, "required": [name]});
        let choice = json!({
            "description": "One line of the answer; `result` or `error` is the last.",
            "oneOf": kinds.map(one),
        });
        self.keep(&format!("{}Line", T::name()), choice)
    }

    /// An object or a choice gets a name; a text or a number does not need one.
    fn keep(&mut self, name: &str, schema: Value) -> Value {
        let plain = schema.get("type").is_some_and(|kind| kind != "object");
        if plain && schema.get("enum").is_none() {
            return schema;
        }
        self.schemas.insert(name.to_string(), schema);
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    fn add(&mut self, path: &str, method: &str, operation: Value) {
        let at = self.paths.entry(path.to_string()).or_default();
        at.insert(method.to_string(), operation);
    }

    /// The verb at its own address.
    fn verb<V: Verb>(&mut self, success: Value) {
        let info = V::INFO;
        let mut operation = self.operation(&info, info.name, success);
        let mut parameters = path_parameters::<V>();
        if info.asks_in_query() {
            parameters.extend(query_parameters::<V::Ask>());
        } else if std::any::type_name::<V::Ask>() != std::any::type_name::<Nothing>() {
            let schema = self.refer::<V::Ask>();
            self.requests.insert(V::Ask::name().to_string());
            if !V::Ask::GUEST_PATHS.is_empty() {
                let name = V::Ask::name().to_string();
                self.paths_of.insert(name, V::Ask::GUEST_PATHS);
            }
            operation["requestBody"] =
                json!({"content": content("application/json", &schema), "required": true});
        }
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
        }
        let method = info.method.as_str().to_ascii_lowercase();
        self.add(info.path, &method, operation);
    }

    /// A path that is not UTF-8 has a field of its own: one of the two is given, never both.
    fn give_paths_two_forms(&mut self) {
        for (name, paths) in &self.paths_of {
            let Some(schema) = self.schemas.get_mut(name) else {
                continue;
            };
            let mut ways: Vec<Vec<String>> = vec![Vec::new()];
            for path in *paths {
                let odd = format!("{path}_base64");
                schema["properties"][&odd] = base64_of(path);
                let required = schema.get_mut("required").and_then(Value::as_array_mut);
                if let Some(required) = required {
                    required.retain(|one| one != path);
                }
                let with = |way: &Vec<String>, one: &str| {
                    let mut way = way.clone();
                    way.push(one.to_string());
                    way
                };
                let both = |way: &Vec<String>| [with(way, path), with(way, &odd)];
                ways = ways.iter().flat_map(both).collect();
            }
            let ways: Vec<Value> = ways.iter().map(|way| json!({"required": way})).collect();
            schema["oneOf"] = Value::Array(ways);
        }
    }

    fn operation(&mut self, info: &Info, id: &str, success: Value) -> Value {
        let failure = self.refer::<Problem>();
        let mut lines = info.about.lines().map(str::trim);
        let summary = lines.next().unwrap_or_default();
        let rest: Vec<&str> = lines.skip_while(|line| line.is_empty()).collect();
        let rest = rest.join("\n");
        let mut operation = json!({
            "tags": [info.family],
            "summary": summary,
            "operationId": id,
            "responses": {
                info.status.to_string(): success,
                "default": {
                    "description": "The call failed; `error.kind` says how and decides the status.",
                    "content": content(PROBLEM_TYPE, &failure),
                },
            },
        });
        if !rest.trim().is_empty() {
            operation["description"] = Value::String(rest.trim().to_string());
        }
        operation
    }

    fn json_answer<T: ToSchema>(&mut self) -> Value {
        let schema = self.refer::<T>();
        json!({"description": "Done.", "content": content("application/json", &schema)})
    }

    /// The entry of a verb whose answer is one JSON value, or has no body.
    fn value_or_nothing<V: Verb<Answer: verb::Value>>(&mut self) {
        let success = match V::INFO.status {
            204 => answer("Done."),
            _ => self.json_answer::<V::Answer>(),
        };
        self.verb::<V>(success);
    }

    /// The entry of a live session's second way, a WebSocket.
    fn web_socket<V: Verb>(&mut self) {
        let info = V::INFO;
        let id = format!("{}_ws", info.name.trim_end_matches("_stream"));
        let about = Info {
            about: "The same over a WebSocket\n\nOne frame per binary message. With `?mode=raw` binary messages are plain input and output, both channels in the order in which they come, text messages are a `Control`, and the reason of the close is `{\"exit_code\": …}` or `{\"error\": …}`.",
            status: 101,
            ..info
        };
        let mut operation = self.operation(&about, &id, answer("A stream of frames."));
        let mut parameters = path_parameters::<V>();
        if info.asks_in_query() {
            parameters.extend(query_parameters::<V::Ask>());
        }
        operation["parameters"] = Value::Array(parameters);
        self.add(&format!("{}/ws", info.path), "get", operation);
    }

    /// What one address does for several verbs.
    fn by_hand(&mut self) {
        let opened = self.json_answer::<TerminalOpened>();
        if let Some(open) = self.paths.get_mut(verb::OpenTerminal::INFO.path) {
            open["post"]["responses"]["200"] = opened;
        }
        let result = self.json_answer::<ExecResult>();
        self.verb::<Run>(result.clone());
        self.verb::<Exec>(result.clone());
        self.verb::<ExecWorkspace>(result);
        let schema = self.refer::<ExecBody>();
        self.requests.insert("ExecBody".to_string());
        let background = self.json_answer::<Background>();
        if let Some(exec) = self.paths.get_mut(Exec::INFO.path) {
            exec["post"]["requestBody"]["content"] = content("application/json", &schema);
            exec["post"]["responses"]["202"] = background;
        }
        let info = Info {
            about: "End a process\n\nA signal, which is `KILL` unless another is asked for.",
            ..verb::SignalOne::INFO
        };
        let mut kill = self.operation(&info, "kill_process", answer("Done."));
        let mut parameters = path_parameters::<verb::SignalOne>();
        let mut query = query_parameters::<SignalProcess>();
        query
            .iter_mut()
            .for_each(|one| one["required"] = json!(false));
        parameters.extend(query);
        kill["parameters"] = Value::Array(parameters);
        self.add(KILL_PATH, "delete", kill);
        let schema = json!({"type": "object"});
        let whole = Info {
            name: "openapi",
            family: "service",
            about: "This document",
            ..verb::VersionOf::INFO
        };
        let success =
            json!({"description": "Done.", "content": content("application/json", &schema)});
        let operation = self.operation(&whole, "openapi", success);
        self.add("/v1/openapi.json", "get", operation);
        self.refer::<Event>();
        self.refer::<motu_core::event::Event>();
        self.refer::<Control>();
    }
}

fn path_parameters<V: Verb>() -> Vec<Value> {
    let info = V::INFO;
    let parts = info.parts().zip(V::FORMS);
    parts
        .map(|(name, form)| {
            let form = statements::form_of_part(info.family, name, form);
            let mut parameter = json!({
                "name": name, "in": "path", "required": true,
                "schema": {"type": "string", "pattern": form},
            });
            match name {
                "selector" => parameter["description"] = json!("A pid or a tag"),
                "name" => parameter["description"] = json!("Percent-encoded where it must be"),
                _ => {}
            }
            parameter
        })
        .collect()
}

/// The field of a path that is not UTF-8.
fn base64_of(path: &str) -> Value {
    json!({
        "type": "string",
        "contentEncoding": "base64",
        "pattern": form::GUEST_PATH_BASE64,
        "description": format!("Instead of `{path}`, when it is not UTF-8."),
    })
}

/// The fields of a request, each a parameter of the query.
fn query_parameters<A: Ask>() -> Vec<Value> {
    let schema = written(A::schema());
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut parameters = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mut field = field.clone();
        let about = field
            .as_object_mut()
            .and_then(|one| one.remove("description"));
        statements::state_field(&A::name(), name, &mut field);
        let path = A::GUEST_PATHS.contains(&name.as_str());
        let needed = required.contains(&json!(name)) && !path;
        let mut parameter =
            json!({"name": name, "in": "query", "required": needed, "schema": field});
        if let Some(about) = about {
            parameter["description"] = about;
        }
        parameters.push(parameter);
        if path {
            let mut odd = base64_of(name);
            let about = odd
                .as_object_mut()
                .and_then(|one| one.remove("description"));
            parameters.push(json!({
                "name": format!("{name}_base64"),
                "in": "query",
                "required": false,
                "description": about,
                "schema": odd,
            }));
        }
    }
    parameters
}

impl Visit for Document {
    fn value<V: Verb<Extra = (), Answer: verb::Value>>(&mut self) {
        self.value_or_nothing::<V>();
    }

    fn text<V: Verb<Extra = (), Answer = String>>(&mut self) {
        let text = content("text/plain", &json!({"type": "string"}));
        self.verb::<V>(json!({"description": "Done.", "content": text}));
    }

    fn open<V: Verb<Extra = (), Answer = ExecSession>>(&mut self) {
        self.web_socket::<V>();
    }

    fn attach<V: Verb<Extra = (), Answer = ExecSession>>(&mut self) {
        let stream = content(STREAM_TYPE, &json!({"type": "string"}));
        let success = json!({"description": "Done.", "content": stream});
        self.verb::<V>(success.clone());
        let info = Info {
            about: "The same without input",
            ..V::INFO
        };
        let mut follow = self.operation(&info, &format!("{}_output", info.name), success);
        let mut parameters = path_parameters::<V>();
        parameters.extend(query_parameters::<V::Ask>());
        follow["parameters"] = Value::Array(parameters);
        self.add(info.path, "get", follow);
        self.web_socket::<V>();
    }

    fn bytes<V: Verb<Extra = (), Answer = ByteStream>>(&mut self) {
        let bytes = content(
            V::INFO.content,
            &json!({"type": "string", "format": "binary"}),
        );
        self.verb::<V>(json!({"description": "Done.", "content": bytes}));
    }

    fn file<V: Verb<Extra = (), Ask = ReadFile, Answer = (FileEntry, ByteStream)>>(&mut self) {
        let bytes = content(
            V::INFO.content,
            &json!({"type": "string", "format": "binary"}),
        );
        self.verb::<V>(json!({"description": "Done.", "content": bytes}));
        if let Some(read) = self.paths.get_mut(V::INFO.path) {
            read["get"]["responses"]["206"] = json!({"description": "A part.", "content": bytes});
        }
    }

    fn lines<V: Verb<Extra = (), Answer = Changes>>(&mut self) {
        let line = self.refer::<WatchLine>();
        self.verb::<V>(json!({"description": "Done.", "content": content(LINES_TYPE, &line)}));
    }

    fn dial<V: Verb<Extra = (), Answer = Connection>>(&mut self) {
        self.verb::<V>(answer(&format!("Plain bytes, as {DIAL_PROTOCOL}.")));
    }

    fn upload<V: Verb<Extra = ByteStream, Answer: verb::Value>>(&mut self) {
        self.value_or_nothing::<V>();
        let bytes = content(
            V::INFO.content,
            &json!({"type": "string", "format": "binary"}),
        );
        let method = V::INFO.method.as_str().to_ascii_lowercase();
        if let Some(entry) = self.paths.get_mut(V::INFO.path) {
            entry[&method]["requestBody"] = json!({"content": bytes, "required": true});
        }
    }

    fn steps<V: Verb<Extra = ProgressSink, Answer: verb::Value>>(&mut self) {
        let line = self.step_line::<V::Answer>();
        self.verb::<V>(json!({"description": "Done.", "content": content(LINES_TYPE, &line)}));
    }
}
