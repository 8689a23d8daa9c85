//! What validators ask for beyond types, said in the document: bounds of numbers, forms of texts,
//! fields that must be there, objects that take nothing else.
//!
//! Numbers come from the table of limits and forms from `motu_core::form`, which are what requests
//! are checked by. A run of generated requests against a live daemon finds what is not said here.

use motu_core::event::EventKind;
use motu_core::limits::{self, Limit};
use motu_core::{form, signal};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields whose limit has another name: of which request (any, if empty), and by which limit.
const NUMBERS: &[(&str, &str, Limit)] = &[
    ("", "cols", limits::TERMINAL_COLS),
    ("", "rows", limits::TERMINAL_ROWS),
    ("ListAudit", "limit", limits::AUDIT_LIST),
    ("ListSandboxes", "limit", limits::PAGE_ITEMS),
    ("Page", "limit", limits::PAGE_ITEMS),
    ("ListFiles", "limit", limits::LIST_ENTRIES),
    ("FindFiles", "limit", limits::LIST_ENTRIES),
    (
        "CreateKey",
        "calls_per_minute",
        limits::KEY_CALLS_PER_MINUTE,
    ),
    ("CreateKey", "expires_seconds", limits::KEY_EXPIRES_SECONDS),
    (
        "CreateWorkspace",
        "ttl_seconds",
        limits::WORKSPACE_TTL_SECONDS,
    ),
    ("CallRequest", "max_output_bytes", limits::CALL_OUTPUT_BYTES),
    (
        "CallRequest",
        "timeout_seconds",
        limits::CALL_TIMEOUT_SECONDS,
    ),
    ("CallState", "ttl_seconds", limits::CALL_TTL_SECONDS),
    (
        "BuildRequest",
        "timeout_seconds",
        limits::BUILD_STEP_SECONDS,
    ),
    ("Fork", "count", limits::FORK_COUNT),
    ("ForkWorkspace", "count", limits::FORK_COUNT),
    (
        "TemplateDefinition",
        "pool_size",
        limits::TEMPLATE_POOL_SIZE,
    ),
    ("Wait", "max_output_bytes", limits::TERMINAL_OUTPUT_BYTES),
    ("Wait", "timeout", limits::TERMINAL_TIMEOUT_SECONDS),
    (
        "ConfigureTerminal",
        "quiescence_ms",
        limits::TERMINAL_QUIESCENCE_MS,
    ),
    (
        "OpenTerminal",
        "quiescence_ms",
        limits::TERMINAL_QUIESCENCE_MS,
    ),
    ("ReadScrollback", "lines", limits::TERMINAL_SCROLLBACK_LINES),
    ("ReadTranscript", "max_bytes", limits::TERMINAL_OUTPUT_BYTES),
    ("ReadShell", "max_chars", limits::SHELL_CHARS),
    ("ReadShell", "wait_for_idle_ms", limits::SHELL_IDLE_MS),
    ("DiffOptions", "max_bytes", limits::DIFF_BYTES),
    ("Since", "max_bytes", limits::DIFF_BYTES),
    ("ReadText", "max_bytes", limits::FILE_TEXT_BYTES),
    ("ExportFiles", "max_bytes", limits::EXPORT_BYTES),
    ("ExportDisk", "max_bytes", limits::EXPORT_BYTES),
    ("LogOptions", "tail_lines", limits::SERVICE_TAIL_LINES),
    ("NewCapsule", "vcpus", limits::VCPU_COUNT),
    ("NewCapsule", "memory_mb", limits::MEM_MIB),
    ("NewCapsule", "timeout_sec", limits::IDLE_SECONDS),
    ("CapsuleCommand", "timeout_sec", limits::TIMEOUT_SECONDS),
];

/// Numbers that are bounded by what they are.
const WIDTHS: &[(&str, &str, u64, u64)] = &[
    ("CallDestination", "port", 1, 65_535),
    ("CapsulePath", "depth", 1, 64),
    ("ExplainPolicy", "port", 0, 65_535),
    ("Readiness", "port", 1, 65_535),
    ("Undo", "steps", 1, u32::MAX as u64),
    ("Publish", "guest_port", 1, 65_535),
    ("Publish", "host_port", 1, 65_535),
];

