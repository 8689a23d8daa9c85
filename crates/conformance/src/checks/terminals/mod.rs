//! Terminal sessions as an agent uses them.

mod living;
mod support;
mod using;

pub use living::*;
pub use using::*;
