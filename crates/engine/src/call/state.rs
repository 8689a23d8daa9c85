//! A state that an earlier call has kept, and the call that goes on with it.
//!
//! ```text
//!   claim ──► is it a call's, and at rest ──► does it fit ──► start or resume ──► (the call) ──► retention
//! ```
//!
//! One call at a time has a state: a second one is refused while the first runs. Whose it is the
//! gate has decided, and one whose time is over is not there any more. A call that fails before its
//! command has run leaves the state as it was.

use super::check::Checked;
use super::{Calls, LABEL, Machine, SLACK_SECONDS};
use crate::driver::Handle;
use crate::launch::Launch;
use motu_core::call::{CallNetworkMode, CallRequest, Retention, SecretRef};
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::sandbox::{Keepalive, State};
use motu_core::workspace::Workspace;
use motu_core::{Error, ErrorKind, Result, SandboxId, Workspaces as _};
use motu_egress::rules::Rules;
use motu_policy::Known;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The states that calls are using.
#[derive(Clone, Debug, Default)]
pub struct Claims(Arc<Mutex<HashSet<SandboxId>>>);

/// The right of one call to a state, until this is dropped.
#[derive(Debug)]
struct Claim {
    claims: Claims,
    id: SandboxId,
}

/// A state that a call goes on with.
#[derive(Debug)]
pub struct Taken {
    #[expect(dead_code, reason = "held until the call has ended")]
    claim: Claim,
    /// How it was at rest.
    was: State,
}

impl Claims {
    fn take(&self, id: &SandboxId) -> Result<Claim> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.insert(id.clone()) {
            true => Ok(Claim {
                claims: self.clone(),
                id: id.clone(),
            }),
            false => Err(
                Error::conflict(format!("another call is using the state {id}"))
                    .hint("make this call again when that one has ended")
                    .details(serde_json::json!({ "sandbox_id": id })),
            ),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.id);
    }
}

impl Calls {
    /// Whether a call may go on with this state.
    pub(super) async fn usable(
        &self,
        from: &SandboxId,
        request: &CallRequest,
        checked: &Checked,
        (known, bound): (&Known, &BTreeMap<String, SecretRef>),
    ) -> Result<(Workspace, Arc<Handle>)> {
        let workspace = self.workspaces.status_workspace(from).await;
        let workspace = workspace.map_err(|error| match error.kind {
            ErrorKind::NotFound => nothing(from),
            _ => error,
        })?;
        check_origin(&workspace)?;
        check_fit(&workspace, checked, known)?;
        let handle = self.sandboxes.handle(from).await?;
        let launch = handle.launch().await?;
        check_secrets(&launch, bound)?;
        rules(request, known)?.fits(&launch)?;
        Ok((workspace, handle))
    }

    /// Takes a state, and makes its machine run.
    pub(super) async fn take(
        &self,
        from: &SandboxId,
        request: &CallRequest,
        checked: &Checked,
        (known, bound): (&Known, &BTreeMap<String, SecretRef>),
    ) -> Result<Machine> {
        let claim = self.claims.take(from)?;
        let usable = self.usable(from, request, checked, (known, bound)).await?;
        let (workspace, handle) = usable;
        let was = workspace.state;
        let taken = Taken { claim, was };
        match was {
            State::Paused => drop(handle.resume().await?),
            _ => drop(self.workspaces.start_workspace(from).await?),
        }
        let ready = async {
            let ttl_seconds = Some(match checked.retention {
                Retention::Destroy => checked.timeout_seconds + SLACK_SECONDS,
                _ => checked.ttl_seconds,
            });
            let keepalive = Keepalive {
                ttl_seconds,
                ..Keepalive::default()
            };
            handle.keepalive(keepalive).await?;
            if let Wanted::Policy(rules) = rules(request, known)? {
                let rules = Known {
                    rules: *rules,
                    ..known.clone()
                };
                handle.set_network(rules).await?;
            }
            handle.guest()
        };
        match ready.await {
            Ok(guest) => Ok(Machine {
                id: from.clone(),
                sandbox: handle.sandbox(),
                guest,
                handle,
                taken: Some(taken),
            }),
            Err(error) => {
                self.rest(from, &handle, was).await?;
                Err(error)
            }
        }
    }

    /// Brings a state back to how it was at rest.
    pub(super) async fn put_back(&self, machine: &Machine, taken: &Taken) -> Result<()> {
        self.rest(&machine.id, &machine.handle, taken.was).await
    }

