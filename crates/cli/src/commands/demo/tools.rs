//! The tools of motu's own MCP server, used from this process as any client would.

use motu_core::{Error, Result};
use motu_mcp::Server;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

/// What may be on its way in one direction.
const PIPE_BYTES: usize = 64 * 1024;
const REVISION: &str = "2025-11-25";

pub struct Tools {
    pipe: BufReader<DuplexStream>,
    serving: JoinHandle<Result<()>>,
    asked: u64,
}

/// What a tool has answered.
pub struct Answer {
    pub text: String,
    pub is_error: bool,
}

impl Tools {
    pub async fn open(server: Server) -> Result<Tools> {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let mut tools = Tools {
            pipe: BufReader::new(ours),
            serving: tokio::spawn(server.serve_pipe(theirs)),
            asked: 0,
        };
        let hello = json!({
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "motu-demo", "version": env!("CARGO_PKG_VERSION")},
        });
        tools.ask("initialize", hello).await?;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        tools.send(&ready).await?;
        Ok(tools)
    }

    /// The tools as a model is told of them.
    pub async fn offer(&mut self) -> Result<Vec<Value>> {
        let listed = self.ask("tools/list", json!({})).await?;
        let tools = listed["tools"].as_array().cloned().unwrap_or_default();
        let function = |tool: &Value| {
            json!({"type": "function", "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["inputSchema"],
            }})
        };
        Ok(tools.iter().map(function).collect())
    }

    /// Calls a tool. What it refuses is an answer too: the model is told.
    pub async fn call(&mut self, name: &str, arguments: &Value) -> Result<Answer> {
        let params = json!({"name": name, "arguments": arguments});
        let result = match self.ask("tools/call", params).await {
            Ok(result) => result,
            Err(error) => {
                return Ok(Answer {
                    text: error.message,
                    is_error: true,
                });
            }
        };
        let text = result.pointer("/content/0/text").and_then(Value::as_str);
        Ok(Answer {
            text: text.unwrap_or_default().to_string(),
            is_error: result["isError"] == true,
        })
    }

    /// Waits until what the calls have left to do is done.
    pub async fn close(self) -> Result<()> {
        drop(self.pipe);
        match self.serving.await {
            Ok(served) => served,
            Err(error) => Err(Error::internal(format!(
                "the MCP server has failed: {error}"
            ))),
        }
    }

    async fn send(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        let sent = self.pipe.get_mut().write_all(line.as_bytes()).await;
        sent.map_err(|error| Error::io("the MCP server", &error))
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.pipe.read_line(&mut line).await;
            if read.map_err(|error| Error::io("the MCP server", &error))? == 0 {
                return Err(Error::internal("the MCP server has gone"));
            }
            // Skip notifications and answers to other requests.
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if message["id"] != id || message.get("method").is_some() {
                continue;
            }
            if let Some(error) = message.get("error") {
                let said = error["message"]
                    .as_str()
                    .unwrap_or("an error without words");
                return Err(Error::invalid(said));
            }
            return Ok(message["result"].take());
        }
    }
}
