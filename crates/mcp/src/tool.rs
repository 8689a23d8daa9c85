//! One row of the table of tools.

use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::schema::Field;
use futures_util::future::BoxFuture;
pub use motu_core::verb::Effect;

/// The function behind a tool.
pub type Run = for<'a> fn(&'a Call, Arguments) -> BoxFuture<'a, Result<Answer, Stop>>;

/// A tool, before a profile narrows it.
pub struct Tool {
    pub name: &'static str,
    /// The verb it calls, which hints name.
    pub verb: &'static str,
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
