//! What every handler has.

use crate::activity::Activity;
use motu_gate::Gate;

/// What every handler has.
#[derive(Clone)]
pub struct App {
    pub gate: Gate,
    pub activity: Activity,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}
