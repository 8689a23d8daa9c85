//! One row of the table of tools.

use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::schema::Field;
use futures_util::future::BoxFuture;

/// The function behind a tool.
pub type Run = for<'a> fn(&'a Call, Arguments) -> BoxFuture<'a, Result<Answer, Stop>>;

/// What a tool does to the world, for a client that asks its user first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only looks.
    Looks,
    /// Adds or changes; again does more.
    Changes,
    /// Changes; again is the same.
    Settles,
    /// Takes something away; again is the same.
    Destroys,
    /// Runs what the caller says, which may do anything inside a machine.
    Runs,
}

/// A tool, before a profile narrows it.
pub struct Tool {
    pub name: &'static str,
    /// For the model: when to use it, what comes next, an example.
    pub about: &'static str,
    pub fields: &'static [Field],
    /// Names and JSON types of what is in the structured answer.
    pub output: &'static [(&'static str, &'static str)],
    pub effect: Effect,
    pub run: Run,
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tool({})", self.name)
    }
}

/// The function of a row: an async function of a call and its arguments.
macro_rules! run {
    ($function:path) => {
        |call, arguments| Box::pin($function(call, arguments))
    };
}
pub(crate) use run;
