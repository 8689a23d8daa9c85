//! An MCP server on its standard input and output, driven line by line.

use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};

pub struct Mcp {
    server: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    asked: u64,
    /// Notifications that arrived while the test waited for an answer.
    pub heard: Vec<Value>,
    /// The output schema of each tool.
    outputs: HashMap<String, Value>,
}

impl Mcp {
    /// Starts the server with these options and initializes this revision of the protocol. Everything
    /// is approved in advance, unless an option says otherwise.
    pub fn start(story: &Story, options: &[&str], revision: &str) -> Mcp {
        let approvals = match options.contains(&"--approvals") {
            true => &[][..],
            false => &["--approvals", "never"],
        };
        let serve = [&["mcp", "serve"], approvals, options].concat();
        let mut command = story.command(&serve);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut mcp = Mcp {
            server,
            lines,
            asked: 0,
            heard: Vec::new(),
            outputs: HashMap::new(),
        };
        let hello = json!({
            "protocolVersion": revision, "capabilities": {},
            "clientInfo": {"name": "lines", "version": "1"},
        });
        let answer = mcp.ask("initialize", &hello);
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        mcp.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        let listed = mcp.ask("tools/list", &json!({}));
        for tool in listed["result"]["tools"].as_array().unwrap() {
            let name = tool["name"].as_str().unwrap().to_string();
            mcp.outputs.insert(name, tool["outputSchema"].clone());
        }
        mcp
    }

    pub fn say(&mut self, line: &str) {
        let mut input = self.server.stdin.as_ref().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn next(&mut self) -> Value {
        let line = self.lines.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The answer with this id.
    pub fn answer(&mut self, id: &Value) -> Value {
        loop {
            let message = self.next();
            if message.get("method").is_some() {
                self.heard.push(message);
            } else if message["id"] == *id {
                return message;
            }
        }
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = json!(self.asked);
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(&request.to_string());
        self.answer(&id)
    }

    pub fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask("tools/call", &params)["result"].clone()
    }

    /// The structured answer of a tool, checked against the tool's schema.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.result(tool, arguments);
        let told = &result["structuredContent"];
        assert!(told.is_object(), "{tool}: {result}");
        let properties = self.outputs[tool]["properties"].as_object().unwrap();
        for (name, schema) in properties {
            let Some(value) = told.get(name) else {
                continue;
            };
            let kinds = match &schema["type"] {
                Value::Array(kinds) => kinds.clone(),
                kind => vec![kind.clone()],
            };
            assert!(
                kinds.contains(&json!(kind(value))),
                "{tool}.{name} is {value}"
            );
        }
        // What a program decides by is in the answer where the schema has it, and only there.
        let is_of_a_session = result["isError"] != true && told["session_exists"] != false;
        for name in ["end", "status", "confidence"] {
            assert!(
                !is_of_a_session || told.get(name).is_some() == properties.contains_key(name),
                "{tool}.{name}: the answer and its schema differ: {told}"
            );
        }
        told.clone()
    }
}

/// The JSON Schema type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}
