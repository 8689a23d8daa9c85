//! A stand-in for a runtime that this build does not contain.
//!
//! A sandbox of such a runtime keeps its name, its disks and its history; it can be looked at
//! and deleted, and everything else is refused with the reason.

use async_trait::async_trait;
use motu_core::report::{Check, Health};
use motu_core::runtime::{Capabilities, Connection, Ended, Machine, MachineSpec};
use motu_core::{Error, Isolation, Result, Runtime, SandboxId};
use std::path::Path;

#[derive(Debug)]
pub struct Absent {
    name: &'static str,
}

impl Absent {
    pub fn new(name: &str) -> Absent {
        Absent {
            // `Runtime::name` is `&'static str`. The leak is small: one name per adopted sandbox.
            name: Box::leak(name.to_string().into_boxed_str()),
        }
    }

    pub fn reason(name: &str) -> String {
        format!("its runtime, {name}, is not in this build of motu")
    }

    fn refuse(&self) -> Error {
        Error::unavailable(format!(
            "the runtime {} is not in this build of motu",
            self.name
        ))
        .hint("use a motu that has it; what is kept stays as it is")
    }
}

#[async_trait]
impl Runtime for Absent {
    fn name(&self) -> &'static str {
        self.name
    }

    fn isolation(&self) -> Isolation {
        Isolation::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Vec<Check> {
        vec![Check {
            name: self.name.to_string(),
            health: Health::Failed,
            detail: self.refuse().message,
            fix: None,
        }]
    }

    fn plan(&self, _spec: &MachineSpec) -> Result<String> {
        Err(self.refuse())
    }

    async fn create(&self, _spec: &MachineSpec) -> Result<Machine> {
        Err(self.refuse())
    }

    async fn connect(&self, _machine: &Machine) -> Result<Connection> {
        Err(self.refuse())
    }

    async fn ended(&self, _machine: &Machine) -> Ended {
        std::future::pending().await
    }

    async fn alive(&self, _machine: &Machine) -> bool {
        false
    }

    async fn destroy(&self, _machine: &Machine) -> Result<()> {
        Ok(())
    }

    async fn sweep(&self, _id: &SandboxId, _dir: &Path) -> Result<()> {
        Ok(())
    }
}
