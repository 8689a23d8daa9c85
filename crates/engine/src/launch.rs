//! What a machine is made from, as it is stored.

use crate::border::Bindings;
use crate::clock::Deadline;
use crate::egress::Gateways;
use jiff::{SignedDuration, Timestamp};
use motu_core::policy::PolicyRef;
use motu_core::runtime::{Kept, MachineLimits, MachineSpec};
use motu_core::sandbox::OnIdle;
use motu_core::{Accel, Error, Result, Runtime, SandboxId};
use motu_egress::border::Border;
use motu_egress::rules::Rules;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything a machine is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The environment as the caller named it; missing in rows of older versions, whose runtimes do
    /// not need it.
    #[serde(default)]
    pub environment: String,
    pub root: PathBuf,
    pub wants_sudo: bool,
    pub limits: MachineLimits,
    /// Variables that every command gets.
    pub env: BTreeMap<String, String>,
    pub accel: Accel,
    pub kept: Option<Kept>,
    /// The end of the time to live, by `CLOCK_BOOTTIME`.
    #[serde(default)]
    pub deadline: Option<Deadline>,
    /// The network; `None` if the sandbox has none.
    #[serde(default)]
    pub network: Option<Network>,
    /// Secrets that the gateway puts into requests.
    #[serde(default)]
    pub border: Option<Bindings>,
}

/// The policy of a machine's network: set at creation and by `set_policy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    pub policy: PolicyRef,
    pub rules: Rules,
}

impl Launch {
    /// The runtime's specification of this machine in this directory. `border` has the values that
    /// `self.border` refers to.
    pub fn spec(
        &self,
        id: SandboxId,
        dir: PathBuf,
        gateways: &Gateways,
        border: Option<Border>,
    ) -> MachineSpec {
        let network = self.network.as_ref();
        MachineSpec {
            network: network.map(|network| gateways.uplink(&id, network.rules.clone(), border)),
            hostname: id.to_string(),
            id,
            dir,
            environment: self.environment.clone(),
            root: self.root.clone(),
            wants_sudo: self.wants_sudo,
            limits: self.limits,
            accel: self.accel,
            kept: self.kept.clone(),
        }
    }
}

/// The end of a time to live that begins now; 0 means never.
pub(crate) fn expiry(ttl_seconds: u64) -> Option<Timestamp> {
    let ttl = SignedDuration::from_secs(i64::try_from(ttl_seconds).unwrap_or(i64::MAX));
    (ttl_seconds > 0)
        .then(|| Timestamp::now().checked_add(ttl).ok())
        .flatten()
}

/// Refuses an `on_idle` that the runtime cannot do, or that would never take effect.
pub(crate) fn check_on_idle(
    runtime: &dyn Runtime,
    idle_seconds: u64,
    on_idle: OnIdle,
) -> Result<()> {
    if on_idle != OnIdle::Pause {
        return Ok(());
    }
    if idle_seconds == 0 {
        return Err(Error::invalid(
            "on_idle says what happens after idle_seconds, and there are none",
        )
        .hint("give idle_seconds too"));
    }
    match runtime.capabilities().pause {
        true => Ok(()),
        false => Err(runtime
            .cannot("pause, which on_idle asks for")
            .hint("leave on_idle out, or choose another runtime")),
    }
}
