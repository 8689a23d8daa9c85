//! Parses Dockerfiles into instructions.
//!
//! ```text
//! text ──lines──► logical lines ──parse──► Dockerfile { stages { steps } }
//!                 continuations,           typed instructions with
//!                 comments, here-documents unexpanded words
//! word + variables ──substitute──► text
//! pattern + path ──glob, ignore──► yes or no
//! ```
//!
//! Nothing here touches a file or runs anything: the builder expands words when their variables
//! are known. The text is untrusted, so every parser is bounded by [`Bounds`], reports errors with
//! a line number, and never panics.

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
pub use ignore::{Ignore, Ignored, MAX_IGNORE_BYTES};
pub use instruction::{
    CacheMount, Command, Copy, Heredoc, Instruction, Mount, Run, SecretMount, Sharing, Stage, Step,
    StepNetwork,
};
pub use parse::{Bounds, Dockerfile, parse, parse_trigger};
pub use substitute::expand;

#[cfg(test)]
mod tests;
