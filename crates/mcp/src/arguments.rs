//! The arguments of one call, after the check.

use crate::schema::integer_of;
use motu_core::shown::misread;
use motu_core::workspace::WorkspaceId;
use motu_core::{Error, Isolation, Program, Result, SandboxId, TerminalId};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Checked arguments: what is there has the right type.
#[derive(Debug)]
pub struct Arguments(pub Map<String, Value>);

impl Arguments {
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(Value::as_str).map(String::from)
    }

    /// Text that is required, or has a default that is said here.
    pub fn text_or(&self, name: &str, usual: &str) -> String {
        self.text(name).unwrap_or_else(|| usual.to_string())
    }

    pub fn integer(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(integer_of)
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn flag_maybe(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        let items = self.0.get(name).and_then(Value::as_array);
        let items = items.into_iter().flatten();
        items.filter_map(Value::as_str).map(String::from).collect()
    }

    pub fn map(&self, name: &str) -> BTreeMap<String, String> {
        let items = self.0.get(name).and_then(Value::as_object);
        let items = items.into_iter().flatten();
        items
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string())))
            .collect()
    }

    /// A value that a type of the service checks.
    pub fn nested<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|mistake| {
                Error::invalid(format!("{name}: {}", misread(mistake)))
                    .details(json!({"field": name}))
            })
    }

    /// The field `command`: text is a script for the shell, a list a program and its arguments.
    pub fn program(&self) -> Program {
        let timeout_seconds = self.integer("timeout_seconds");
        let program = match self.0.get("command") {
            Some(Value::Array(_)) => Program::argv(self.texts("command")),
            _ => Program::shell(self.text_or("command", "")),
        };
        Program {
            timeout_seconds,
            ..program
        }
    }

    /// The field `command` as a line for a shell: words of a list are quoted.
    pub fn command_line(&self) -> String {
        match self.0.get("command") {
            Some(Value::Array(_)) => {
                let words: Vec<String> = self.texts("command").iter().map(|w| quoted(w)).collect();
                words.join(" ")
            }
            _ => self.text_or("command", ""),
        }
    }

    pub fn workspace(&self) -> Result<WorkspaceId> {
        SandboxId::parse(&self.text_or("workspace_id", "")).map_err(|error| {
            Error::invalid(error.message).hint("workspace_list shows the ids there are")
        })
    }

    pub fn vm(&self) -> Result<SandboxId> {
        SandboxId::parse(&self.text_or("vm_id", ""))
            .map_err(|error| Error::invalid(error.message).hint("vm_create answers with the id"))
    }

    pub fn isolation(&self) -> Result<Option<Isolation>> {
        let named = self.text("isolation");
        named.map(|name| name.parse()).transpose()
    }

    pub fn terminal(&self) -> Result<TerminalId> {
        TerminalId::parse(&self.text_or("session_id", ""))
    }
}

/// A word that every POSIX shell reads as it is.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::exec::ExecMode;

    fn arguments(command: Value) -> Arguments {
        Arguments([("command".to_string(), command)].into_iter().collect())
    }

    #[test]
    fn text_is_a_script_and_a_list_a_program() {
        let script = arguments(json!("echo $HOME")).program();
        assert_eq!((script.mode, script.command.len()), (ExecMode::Shell, 1));
        let program = arguments(json!(["echo", "$HOME"])).program();
        assert_eq!(program.mode, ExecMode::Argv);
        assert_eq!(program.command, ["echo", "$HOME"]);
    }

    #[test]
    fn words_are_typed_as_they_are() {
        let line = arguments(json!(["echo", "it's", "$HOME", "", "a-b"])).command_line();
        assert_eq!(line, r"echo 'it'\''s' '$HOME' '' a-b");
        assert_eq!(arguments(json!("echo $HOME")).command_line(), "echo $HOME");
    }
}
