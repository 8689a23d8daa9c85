//! Dockerfiles: text in, instructions out.
//!
//! ```text
//! text ──lines──► logical lines ──parse──► Dockerfile { stages { steps } }
//!                 continuations,           typed instructions, words as they
//!                 comments, here-documents were written
//! word + variables ──substitute──► text
//! pattern + path ──glob, ignore──► yes or no
//! ```
//!
//! Nothing here touches a file or runs anything: whoever builds expands the
//! words when their variables are known. The text may come from anybody, so
//! every parser is bounded by [`Bounds`], ends with a line number when it
//! refuses something, and never panics.

mod error;
mod flags;
pub mod glob;
mod ignore;
mod instruction;
mod lines;
mod parse;
mod substitute;
mod words;

pub use error::ParseError;
pub use ignore::Ignore;
pub use instruction::{
    CacheMount, Command, Copy, Heredoc, Instruction, Mount, Run, SecretMount, Sharing, Stage, Step,
    StepNetwork,
};
pub use parse::{Bounds, Dockerfile, parse, parse_trigger};
pub use substitute::expand;

#[cfg(test)]
mod tests;
