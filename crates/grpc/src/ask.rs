//! Validates fields of messages and converts them to types of the service.

use bytes::Bytes;
use motu_core::exec::{ExecRequest, Selector};
use motu_core::files::GuestPath;
use motu_core::program::Program;
use motu_core::{Error, Result, SandboxId};
use std::collections::HashMap;

/// Parses the sandbox id of a message.
pub fn sandbox(text: &str) -> Result<SandboxId> {
    if text.is_empty() {
        return Err(Error::invalid("sandbox_id is empty").hint("ListSandboxes has the ids"));
    }
    SandboxId::parse(text)
}

pub fn path(text: String) -> Result<GuestPath> {
    GuestPath::new(Bytes::from(text))
}

/// Parses the tag of a process.
pub fn tagged(tag: &str) -> Result<Selector> {
    match Selector::parse(tag)? {
        Selector::Tag(tag) => Ok(Selector::Tag(tag)),
        Selector::Pid(_) => {
            Err(Error::invalid("a tag cannot be all digits").hint("digits alone are a pid"))
        }
    }
}

/// Checks that a number is not negative; `None` for 0, which means unset.
pub fn number(field: &str, value: i32) -> Result<Option<u64>> {
    match u64::try_from(value) {
        Ok(0) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(Error::invalid(format!("{field} is {value}"))
            .hint("0 for the default, or a positive number")),
    }
}

pub fn word(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The command in a message.
#[derive(Debug, Default)]
pub struct Command {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: HashMap<String, String>,
    pub cwd: String,
    pub user: String,
}

impl Command {
    pub fn request(self) -> Result<ExecRequest> {
        if self.cmd.is_empty() {
            return Err(Error::invalid("cmd is empty").hint("name a program"));
        }
        let mut command = vec![self.cmd];
        command.extend(self.args);
        Ok(ExecRequest::from(Program {
            env: self.envs.into_iter().collect(),
            workdir: word(self.cwd),
            user: word(self.user),
            ..Program::argv(command)
        }))
    }
}
