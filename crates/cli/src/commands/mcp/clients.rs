//! The clients whose settings we know: where they are, and what a server looks like in them.

use motu_core::{Error, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How a client writes a server down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// JSON: an object of servers with `command` and `args` under this key.
    Json(&'static str),
    /// The same, and each says `"type": "stdio"`.
    TypedJson(&'static str),
    /// JSON: one list holds the command and its arguments.
    ListJson(&'static str),
    /// TOML: a table per server under this one.
    Toml(&'static str),
}

/// A client.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub name: &'static str,
    pub shape: Shape,
    /// Its settings, below the home directory.
    file: &'static str,
    /// What to do after a change.
    pub after: &'static str,
}

pub const CLIENTS: &[Client] = &[
    Client {
        name: "claude-code",
        shape: Shape::TypedJson("mcpServers"),
        file: ".claude.json",
        after: "start a new session; /mcp shows the server",
    },
    Client {
        name: "claude-desktop",
        shape: Shape::Json("mcpServers"),
        file: ".config/Claude/claude_desktop_config.json",
        after: "restart the application",
    },
    Client {
        name: "cursor",
        shape: Shape::Json("mcpServers"),
        file: ".cursor/mcp.json",
        after: "enable the server under Settings, Tools & MCP",
    },
    Client {
        name: "codex",
        shape: Shape::Toml("mcp_servers"),
        file: ".codex/config.toml",
        after: "start a new session",
    },
    Client {
        name: "vscode",
        shape: Shape::TypedJson("servers"),
        file: ".config/Code/User/mcp.json",
        after: "start the server from the command palette: MCP: List Servers",
    },
    Client {
        name: "zed",
        shape: Shape::Json("context_servers"),
        file: ".config/zed/settings.json",
        after: "the agent panel's settings show the server",
    },
    Client {
        name: "windsurf",
        shape: Shape::Json("mcpServers"),
        file: ".codeium/windsurf/mcp_config.json",
        after: "refresh the list of servers",
    },
    Client {
        name: "gemini-cli",
        shape: Shape::Json("mcpServers"),
        file: ".gemini/settings.json",
        after: "start a new session; /mcp shows the server",
    },
    Client {
        name: "opencode",
        shape: Shape::ListJson("mcp"),
        file: ".config/opencode/opencode.json",
        after: "start a new session",
    },
    Client {
        name: "lm-studio",
        shape: Shape::Json("mcpServers"),
        file: ".lmstudio/mcp.json",
        after: "switch the server on in the chat's settings",
    },
];

impl FromStr for Client {
    type Err = Error;

    fn from_str(text: &str) -> Result<Client> {
        let found = CLIENTS.iter().find(|client| client.name == text);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
            Error::invalid(format!("no client {text:?} is known"))
                .hint(format!("one of: {}", names.join(", ")))
        })
    }
}

/// The server, as every client starts it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Client {
    /// Where its settings are. `XDG_CONFIG_HOME` stands for `~/.config`.
    pub fn path(&self, home: &Path, config: Option<&Path>) -> PathBuf {
        match (self.file.strip_prefix(".config/"), config) {
            (Some(below), Some(config)) => config.join(below),
            _ => home.join(self.file),
        }
    }

    /// The server as a value of this client.
    pub fn value(&self, entry: &Entry) -> Value {
        let mut value = match self.shape {
            Shape::Json(_) | Shape::Toml(_) => {
                json!({"command": entry.command, "args": entry.args})
            }
            Shape::TypedJson(_) => {
                json!({"type": "stdio", "command": entry.command, "args": entry.args})
            }
            Shape::ListJson(_) => {
                let command: Vec<&str> = std::iter::once(entry.command.as_str())
                    .chain(entry.args.iter().map(String::as_str))
                    .collect();
                json!({"type": "local", "command": command, "enabled": true})
            }
        };
        if !entry.env.is_empty() {
            let key = if matches!(self.shape, Shape::ListJson(_)) {
                "environment"
            } else {
                "env"
            };
            let env = entry.env.iter();
            value[key] = env
                .map(|(name, value)| (name.clone(), Value::from(value.clone())))
                .collect();
        }
        value
    }

    /// The arguments that a server of this name has in some settings; none where there is no such
    /// server, or no settings that can be read.
    pub fn arguments(&self, settings: &str, name: &str) -> Vec<String> {
        let arguments = match self.shape {
            Shape::Json(key) | Shape::TypedJson(key) | Shape::ListJson(key) => {
                let all = super::edit::read(settings).unwrap_or_default();
                let list = match self.shape {
                    Shape::ListJson(_) => "command",
                    _ => "args",
                };
                all[key][name][list].clone()
            }
            Shape::Toml(table) => {
                let all = settings.parse::<toml::Table>().unwrap_or_default();
                let entry = all.get(table).and_then(|servers| servers.get(name));
                let found = entry.and_then(|entry| entry.get("args"));
                found.map_or(Value::Null, |found| json!(found))
            }
        };
        serde_json::from_value(arguments).unwrap_or_default()
    }

    /// The settings with this server alone.
    pub fn text(&self, entry: &Entry) -> String {
        match self.shape {
            Shape::Json(key) | Shape::TypedJson(key) | Shape::ListJson(key) => {
                let whole = json!({key: {&entry.name: self.value(entry)}});
                super::edit::pretty(&whole) + "\n"
            }
            Shape::Toml(table) => toml_table(table, entry),
        }
    }
}

/// A server as a table of TOML.
pub fn toml_table(table: &str, entry: &Entry) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let args: Vec<String> = entry.args.iter().map(|arg| text(arg)).collect();
    let mut lines = format!(
        "[{table}.{}]\ncommand = {}\nargs = [{}]\n",
        entry.name,
        text(&entry.command),
        args.join(", ")
    );
    if !entry.env.is_empty() {
        let env: Vec<String> = entry
            .env
            .iter()
            .map(|(name, value)| format!("{name} = {}", text(value)))
            .collect();
        lines.push_str(&format!("env = {{ {} }}\n", env.join(", ")));
    }
    lines
}