/// Fields that have a default in the types, and must be given all the same.
const NEEDED: &[(&str, &[&str])] = &[
    ("CallRequest", &["command", "state"]),
    ("ExecBody", &["command"]),
    ("ExecRequest", &["command"]),
    ("RunRequest", &["exec", "sandbox"]),
    ("StartService", &["command", "service_name"]),
    ("WorkspaceExec", &["command"]),
    ("SecretSource", &["name"]),
    ("SetPolicy", &["policy"]),
    ("OpenTerminal", &["session_id"]),
    ("SyncPush", &["source_path"]),
    ("TemplateDefinition", &["environment"]),
    ("SignalTerminal", &["signal"]),
    ("RunInTerminal", &["command"]),
    ("ExpectInTerminal", &["patterns"]),
    ("TerminalPassword", &["password"]),
    ("CheckPolicy", &["text"]),
    ("Edit", &["path"]),
    ("CapsuleCommand", &["cmd"]),
    ("CapsulePath", &["path"]),
    ("SaveCapsule", &["sandbox_id"]),
];

/// The longest name of a host.
const HOST_CHARS: u64 = 253;

/// Texts that may not be empty where they are given.
const WORDS: &[(&str, &str)] = &[
    ("SecretSource", "value"),
    ("CommitSandbox", "name"),
    ("TemplateDefinition", "environment"),
];

/// Lists that may not be empty.
const FILLED: &[(&str, &str)] = &[
    ("Program", "command"),
    ("CallRequest", "command"),
    ("StartService", "command"),
    ("ExpectInTerminal", "patterns"),
    ("EditFiles", "edits"),
];

/// Choices of which none takes anything else than its own fields.
const CLOSED: &[&str] = &["Readiness"];

/// A process by its pid, or by a tag that is no number.
const SELECTOR: &str = "^([1-9][0-9]{0,8}|[A-Za-z._-][A-Za-z0-9._-]{0,63})$";
/// A name for people.
const TITLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]{1,120}$";
const LABEL: &str = "^[A-Za-z0-9._/-]{1,63}$";
const LABEL_VALUE: &str = r"^[^\u0000-\u001f\u007f-\u009f]{0,255}$";
const SNAPSHOT: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// The name of a variable of the environment, and its value.
const VARIABLE: &str = r"^[^=\u0000]+$";
const VALUE: &str = r"^[^\u0000]*$";

/// The form of a text, by the request and its field.
fn form_of(owner: &str, field: &str) -> Option<String> {
    let fixed = match (owner, field) {
        (_, "sandbox_id" | "workspace_id") => form::SANDBOX_ID,
        (_, "session_id") => form::TERMINAL_ID,
        ("ChangeMode" | "MakeDirectory" | "WriteFile", "mode") => form::MODE,
        ("FindFiles", "pattern") | (_, "workdir") => form::GUEST_PATH,
        (_, "policy") => form::POLICY_NAME,
        ("ExplainPolicy", "protocol") => "^(tcp|udp|icmp)$",
        ("Attach", "from") => "^(oldest|newest)$",
        ("NewCapsule", "template") => form::NAME,
        ("CapsuleCommand" | "CapsuleTerminal", "cmd" | "user") => r"^[^\u0000]+$",
        ("CapsuleCommand" | "CapsuleTerminal", "cwd") | ("CapsulePath", "path") => form::GUEST_PATH,
        ("CapsuleCommand" | "CapsuleTerminal", "tag") => "^[A-Za-z._-][A-Za-z0-9._-]{0,63}$",
        ("SaveCapsule", "name") => form::TEMPLATE_NAME,
        ("SecretRef", "ref") => form::SECRET_NAME,
        ("SecretSource", "name") => "^[A-Za-z_][A-Za-z0-9_]{0,63}$",
        ("ExpectInTerminal", "from") => r"^[0-9]{1,18}(\+[0-9]{1,9})?$",
        ("CreateWorkspace" | "UpdateWorkspace" | "ForkWorkspace", "name") => TITLE,
        ("StartService", "service_name") => "^[A-Za-z0-9_][A-Za-z0-9._-]{0,47}$",
        ("SetSecret", "value") | ("Edit" | "WriteText" | "ReadText", "path") => form::NAME,
        (_, "snapshot_name") | ("ResetTo", "snapshot") | ("Since", "to") => SNAPSHOT,
        ("ExecRequest" | "ExecBody", "tag") => "^[A-Za-z._-][A-Za-z0-9._-]{0,63}$",
        (_, "signal") => return Some(signal::form()),
        ("ReadEvents", "kind") => return Some(EventKind::form()),
        _ => return None,
    };
    Some(fixed.to_string())
}

