//! Dry run of a typed call: every check is made, and nothing is started.
//!
//! A call ends at its first failure; a dry run reports all of them. Programs that print secrets are
//! not run: only the existence of the secret is checked.

use super::Calls;
use super::check::{self, Checked};
use super::{sandbox_of, workspace_of};
use crate::quota::Claim;
use motu_core::call::{
    CallCheck, CallNetworkMode, CallPlan, CallRequest, CheckedDestination, FailureClass, Retention,
    SecretRef,
};
use motu_core::policy::{self, ExplainPolicy};
use motu_core::sandbox::CreateSandbox;
use motu_core::{Result, SandboxId};
use motu_policy::Known;
use std::collections::BTreeMap;

impl Calls {
    pub(crate) async fn dry_call(&self, request: CallRequest) -> Result<CallPlan> {
        if let Some(misread) = &request.misread {
            return Err(misread.error());
        }
        let mut plan = CallPlan::default();
        let name = request.policy.as_deref().unwrap_or(policy::NONE);
        let known = match self.sandboxes.policy(name).await {
            Ok(known) => known,
            Err(error) => {
                note(&mut plan, "policy", Err(error));
                return Ok(plan);
            }
        };
        let allowed = match &request.policy {
            Some(name) => request.bounds.allow_policy(name),
            None => Ok(()),
        };
        note(&mut plan, "policy", allowed);
        plan.policy = Some(known.reference());
        for (what, found) in check::every(&request, &known.policy.call) {
            note(&mut plan, what, found);
        }
        let network = super::opens(&request, &known);
        note(&mut plan, "network", network);
        plan.destinations = destinations(&request, &known);
        let secrets = self.known(&request).await;
        note(&mut plan, "secrets are kept", secrets);
        if let Ok(checked) = check::check(&request, &known.policy.call) {
            self.place(&mut plan, &request, &checked, &known).await;
        }
        let reachable = plan.destinations.iter().all(|one| one.allowed);
        plan.allowed = reachable && plan.checks.iter().all(|check| check.allowed);
        Ok(plan)
    }

    /// Chooses the runtime that the call would get.
    async fn place(
        &self,
        plan: &mut CallPlan,
        request: &CallRequest,
        checked: &Checked,
        known: &Known,
    ) {
        plan.environment = Some(checked.environment.clone());
        plan.timeout_seconds = Some(checked.timeout_seconds);
        plan.max_output_bytes = Some(checked.max_output_bytes);
        plan.retention = Some(checked.retention);
        if let Some(from) = &checked.from {
            return self.goes_on(plan, from, (request, checked), known).await;
        }
        let floor = known.policy.call.min_isolation;
        let wanted = match checked.retention {
            Retention::Destroy => sandbox_of(request, checked, floor),
            _ => {
                let workspace = workspace_of(request, checked, floor);
                CreateSandbox {
                    keep: true,
                    owner: workspace.owner,
                    bounds: workspace.bounds,
                    environment: workspace.environment,
                    isolation: workspace.isolation,
                    size: workspace.size,
                    policy: workspace.policy,
                    narrowed: workspace.narrowed,
                    ..CreateSandbox::default()
                }
            }
        };
        let wanted = CreateSandbox {
            secret_refs: self.bound(request).await,
            ..wanted
        };
        match self.sandboxes.gate().admit(wanted).await {
            Ok(admitted) => {
                plan.runtime = Some(admitted.sandbox.runtime.clone());
                plan.isolation = Some(admitted.sandbox.isolation);
                note(plan, "machine", Ok(()));
                self.sandboxes.room(&admitted).await;
                let claim = Claim::of(&admitted.sandbox, Some(&admitted.launch));
                let room = self
                    .sandboxes
                    .table
                    .could_enter(&claim, self.sandboxes.bounds());
                note(plan, "quota", room);
            }
            Err(error) => note(plan, "machine", Err(error)),
        }
    }

    /// Checks the state that the call goes on with.
    async fn goes_on(
        &self,
        plan: &mut CallPlan,
        from: &SandboxId,
        (request, checked): (&CallRequest, &Checked),
        known: &Known,
    ) {
        let bound = self.bound(request).await;
        let usable = self.usable(from, request, checked, (known, &bound)).await;
        if let Ok((workspace, _)) = &usable {
            plan.runtime = Some(workspace.runtime.clone());
            plan.isolation = Some(workspace.isolation);
        }
        note(plan, "state.from", usable.map(drop));
    }

    /// The secrets of a call that stay outside of the machine; no value is read.
    async fn bound(&self, request: &CallRequest) -> BTreeMap<String, SecretRef> {
        let mut bound = BTreeMap::new();
        for (variable, secret) in &request.secrets {
            let kept = crate::secrets::find(&self.sandboxes.shared.home, &secret.name).await;
            if let Ok(Some(kept)) = kept
                && kept.binding().is_some()
            {
                bound.insert(variable.clone(), secret.clone());
            }
        }
        bound
    }

    /// Whether every secret of a call exists.
    async fn known(&self, request: &CallRequest) -> Result<()> {
        let kept = self.sandboxes.known_secrets().await?;
        for (variable, secret) in &request.secrets {
            if !kept.iter().any(|known| known.name == secret.name) {
                return Err(crate::secrets::refers_to_none(variable));
            }
        }
        Ok(())
    }
}

/// The policy's decision about each requested destination.
fn destinations(request: &CallRequest, known: &Known) -> Vec<CheckedDestination> {
    if request.network.mode == CallNetworkMode::None {
        return Vec::new();
    }
    let wanted = request.network.allow.iter();
    let judged = wanted.map(|to| {
        let ask = ExplainPolicy {
            host: to.host.clone(),
            port: to.port,
            ..ExplainPolicy::default()
        };
        let (allowed, rule, message) = match motu_policy::explain(known, &ask) {
            Ok(explained) => (explained.allowed, explained.rule, explained.message),
            Err(error) => (false, None, error.message),
        };
        CheckedDestination {
            host: to.host.clone(),
            port: to.port,
            allowed,
            rule,
            message,
        }
    });
    judged.collect()
}

fn note(plan: &mut CallPlan, check: &str, found: Result<()>) {
    let mut told = CallCheck {
        check: check.to_string(),
        allowed: found.is_ok(),
        ..CallCheck::default()
    };
    if let Err(error) = found {
        let text = |field: &str| error.details[field].as_str().map(str::to_string);
        told.class = Some(FailureClass::of(&error));
        told.rule = text("rule").or_else(|| text("limit"));
        told.message = Some(error.message.clone());
        told.hint = error.hint;
        told.next = error.next;
    }
    plan.checks.push(told);
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::{Error, ErrorKind};

    #[test]
    fn what_is_wrong_is_told_with_its_rule_and_the_next_step() {
        let mut plan = CallPlan::default();
        note(&mut plan, "files", Ok(()));
        let denied = Error::new(ErrorKind::Denied, "not this image")
            .hint("ask for less")
            .details(serde_json::json!({"rule": "call.images"}));
        note(&mut plan, "environment", Err(denied));
        assert!(plan.checks[0].allowed && !plan.checks[1].allowed);
        assert_eq!(plan.checks[1].class, Some(FailureClass::PolicyDenial));
        assert_eq!(plan.checks[1].rule.as_deref(), Some("call.images"));
        assert_eq!(plan.checks[1].hint.as_deref(), Some("ask for less"));
    }
}
