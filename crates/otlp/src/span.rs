//! A call as a span: what the audit log has of it, which is nothing that was said, printed or
//! written.

use crate::attributes::Attributes;
use motu_core::audit::AuditCall;
use serde_json::{Value, json};

/// A request that was served.
const KIND_SERVER: u8 = 2;
const STATUS_OK: u8 = 1;
const STATUS_ERROR: u8 = 2;

/// The span of a call. The digits of its name in the audit log are the trace, and the random ones
/// among them the span: one can be found by the other.
pub fn span(call: &AuditCall) -> Value {
    let trace = call.id.as_str().trim_start_matches("run_");
    let (begin, end) = times(call);
    let status = match call.outcome.as_str() {
        "ok" => json!({"code": STATUS_OK}),
        outcome => json!({"code": STATUS_ERROR, "message": outcome}),
    };
    json!({
        "traceId": trace,
        "spanId": trace.get(16..).unwrap_or_default(),
        "name": call.verb,
        "kind": KIND_SERVER,
        "startTimeUnixNano": begin.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes(call),
        "status": status,
    })
}

fn attributes(call: &AuditCall) -> Vec<Value> {
    let facts = &call.facts;
    let isolation = facts.isolation.map(|isolation| isolation.to_string());
    let limits = facts.limits.join(" ");
    Attributes::default()
        .text("motu.audit_id", call.id.as_str())
        .text("motu.caller", &call.caller.who)
        .text("motu.face", &call.caller.face)
        .text("motu.permission", &call.permission)
        .text("motu.effect", &call.effect)
        .text("motu.decision", &call.decision)
        .text("motu.outcome", &call.outcome)
        .maybe(
            "motu.sandbox_id",
            call.sandbox_id.as_ref().map(|id| id.as_str()),
        )
        .maybe("motu.policy", call.policy.as_deref())
        .maybe("motu.runtime", facts.runtime.as_deref())
        .maybe("motu.isolation", isolation.as_deref())
        .maybe("motu.environment", facts.environment.as_deref())
        .maybe("motu.network", facts.network.as_deref())
        .maybe(
            "motu.limits",
            Some(&*limits).filter(|text| !text.is_empty()),
        )
        .number("motu.exit_code", facts.exit_code)
        .number("motu.signal", facts.signal)
        .number("motu.bytes_in", facts.bytes_in)
        .number("motu.bytes_out", facts.bytes_out)
        .list()
}

/// When a call began and ended, in nanoseconds since 1970.
fn times(call: &AuditCall) -> (i128, i128) {
    let begin = call.time.parse::<jiff::Timestamp>();
    let begin = begin.map_or(0, jiff::Timestamp::as_nanosecond);
    let took: i128 = call.duration_ns.parse().unwrap_or(0);
    (begin, begin + took)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use motu_core::audit::{AuditCaller, AuditId, Facts, Stage};

    /// A call that ended like this.
    pub fn call(outcome: &str) -> AuditCall {
        AuditCall {
            id: AuditId::generate(),
            stage: Stage::Whole,
            time: "2026-11-18T09:00:00.000000001Z".to_string(),
            caller: AuditCaller {
                who: "key:k1@acme".to_string(),
                face: "http".to_string(),
                request: 7,
            },
            verb: "exec".to_string(),
            permission: "commands:exec".to_string(),
            effect: "runs".to_string(),
            decision: "allowed".to_string(),
            sandbox_id: None,
            request: None,
            policy: None,
            outcome: outcome.to_string(),
            facts: Facts {
                exit_code: Some(3),
                ..Facts::default()
            },
            duration_ns: "2000000".to_string(),
        }
    }

    #[test]
    fn a_call_is_a_span_of_its_own_trace() {
        let call = call("ok");
        let span = span(&call);
        let digits = call.id.as_str().trim_start_matches("run_");
        assert_eq!(span["traceId"], digits);
        assert_eq!(span["spanId"], digits[16..]);
        assert_eq!(digits.len(), 32);
        assert_eq!(span["startTimeUnixNano"], "1794992400000000001");
        assert_eq!(span["endTimeUnixNano"], "1794992400002000001");
        assert_eq!(span["status"]["code"], STATUS_OK);
        let attributes = span["attributes"].as_array().unwrap();
        let code = attributes
            .iter()
            .find(|one| one["key"] == "motu.exit_code")
            .unwrap();
        assert_eq!(code["value"]["intValue"], "3");
    }

    #[test]
    fn a_call_that_failed_says_how() {
        let span = span(&call("not_found"));
        assert_eq!(span["status"], json!({"code": 2, "message": "not_found"}));
    }
}
