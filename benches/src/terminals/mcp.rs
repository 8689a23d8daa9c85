//! A minimal blocking MCP client over standard input and output, used for both sides.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// A revision that both sides support.
const REVISION: &str = "2025-06-18";

/// A server that is stopped on drop.
#[derive(Debug)]
pub struct Mcp {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Mcp {
    pub fn start(mut command: Command) -> Fallible<Mcp> {
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let to = server.stdin.take();
        let from = BufReader::new(server.stdout.take().ok_or("no output")?);
        let mut mcp = Mcp {
            server,
            to,
            from,
            next: 0,
        };
        let hello = json!({
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" },
        });
        mcp.ask("initialize", hello)?;
        mcp.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(mcp)
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    fn write(&mut self, message: &Value) -> Fallible<()> {
        let to = self.to.as_mut().ok_or("no input")?;
        writeln!(to, "{message}")?;
        Ok(to.flush()?)
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Fallible<Value> {
        self.next += 1;
        let id = self.next;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line)? == 0 {
                return Err("the server has ended".into());
            }
            let mut message: Value = serde_json::from_str(&line)?;
            if message["id"] != json!(id) {
                continue;
            }
            if let Some(error) = message.get("error") {
                return Err(format!("{method}: {error}").into());
            }
            return Ok(message["result"].take());
        }
    }

    /// A tool's answer as an object, from its structured content or its text.
    pub fn tool(&mut self, name: &str, arguments: Value) -> Fallible<Value> {
        let mut result = self.ask(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )?;
        if result["isError"] == json!(true) {
            return Err(format!("{name}: {result}").into());
        }
        match result["structuredContent"].take() {
            Value::Null => {
                let text = result["content"][0]["text"].as_str().unwrap_or_default();
                Ok(serde_json::from_str(text)?)
            }
            found => Ok(found),
        }
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        // A server exits when its input is closed.
        drop(self.to.take());
        let _ = self.server.wait();
    }
}
