//! What the gate tells of each call: who, what, how it went. Exactly once, also of a call whose
//! caller left before the answer.

use crate::caller::{Caller, Face, Who};
use crate::meter::Meter;
use futures_util::future::BoxFuture;
use motu_core::audit::{AuditCall, AuditCaller, AuditId, Facts, Stage};
use motu_core::verb::{Effect, Info, Verb};
use motu_core::{Error, Result};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// What an entry calls the question who sends a key.
const STRANGER: &str = "introduce";

/// Hears of every call.
pub trait Witness: Send + Sync + 'static {
    /// Whether what it hears is kept: then calls have names that can be asked for.
    fn keeps(&self) -> bool {
        false
    }

    /// Whether a call of this effect may begin. One that could not be kept may not.
    fn admit(&self, _: Effect) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// A hash of a request that tells nothing of it.
    fn hide(&self, _: &Value) -> Option<String> {
        None
    }

    /// How many calls somebody who should hear of them has not heard of.
    fn unsent(&self) -> u64 {
        0
    }

    /// Takes note at once. The future waits until the note cannot be lost, if it is `durable`.
    fn saw(&self, call: &AuditCall, durable: bool) -> BoxFuture<'static, Result<()>>;
}

/// Keeps nothing.
pub struct Nobody;

impl Witness for Nobody {
    fn saw(&self, _: &AuditCall, _: bool) -> BoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl Witness for motu_audit::Log {
    fn keeps(&self) -> bool {
        self.public_key().is_ok()
    }

    fn admit(&self, effect: Effect) -> BoxFuture<'_, Result<()>> {
        Box::pin(motu_audit::Log::admit(self, effect))
    }

    fn hide(&self, request: &Value) -> Option<String> {
        motu_audit::Log::hide(self, request)
    }

    fn saw(&self, call: &AuditCall, durable: bool) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.record(call, durable))
    }
}

/// Tells of a wrong key, which made no call: from where, and when.
pub fn stranger(witness: &dyn Witness, who: String, error: &Error) {
    let caller = Caller::new(Who::Remote, Face::Http);
    let call = AuditCall {
        id: AuditId::generate(),
        stage: Stage::Whole,
        time: format!("{:.9}", jiff::Timestamp::now()),
        caller: AuditCaller {
            who,
            face: caller.face.as_str().to_string(),
            request: caller.request,
        },
        verb: STRANGER.to_string(),
        permission: String::new(),
        effect: Effect::Reads.as_str().to_string(),
        decision: "denied".to_string(),
        sandbox_id: None,
        request: None,
        policy: None,
        outcome: error.kind.as_str().to_string(),
        facts: Facts::default(),
        duration_ns: "0".to_string(),
    };
    let noted = witness.saw(&call, false);
    // It is noted at once, unless the log is behind: nobody waits for that.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(noted);
    }
}

/// The entry of one call while it is made.
pub struct Entry {
    witness: Arc<dyn Witness>,
    meter: Arc<Meter>,
    verb: &'static str,
    call: AuditCall,
    began: Instant,
    /// What only looks need not wait for the disk.
    durable: bool,
    told: bool,
}

impl Entry {
    pub fn new(
        (witness, meter): (Arc<dyn Witness>, Arc<Meter>),
        caller: &Caller,
        verb: &Info,
    ) -> Entry {
        let id = AuditId::generate();
        if witness.keeps() {
            caller.ticket.write(&id);
        }
        Entry {
            witness,
            meter,
            verb: verb.name,
            began: Instant::now(),
            durable: verb.effect != Effect::Reads,
            told: false,
            call: AuditCall {
                id,
                stage: Stage::Whole,
                time: format!("{:.9}", jiff::Timestamp::now()),
                caller: AuditCaller {
                    who: caller.who.to_string(),
                    face: caller.face.as_str().to_string(),
                    request: caller.request,
                },
                verb: verb.name.to_string(),
                permission: verb.permission(),
                effect: verb.effect.as_str().to_string(),
                decision: "none".to_string(),
                sandbox_id: None,
                request: None,
                policy: None,
                outcome: "abandoned".to_string(),
                facts: Facts::default(),
                duration_ns: String::new(),
            },
        }
    }

    /// The name of the call, where it is kept.
    pub fn id(&self) -> Option<&AuditId> {
        self.witness.keeps().then_some(&self.call.id)
    }

    pub fn facts(&mut self) -> &mut Facts {
        &mut self.call.facts
    }

    /// What is asked, and of which sandbox.
    pub fn asks<V: Verb>(&mut self, call: &mut V, about: Option<Facts>) {
        self.call.sandbox_id = call.sandbox().cloned();
        self.call.facts = about.unwrap_or_default();
        if self.witness.keeps() {
            let request = serde_json::json!({
                "verb": V::INFO.name, "parts": call.parts(), "ask": call.ask(),
            });
            self.call.request = self.witness.hide(&request);
        }
    }

    pub fn decided(&mut self, decision: &str) {
        self.call.decision = decision.to_string();
    }

    /// Tells that a live session begins; how it ends is told later.
    pub fn begins(&mut self) -> BoxFuture<'static, Result<()>> {
        let end = std::mem::replace(&mut self.call.outcome, "open".to_string());
        self.call.stage = Stage::Begin;
        let written = self.write();
        self.call.stage = Stage::End;
        self.call.outcome = end;
        written
    }

    /// Tells how the call went. It is written when this returns.
    pub fn ends(
        mut self,
        outcome: std::result::Result<(), &Error>,
    ) -> BoxFuture<'static, Result<()>> {
        self.call.outcome = match outcome {
            Ok(()) => "ok".to_string(),
            Err(error) => {
                self.call.facts.failed(error);
                error.kind.as_str().to_string()
            }
        };
        self.told = true;
        self.write()
    }

    fn write(&mut self) -> BoxFuture<'static, Result<()>> {
        let facts = &mut self.call.facts;
        let (made, policy) = (facts.made.take(), facts.policy.take());
        self.call.sandbox_id = self.call.sandbox_id.take().or(made);
        self.call.policy = policy.or(self.call.policy.take());
        self.call.duration_ns = self.began.elapsed().as_nanos().to_string();
        tracing::debug!(
            request = self.call.caller.request,
            who = %self.call.caller.who,
            verb = self.call.verb,
            took_us = self.began.elapsed().as_micros() as u64,
            outcome = self.call.outcome,
            "call"
        );
        if self.call.stage != Stage::Begin {
            let took = self.began.elapsed();
            self.meter.count(self.verb, &self.call.outcome, took);
        }
        let written = self.witness.saw(&self.call, self.durable);
        match self.durable {
            true => written,
            // What only looked is answered, also by a daemon whose log cannot be written.
            false => Box::pin(async {
                let _ = written.await;
                Ok(())
            }),
        }
    }
}

/// A caller that left has made a call all the same.
impl Drop for Entry {
    fn drop(&mut self) {
        if !self.told {
            drop(self.write());
        }
    }
}
