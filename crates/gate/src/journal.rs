//! Tells of calls that came to their end, beside the log that records them.

use crate::record::Witness;
use futures_util::future::{BoxFuture, join};
use motu_core::audit::{AuditCall, Stage};
use motu_core::event::{EventFacts, EventKind, Happened};
use motu_core::verb::Effect;
use motu_core::{Project, Result};
use serde_json::Value;
use std::sync::Arc;

/// Calls that are events: those that leave no sandbox behind of which anything could be told.
const TOLD: [&str; 2] = ["call", "run"];

/// Writes an event down.
pub type Tell = Box<dyn Fn(Happened) -> BoxFuture<'static, ()> + Send + Sync>;

/// A witness, and somebody who is told of the ends of calls.
pub struct Journal {
    witness: Arc<dyn Witness>,
    tell: Tell,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Journal")
    }
}

impl Journal {
    pub fn new(witness: Arc<dyn Witness>, tell: Tell) -> Journal {
        Journal { witness, tell }
    }
}

impl Witness for Journal {
    fn keeps(&self) -> bool {
        self.witness.keeps()
    }

    fn admit(&self, effect: Effect) -> BoxFuture<'_, Result<()>> {
        self.witness.admit(effect)
    }

    fn hide(&self, request: &Value) -> Option<String> {
        self.witness.hide(request)
    }

    fn saw(&self, call: &AuditCall, durable: bool) -> BoxFuture<'static, Result<()>> {
        let written = self.witness.saw(call, durable);
        // Calls that the gate refused did not begin.
        let begun = call.decision == "allowed" && call.stage != Stage::Begin;
        if !begun || !TOLD.contains(&call.verb.as_str()) {
            return written;
        }
        let event = finished(call, self.witness.keeps());
        // Written at once, also when nobody waits for it.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let told = runtime.spawn((self.tell)(event));
                Box::pin(async { join(written, told).await.0 })
            }
            Err(_) => written,
        }
    }
}

fn finished(call: &AuditCall, kept: bool) -> Happened {
    let project = call.caller.who.split_once('@');
    let project = project.and_then(|(_, project)| Project::parse(project).ok());
    let owner = project.map_or(String::new(), |project| project.owner());
    let nanoseconds: u64 = call.duration_ns.parse().unwrap_or(0);
    let facts = EventFacts {
        verb: Some(call.verb.clone()),
        outcome: Some(call.outcome.clone()),
        exit_code: call.facts.exit_code,
        signal: call.facts.signal,
        limits: call.facts.limits.clone(),
        runtime: call.facts.runtime.clone(),
        isolation: call.facts.isolation.map(|isolation| isolation.to_string()),
        environment: call.facts.environment.clone(),
        duration_ms: Some(nanoseconds / 1_000_000),
        ..EventFacts::default()
    };
    let event = Happened::now(EventKind::CallFinished, &owner);
    Happened {
        id: call.sandbox_id.as_ref().map(ToString::to_string),
        audit_id: kept.then(|| call.id.clone()),
        ..event.facts(facts)
    }
}