/// The form of a type that is a text.
fn form_of_type(name: &str) -> Option<String> {
    match name {
        "SandboxId" => Some(form::SANDBOX_ID.to_string()),
        "GuestPath" => Some(form::GUEST_PATH.to_string()),
        "KeyId" => Some(form::KEY_ID.to_string()),
        "AuditId" => Some(form::AUDIT_ID.to_string()),
        "Signal" => Some(signal::form()),
        _ => None,
    }
}

/// The form of the part of an address: that of its type, or of what a name is the name of.
pub fn form_of_part(family: &str, part: &str, form: &'static str) -> &'static str {
    match (family, part) {
        ("secrets", "name") => form::SECRET_NAME,
        ("policies", "name") => form::POLICY_NAME,
        ("templates", "name") => form::TEMPLATE_NAME,
        ("snapshots", "name") => SNAPSHOT,
        (_, "selector") => SELECTOR,
        _ => form,
    }
}

fn limit_of(owner: &str, field: &str) -> Option<(u64, u64)> {
    let fits = |of: &str| of.is_empty() || of == owner;
    let named = NUMBERS
        .iter()
        .find(|(of, name, _)| *name == field && fits(of));
    let limit = match named {
        Some((_, _, limit)) => Some(*limit),
        None => limits::TABLE
            .iter()
            .find(|limit| limit.name == field)
            .copied(),
    };
    let width = WIDTHS
        .iter()
        .find(|(of, name, ..)| *name == field && fits(of));
    let width = width.map(|(_, _, min, max)| (*min, *max));
    limit.map(|limit| (limit.min, limit.max)).or(width)
}

fn is(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(one) => one == kind,
        Value::Array(some) => some.iter().any(|one| one == kind),
        _ => false,
    }
}

/// Says of one field of a request what it may be.
pub fn state_field(owner: &str, field: &str, schema: &mut Value) {
    if is(schema, "integer") || is(schema, "number") {
        if let Some((min, max)) = limit_of(owner, field) {
            schema["minimum"] = json!(min);
            schema["maximum"] = json!(max);
        } else if is(schema, "integer") && schema["format"] == "int64" {
            schema["maximum"] = json!(u64::MAX);
        } else if is(schema, "integer") {
            schema["maximum"] = json!(u32::MAX);
        }
    }
    if is(schema, "string")
        && schema.get("enum").is_none()
        && let Some(form) = form_of(owner, field)
    {
        schema["pattern"] = json!(form);
    }
    if WORDS.contains(&(owner, field)) {
        schema["minLength"] = json!(1);
    }
    if (owner, field) == ("SetSecret", "hosts") {
        schema["maxItems"] = json!(limits::SECRET_HOSTS.max);
        schema["items"]["pattern"] = json!(form::HOST);
        schema["items"]["maxLength"] = json!(HOST_CHARS);
    }
    if FILLED.contains(&(owner, field)) {
        schema["minItems"] = json!(1);
    }
    let starts = FILLED.contains(&(owner, field)) || owner == "OpenTerminal";
    if field == "command" && is(schema, "array") {
        schema["items"] = json!({"type": "string", "pattern": VALUE});
    }
    if field == "command" && is(schema, "array") && starts {
        // Arguments may be empty, a program may not.
        schema["prefixItems"] = json!([{"type": "string", "minLength": 1, "pattern": VALUE}]);
    }
    let labels = field == "labels" || (owner, field) == ("NewCapsule", "metadata");
    if labels && is(schema, "object") {
        schema["propertyNames"] = json!({"pattern": LABEL});
        schema["additionalProperties"] = json!({"type": "string", "pattern": LABEL_VALUE});
    }
    if ["secret_refs", "secrets"].contains(&field) && is(schema, "object") {
        schema["propertyNames"] = json!({"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"});
    }
    if field == "clear_labels" {
        schema["items"]["pattern"] = json!(LABEL);
    }
    if ["env", "envs"].contains(&field) && is(schema, "object") {
        schema["propertyNames"] = json!({"pattern": VARIABLE});
        schema["additionalProperties"] = json!({"type": "string", "pattern": VALUE});
    }
}

