//! Resolves secrets for typed calls, workspaces and gateways.

use super::Sandboxes;
use crate::blocking::blocking;
use crate::quota::Named;
use crate::secrets;
use motu_core::call::SecretRef;
use motu_core::lists::SecretList;
use motu_core::sandbox::State;
use motu_core::secret::{SecretSummary, SetSecret};
use motu_core::{Error, Result};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Secrets of a request, sorted by where their values go.
pub(crate) struct Sorted {
    /// Values that are handed to the machine, by variable.
    pub values: Vec<(String, Zeroizing<String>)>,
    /// Secrets that stay outside, by variable.
    pub bound: BTreeMap<String, SecretRef>,
}

impl Sandboxes {
    pub(crate) async fn keep_secret(&self, name: &str, ask: SetSecret) -> Result<SecretSummary> {
        let (home, own) = (self.shared.home.path().to_path_buf(), name.to_string());
        let quota = self.config.quota.clone();
        // Goes along: a caller that leaves does not end what is being written.
        let counted = self.secrets.clone().lock_owned().await;
        let kept = blocking(move || {
            let _counted = counted;
            let there = secrets::names(&home)?;
            Named::Secrets.check(&quota, &own, there.iter().map(String::as_str))?;
            secrets::set(&home, &own, ask)
        })
        .await?;
        self.tell_gateways(name).await?;
        Ok(kept)
    }

    pub(crate) async fn known_secrets(&self) -> Result<SecretList> {
        let home = self.shared.home.path().to_path_buf();
        let all = blocking(move || secrets::list(&home)).await;
        all.map(SecretList::new)
    }

    pub(crate) async fn drop_secret(&self, name: &str) -> Result<SecretSummary> {
        let (home, own) = (self.shared.home.path().to_path_buf(), name.to_string());
        let gone = blocking(move || secrets::remove(&home, &own)).await?;
        self.tell_gateways(name).await?;
        Ok(gone)
    }

    /// Sends the new state of a secret to every gateway that has it.
    async fn tell_gateways(&self, name: &str) -> Result<()> {
        for handle in self.table.awake() {
            let sandbox = handle.sandbox();
            if !matches!(sandbox.state, State::Running | State::Paused) {
                continue;
            }
            // A sandbox that ends meanwhile needs no secrets.
            let Ok(launch) = handle.launch().await else {
                continue;
            };
            let bindings = launch.border.as_ref().filter(|own| own.has(name));
            let Some(border) = crate::border::values(&self.shared.home, bindings).await? else {
                continue;
            };
            handle.beyond().learn(&border);
            let id = &sandbox.sandbox_id;
            if let Err(error) = self.shared.gateways.bind(id, border).await {
                return Err(Error {
                    message: format!("secret {name} has changed, but {}", error.message),
                    ..error
                });
            }
        }
        Ok(())
    }

    /// Sorts secrets into those bound to hosts and the values of all others.
    pub(crate) async fn sort(&self, wanted: &BTreeMap<String, SecretRef>) -> Result<Sorted> {
        let mut sorted = Sorted {
            values: Vec::new(),
            bound: BTreeMap::new(),
        };
        for (variable, secret) in wanted {
            let home = &self.shared.home;
            let kept = secrets::find(home, &secret.name).await?;
            let kept = kept.ok_or_else(|| secrets::refers_to_none(variable))?;
            if kept.binding().is_some() {
                sorted.bound.insert(variable.clone(), secret.clone());
            } else {
                let value = kept.value(home, &secret.name).await?;
                sorted.values.push((variable.clone(), value));
            }
        }
        Ok(sorted)
    }
}
