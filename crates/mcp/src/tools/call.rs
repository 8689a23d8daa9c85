//! The one tool of typed calls. The policy is the operator's: no field of the tool names one.

use super::environment::installed;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::progress::Seen;
use crate::schema::{Field, command, integer, nested, text, texts};
use crate::tool::{Effect, Tool, run};
use motu_core::call::{CallRequest, CallResult};
use motu_core::shown::misread;
use motu_core::{Error, limits};
use serde_json::{Value, json};

const FILES: Field = nested(
    "files",
    r#"{"type":"array","items":{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"},"encoding":{"enum":["utf-8","base64"]},"executable":{"type":"boolean"}},"required":["path","content"],"additionalProperties":false},"description":"Written before the command runs; below /work, /workspace or /tmp."}"#,
);
const NETWORK: Field = nested(
    "network",
    r#"{"type":"object","properties":{"mode":{"enum":["none","bridge"]},"allow":{"type":"array","items":{"type":"object","properties":{"host":{"type":"string"},"port":{"type":"integer"}},"required":["host","port"],"additionalProperties":false}}},"additionalProperties":false,"description":"none (the default), or bridge: what the operator's policy allows, or of that only what allow names."}"#,
);
const SECRETS: Field = nested(
    "secrets",
    r#"{"type":"object","additionalProperties":{"type":"object","properties":{"ref":{"type":"string"}},"required":["ref"],"additionalProperties":false},"description":"Variables by the names of secrets, as {\"KEY\": {\"ref\": \"name\"}}; never values."}"#,
);
const STATE: Field = nested(
    "state",
    r#"{"type":"object","properties":{"retention":{"enum":["destroy","stop","cold","snapshot"]},"ttl_seconds":{"type":"integer"},"from":{"type":"string"}},"required":["retention"],"additionalProperties":false,"description":"What becomes of the machine: destroy, unless something must be kept. from: the sandbox_id of a call that kept its state, to go on with it."}"#,
)
.required();
const LIMITS: Field = nested(
    "limits",
    r#"{"type":"object","properties":{"vcpu_count":{"type":"integer"},"mem_mib":{"type":"integer"},"disk_mib":{"type":"integer"}},"additionalProperties":false}"#,
);

pub const TOOLS: &[Tool] = &[Tool {
    name: "call",
    verb: "call",
    about: "Run one command in a fresh isolated machine, with files in and files out. Everything is \
            bounded by the operator's policy. Example: {\"language\": \"python\", \"files\": [{\"path\": \
            \"/work/main.py\", \"content\": \"print('hello')\"}], \"command\": [\"python3\", \
            \"/work/main.py\"], \"state\": {\"retention\": \"destroy\"}}",
    fields: &[
        text("language", 64).about("Such as python or bash. This or image."),
        text("image", 255),
        FILES,
        command()
            .about("A program and its arguments, as a list, or a shell script; it runs in /work."),
        integer("timeout_seconds", 1, limits::CALL_MAX_TIMEOUT_SECONDS.max),
        NETWORK,
        SECRETS,
        STATE,
        integer("max_output_bytes", 0, limits::CALL_OUTPUT_BYTES.max),
        LIMITS,
        texts("files_out", limits::CALL_OUTPUT_FILES.max)
            .about("Files that come back with the answer."),
    ],
    output: &[
        ("sandbox_id", "string"),
        ("exit_code", "integer?"),
        ("stdout", "string"),
        ("stderr", "string"),
        ("timed_out", "boolean"),
        ("audit_id", "string"),
        ("retention", "string"),
        ("truncated", "boolean"),
        ("duration_ms", "integer"),
        ("runtime", "string"),
        ("isolation", "string"),
        ("policy", "object"),
        ("files_out", "array"),
        ("snapshot", "string?"),
        ("expires_at", "string?"),
        ("failure", "object?"),
    ],
    effect: Effect::Runs,
    run: run!(call),
}];

async fn call(call: &Call, mut arguments: Arguments) -> Result<Answer, Stop> {
    if let Some(script) = arguments.text("command") {
        arguments.0["command"] = json!(["/bin/sh", "-c", script]);
    }
    let request: CallRequest = match serde_json::from_value(Value::Object(arguments.0)) {
        Ok(request) => request,
        Err(error) => {
            let error = Error::invalid(misread(error));
            return Err(call.unread("call", error).await.into());
        }
    };
    let request = CallRequest {
        policy: call.shared.options.policy.clone(),
        ..request
    };
    let seen = Seen::default();
    let make = || call.service().call(request.clone());
    // The error names the environment of a language.
    let work = installed(call, &seen, "", make);
    Ok(shown(&call.told(&seen, work).await?))
}

fn shown(result: &CallResult) -> Answer {
    let mut text = match (&result.failure, result.exit_code) {
        (Some(failure), _) => format!("[{}; retry: {}]\n", failure.message, failure.retry),
        (None, code) => format!(
            "[exit code {} after {} ms]\n",
            code.unwrap_or(0),
            result.duration_ms
        ),
    };
    text.push_str(&result.stdout);
    if !result.stderr.is_empty() {
        text.push_str("[stderr]\n");
        text.push_str(&result.stderr);
    }
    if result.truncated {
        text.push_str("\n[some of the output is left out]");
    }
    Answer::new(text, &json!(result))
}
