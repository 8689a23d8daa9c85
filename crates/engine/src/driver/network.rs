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
        let former = self.row.launch.as_ref();
        let Some(former) = former.and_then(|launch| launch.network.clone()) else {
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
        self.store_network(Network {
            policy: known.reference(),
            rules: known.rules,
        })
        .await?;
        if let Err(error) = self.enforce().await {
            // What is shown is what the gateway keeps.
            if let Err(unstored) = self.store_network(former).await {
                tracing::warn!(%id, error = %unstored, "rules are stored that its gateway has not taken");
            }
            return Err(error);
        }
        Ok(self.row.sandbox.clone())
    }

    async fn store_network(&mut self, network: Network) -> Result<()> {
        self.commit(self.row.sandbox.state, |row| {
            row.sandbox.policy = Some(network.policy.clone());
            if let Some(launch) = &mut row.launch {
                launch.network = Some(network);
            }
        })
        .await
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
