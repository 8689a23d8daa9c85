//! A sandbox that becomes an environment or a template, and what becomes of it afterwards.

use crate::Result;
use crate::ask::Ask;
use crate::project::Project;
use serde::{Deserialize, Serialize};

/// How an environment is made of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitSandbox {
    /// What the environment will be called. One of that name that is there means this afterwards.
    pub name: String,
    /// What becomes of the sandbox.
    #[serde(default)]
    pub then: AfterCommit,
}

/// What becomes of a sandbox that an environment was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterCommit {
    /// It is started again, if it had a machine.
    #[default]
    Start,
    /// It stays stopped.
    Stop,
    /// It is destroyed.
    Destroy,
}

impl std::str::FromStr for AfterCommit {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<AfterCommit> {
        match text {
            "start" => Ok(AfterCommit::Start),
            "stop" => Ok(AfterCommit::Stop),
            "destroy" => Ok(AfterCommit::Destroy),
            other => Err(crate::Error::invalid(format!(
                "{other:?} is nothing that can happen to a sandbox after a commit"
            ))
            .hint("one of: start, stop, destroy")),
        }
    }
}

impl Ask for CommitSandbox {
    fn within(&mut self, project: &Project) -> Result<()> {
        project.complete_name(&mut self.name);
        Ok(())
    }
}
