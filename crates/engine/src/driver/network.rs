//! Changes the network rules of a live sandbox.

use super::Driver;
use crate::launch::Network;
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, Result};
use motu_policy::Known;

impl Driver {
    /// Replaces the rules. They are stored first: after a crash the next daemon applies the stored
    /// ones.
    pub(super) async fn set_network(&mut self, known: Known) -> Result<Sandbox> {
        let id = self.row.sandbox.sandbox_id.clone();
        let network = self.row.launch.as_mut().map(|launch| &mut launch.network);
        let Some(Some(network)) = network else {
            return Err(
                Error::conflict(format!("sandbox {id} was made without a network device")).hint(
                    hint![
                        "make it with ",
                        field("network").is(true).of("create_sandbox"),
                        " or ",
                        field("policy").of("create_sandbox"),
                        "; ",
                        verb("get_policy"),
                        " says what opens what",
                    ],
                ),
            );
        };
        *network = Network {
            policy: known.reference(),
            rules: known.rules,
        };
        self.row.sandbox.policy = Some(network.policy.clone());
        self.become_state(self.row.sandbox.state).await?;
        self.enforce().await?;
        Ok(self.row.sandbox.clone())
    }

    /// Sends the stored rules and secrets to the gateway.
    pub(super) async fn enforce(&self) -> Result<()> {
        let sandbox = &self.row.sandbox;
        let launch = self.row.launch.as_ref();
        let alive = matches!(sandbox.state, State::Running | State::Paused);
        match launch.and_then(|launch| launch.network.clone()) {
            Some(network) if alive => {
                let gateways = &self.shared.gateways;
                let bindings = launch.and_then(|launch| launch.border.as_ref());
                let border = crate::border::values(&self.shared.home, bindings).await?;
                if let Some(border) = border {
                    self.inside.beyond.learn(&border);
                    gateways.bind(&sandbox.sandbox_id, border).await?;
                }
                gateways.replace(&sandbox.sandbox_id, network.rules).await
            }
            _ => Ok(()),
        }
    }
}
