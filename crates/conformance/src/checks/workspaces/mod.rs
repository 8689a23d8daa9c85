//! Workspaces, where a runtime keeps disks.

mod content;
mod life;
mod running;
mod support;

pub use content::*;
pub use life::*;
pub use running::*;
