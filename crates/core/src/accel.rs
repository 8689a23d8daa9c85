//! What the processor of a virtual machine runs on.

use serde::{Deserialize, Serialize};

/// What a caller may ask for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    /// KVM where it really works, software emulation where it does not.
    #[default]
    Auto,
    /// The host's processor; refused, with the reason, where it does not work.
    Kvm,
    /// Software emulation: works everywhere, many times slower.
    Tcg,
}

impl Accel {
    pub const NAMES: [&'static str; 3] = ["auto", "kvm", "tcg"];

    pub fn as_str(self) -> &'static str {
        match self {
            Accel::Auto => "auto",
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }
}

impl std::fmt::Display for Accel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Accel {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Accel, crate::Error> {
        match text {
            "auto" => Ok(Accel::Auto),
            "kvm" => Ok(Accel::Kvm),
            "tcg" => Ok(Accel::Tcg),
            other => Err(
                crate::Error::invalid(format!("there is no accelerator {other:?}"))
                    .hint(format!("one of: {}", Accel::NAMES.join(", "))),
            ),
        }
    }
}
