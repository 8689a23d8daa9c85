//! Terminal sessions: what an agent types, sees and is told.

mod living;
mod support;
mod using;

pub use living::*;
pub use using::*;
