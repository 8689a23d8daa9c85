//! What fields of a request have to do with each other, said in the document: which of them exclude
//! each other, and which need another one.
//!
//! Only bodies can say that: parameters of a query are described one by one.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Requests of which exactly one of these fields is given.
const ONE_OF: &[(&str, &[&str])] = &[
    ("SendToTerminal", &["control", "keys", "paste", "text"]),
    ("SetSecret", &["command", "path", "value", "variable"]),
    ("SecretSource", &["path", "value"]),
    ("CallRequest", &["image", "language"]),
];

/// Fields that are not given together: where the first is given, the second is what it is by
/// default.
const NOT_BOTH: &[(&str, &str, &str)] = &[
    ("ExecRequest", "timeout_seconds", "no_timeout"),
    ("ExecBody", "timeout_seconds", "no_timeout"),
    ("OpenTerminal", "sandbox_id", "host"),
    ("UpdateWorkspace", "name", "clear_name"),
];

/// Requests that name an environment or a template.
const STARTING: &[&str] = &["CreateSandbox", "CreateWorkspace"];
/// Requests that say what happens after some time without use.
const IDLING: &[&str] = &["CreateSandbox", "Keepalive"];

/// Says of every request how its fields belong together.
pub fn state(schemas: &mut BTreeMap<String, Value>) {
    for (name, fields) in ONE_OF {
        add(schemas, name, json!({"oneOf": only(fields)}));
    }
    for (name, first, second) in NOT_BOTH {
        let without = json!({"properties": {*first: {"type": "null"}}});
        let alone = json!({"properties": {*second: {"const": false}}});
        add(schemas, name, json!({"anyOf": [without, alone]}));
    }
    for name in STARTING {
        let environment = json!({
            "properties": {"environment": {"minLength": 1}, "template": {"type": "null"}},
            "required": ["environment"],
        });
        let template = json!({
            "properties": {"environment": {"maxLength": 0}, "template": {"type": "string", "minLength": 1}},
            "required": ["template"],
        });
        add(schemas, name, json!({"oneOf": [environment, template]}));
    }
    for name in IDLING {
        let gone = json!({"properties": {"on_idle": {"enum": ["destroy", null]}}});
        let timed = json!({
            "properties": {"idle_seconds": {"type": "integer", "minimum": 1}},
            "required": ["idle_seconds"],
        });
        add(schemas, name, json!({"anyOf": [gone, timed]}));
    }
    bind(schemas);
}

/// A secret that is put into requests is bound to hosts.
fn bind(schemas: &mut BTreeMap<String, Value>) {
    let hosts = json!({"properties": {"hosts": {"minItems": 1}}, "required": ["hosts"]});
    let nowhere = json!({"properties": {
        "body": {"const": false}, "aws": {"const": false}, "ssh": {"const": false},
        "known_hosts": {"type": "null"},
    }});
    add(schemas, "SetSecret", json!({"anyOf": [hosts, nowhere]}));
    let kinds = ["aws", "body"].map(|kind| json!({"properties": {kind: {"const": false}}}));
    add(schemas, "SetSecret", json!({"anyOf": kinds}));
}

/// One way for each field: it is given, and the others are not.
fn only(fields: &[&str]) -> Vec<Value> {
    let way = |given: &&str| {
        let properties: Map<String, Value> = fields
            .iter()
            .map(|field| {
                let schema = match field == given {
                    true => json!({"not": {"type": "null"}}),
                    false => json!({"type": "null"}),
                };
                (field.to_string(), schema)
            })
            .collect();
        json!({"properties": properties, "required": [given]})
    };
    fields.iter().map(way).collect()
}

/// Adds a rule to a request. It is a part of its own, beside those of other rules.
fn add(schemas: &mut BTreeMap<String, Value>, name: &str, rule: Value) {
    let schema = schemas
        .get_mut(name)
        .unwrap_or_else(|| panic!("{name} is no request"));
    match schema.get_mut("allOf").and_then(Value::as_array_mut) {
        Some(rules) => rules.push(rule),
        None => schema["allOf"] = json!([rule]),
    }
}