/// Says of every request what it may be. `requests` are the names of their types.
pub fn state(schemas: &mut BTreeMap<String, Value>, requests: &BTreeSet<String>) {
    for (name, schema) in schemas.iter_mut() {
        if let Some(form) = form_of_type(name) {
            schema["pattern"] = json!(form);
        }
    }
    for name in reachable(schemas, requests) {
        let Some(schema) = schemas.get_mut(&name) else {
            continue;
        };
        state_fields(&name, schema);
        for word in ["allOf", "oneOf"] {
            let parts = schema.get_mut(word).and_then(Value::as_array_mut);
            for part in parts.into_iter().flatten() {
                state_fields(&name, part);
                if CLOSED.contains(&name.as_str()) {
                    part["additionalProperties"] = json!(false);
                }
            }
        }
    }
    let names: Vec<String> = schemas.keys().cloned().collect();
    for name in names {
        if let Some(whole) = merged(schemas, &schemas[&name]) {
            schemas.insert(name, whole);
        }
    }
    for (name, fields) in NEEDED {
        if let Some(schema) = schemas.get_mut(*name) {
            require(schema, fields);
        }
    }
}

fn state_fields(owner: &str, schema: &mut Value) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, schema) in fields.into_iter().flatten() {
        state_field(owner, field, schema);
    }
}

fn require(schema: &mut Value, fields: &[&str]) {
    let mut all: BTreeSet<String> = BTreeSet::new();
    let given = schema["required"].as_array().cloned().unwrap_or_default();
    all.extend(given.iter().filter_map(Value::as_str).map(String::from));
    all.extend(fields.iter().map(|field| field.to_string()));
    schema["required"] = json!(all);
    for field in fields {
        let field = schema.pointer_mut(&format!("/properties/{field}"));
        let Some(field) = field.and_then(Value::as_object_mut) else {
            continue;
        };
        field.remove("default");
        // What must be given cannot be nothing.
        if let Some(ways) = field.get_mut("oneOf").and_then(Value::as_array_mut) {
            ways.retain(|way| way["type"] != "null");
        }
        if let Some(kinds) = field.get_mut("type").and_then(Value::as_array_mut) {
            kinds.retain(|kind| kind != "null");
        }
    }
}

/// The types that requests are made of.
fn reachable(schemas: &BTreeMap<String, Value>, from: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<String> = from.iter().cloned().collect();
    while let Some(name) = next.pop() {
        if let Some(schema) = schemas.get(&name)
            && found.insert(name)
        {
            references(schema, &mut next);
        }
    }
    found
}

fn references(schema: &Value, into: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                into.extend(name.rsplit('/').next().map(String::from));
            }
            fields.values().for_each(|one| references(one, into));
        }
        Value::Array(some) => some.iter().for_each(|one| references(one, into)),
        _ => {}
    }
}

/// One object of those that another is put together from. As separate parts, each of which takes
/// nothing else, they would allow nothing at all.
fn merged(schemas: &BTreeMap<String, Value>, schema: &Value) -> Option<Value> {
    let parts = schema["allOf"].as_array()?;
    let (mut properties, mut required) = (Map::new(), BTreeSet::new());
    let mut closed = false;
    for part in parts {
        let part = match part["$ref"].as_str() {
            Some(name) => schemas.get(name.rsplit('/').next()?)?,
            None => part,
        };
        let whole = merged(schemas, part);
        let part = whole.as_ref().unwrap_or(part);
        // What is put together from something else than objects stays as it is.
        let fields = part["properties"].as_object()?;
        properties.extend(fields.clone());
        let needed = part["required"].as_array().cloned().unwrap_or_default();
        required.extend(needed.iter().filter_map(Value::as_str).map(String::from));
        closed |= part["additionalProperties"] == json!(false);
    }
    let mut whole = json!({"type": "object", "properties": properties});
    if let Some(about) = schema.get("description") {
        whole["description"] = about.clone();
    }
    if !required.is_empty() {
        whole["required"] = json!(required);
    }
    if closed {
        whole["additionalProperties"] = json!(false);
    }
    Some(whole)
}
