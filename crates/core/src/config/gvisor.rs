//! `[gvisor]` of the configuration.

use serde::{Deserialize, Serialize};

/// What the `gvisor` runtime makes machines with; looked for when missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GvisorConfig {
    /// The program, in place of the first `runsc` of the search path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<std::path::PathBuf>,
}