    async fn rest(&self, id: &SandboxId, handle: &Handle, was: State) -> Result<()> {
        match was {
            State::Paused => handle.pause().await.map(drop),
            _ => self.workspaces.stop_workspace(id).await.map(drop),
        }
    }
}

fn nothing(from: &SandboxId) -> Error {
    Error::not_found(format!("there is no state {from}")).hint(hint![
        "it may have expired; ",
        verb("list_workspaces"),
        " shows those that are there, with the label motu.call"
    ])
}

/// Checks that a call has kept it, and that nobody uses it.
fn check_origin(workspace: &Workspace) -> Result<()> {
    let id = &workspace.workspace_id;
    if !workspace.labels.contains_key(LABEL) {
        return Err(
            Error::invalid(format!("{id} was not kept by a call")).hint(hint![
                "give the `sandbox_id` of a call that kept its state in ",
                "`state.from`"
            ]),
        );
    }
    match workspace.state {
        State::Stopped | State::Paused => Ok(()),
        state => Err(
            Error::conflict(format!("the state {id} is in use: it is {state}")).hint(hint![
                verb("stop_workspace").with("id", id.as_str()),
                " ends that"
            ]),
        ),
    }
}

/// Checks what the machine is against what this call and its policy ask for.
fn check_fit(workspace: &Workspace, checked: &Checked, known: &Known) -> Result<()> {
    let id = &workspace.workspace_id;
    if workspace.environment != checked.environment {
        return Err(Error::invalid(format!(
            "the state {id} is of {}, and this call is for {}",
            workspace.environment, checked.environment
        ))
        .hint("name the language or image that kept it"));
    }
    let floor = known.policy.call.min_isolation;
    if workspace.isolation < floor {
        return Err(Error::new(
            ErrorKind::Denied,
            format!(
                "the state {id} has {} isolation, and the policy demands {floor}",
                workspace.isolation
            ),
        )
        .details(serde_json::json!({"rule": "call.min_isolation"})));
    }
    Ok(())
}

/// Secrets that stay outside are of the machine: the state must have just those that the call names.
fn check_secrets(launch: &Launch, bound: &BTreeMap<String, SecretRef>) -> Result<()> {
    let has: BTreeMap<&str, &str> = launch
        .border
        .iter()
        .flat_map(|border| border.names())
        .collect();
    let asks: BTreeMap<&str, &str> = bound
        .iter()
        .map(|(variable, secret)| (variable.as_str(), secret.name.as_str()))
        .collect();
    match has == asks {
        true => Ok(()),
        false => Err(Error::invalid(
            "the state was kept with other secrets that are bound to hosts",
        )
        .hint(hint![
            "name the same in ",
            field("secrets"),
            ", or leave ",
            "`state.from`",
            " out"
        ])),
    }
}

/// The network that a call asks for.
enum Wanted {
    None,
    Policy(Box<Rules>),
}

fn rules(request: &CallRequest, known: &Known) -> Result<Wanted> {
    if request.network.mode == CallNetworkMode::None {
        return Ok(Wanted::None);
    }
    let rules = match request.network.allow.as_slice() {
        [] => known.rules.clone(),
        some => motu_policy::narrow(known, some)?,
    };
    Ok(Wanted::Policy(Box::new(rules)))
}

impl Wanted {
    /// Whether a machine has a network just when one is asked for: the device is there or not.
    fn fits(&self, launch: &Launch) -> Result<()> {
        let what = match (self, &launch.network) {
            (Wanted::None, None) | (Wanted::Policy(_), Some(_)) => return Ok(()),
            (Wanted::None, Some(_)) => "the state has a network, and this call asks for none",
            (Wanted::Policy(_), None) => "the state has no network, and this call asks for one",
        };
        Err(Error::invalid(what).hint(hint![
            "ask for the same ",
            field("network"),
            ", or leave ",
            "`state.from`",
            " out"
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time_has_a_state() {
        let claims = Claims::default();
        let id = SandboxId::parse("sb-a").unwrap();
        let first = claims.take(&id).unwrap();
        let second = claims.take(&id).unwrap_err();
        assert_eq!(second.kind, ErrorKind::Conflict);
        assert!(claims.take(&SandboxId::parse("sb-b").unwrap()).is_ok());
        drop(first);
        assert!(claims.take(&id).is_ok());
    }
}
