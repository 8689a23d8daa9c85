//! What is looked at while a machine runs, because others on the host can change it: the control
//! groups that keep its limits, and the gateway of its network.

use super::Driver;
use motu_core::Result;
use motu_core::sandbox::State;

/// What a sandbox says of its network.
pub(super) const EGRESS: &str = "egress";
const OFF: &str = "off";
/// Why a sandbox with a network reaches nothing.
const CUT_OFF: &str = "the gateway of its network ended, so it reaches nothing: stop it and start it, or make it again";

impl Driver {
    /// Writes down by what the machine ends when its time is over and no daemon runs.
    pub(super) fn lease(&self) {
        let launch = self.row.launch.as_ref();
        let deadline = launch.and_then(|launch| launch.deadline.as_ref());
        let machine = self.row.machine.as_ref();
        let line = machine.and_then(|machine| self.runtime.lifeline(machine));
        let leases = &self.shared.leases;
        leases.set(&self.row.sandbox.sandbox_id, deadline, line);
    }

    /// Looks at what holds the machine, and says what does not any more.
    pub(super) async fn look(&mut self) {
        if !matches!(self.row.sandbox.state, State::Running | State::Paused) {
            return;
        }
        self.look_at_limits().await;
        self.look_at_network().await;
    }

    async fn look_at_limits(&mut self) {
        let Some(machine) = &self.row.machine else {
            return;
        };
        let limits = self.runtime.limits(machine);
        if limits == self.row.sandbox.limits {
            return;
        }
        let id = self.row.sandbox.sandbox_id.clone();
        for limit in limits.iter().filter(|limit| !limit.enforced) {
            tracing::warn!(%id, limit = limit.name, by = limit.by, "a limit is not enforced");
        }
        self.row.sandbox.limits = limits;
        self.settle(self.row.sandbox.state).await;
    }

    /// A gateway that is gone takes the machine's only device along.
    async fn look_at_network(&mut self) {
        let id = self.row.sandbox.sandbox_id.clone();
        let launch = self.row.launch.as_ref();
        let cut_off = self.row.sandbox.network == OFF;
        if launch.is_none_or(|launch| launch.network.is_none())
            || self.shared.gateways.lives(&id)
            || cut_off
        {
            return;
        }
        match self.join_again().await {
            Ok(()) => {
                tracing::warn!(%id, "the gateway of a sandbox had ended and was started again")
            }
            Err(error) => {
                tracing::warn!(%id, %error, "the gateway of a sandbox ended: it reaches nothing");
                self.row.sandbox.network = OFF.to_string();
                self.row.sandbox.reason = Some(CUT_OFF.to_string());
                self.settle(self.row.sandbox.state).await;
            }
        }
    }

    /// Gives the machine a new gateway, where its runtime can join one to it.
    async fn join_again(&self) -> Result<()> {
        let (Some(machine), launch) = (&self.row.machine, self.launch()?) else {
            return Ok(());
        };
        let id = &self.row.sandbox.sandbox_id;
        let border = crate::border::values(&self.shared.home, launch.border.as_ref()).await?;
        let dir = machine.dir.clone();
        let spec = launch.spec(id.clone(), dir, &self.shared.gateways, border);
        match spec.network {
            Some(uplink) => self.runtime.join(machine, uplink).await,
            None => Ok(()),
        }
    }
}
