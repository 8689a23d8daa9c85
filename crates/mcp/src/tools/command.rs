//! Commands: read to their end, cut to a budget, the rest kept.

use crate::OUTPUT_BUDGET;
use crate::answer::Answer;
use crate::call::Call;
use crate::cut;
use crate::outputs::KEPT_PER_CHANNEL;
use crate::progress::Seen;
use crate::tools::line;
use futures_util::StreamExt;
use motu_core::Result;
use motu_core::collect::Collector;
use motu_core::exec::{ExecEvent, ExecResult, ExecSession};

/// The words of a command's answer.
pub const OUTPUT: &[(&str, &str)] = &[
    ("exit_code", "integer"),
    ("stdout", "string"),
    ("stderr", "string"),
    ("timed_out", "boolean"),
    ("truncated", "boolean"),
    ("rest", "string"),
    ("duration_ms", "integer"),
];

/// Keeps as much of a command's output as there is room for.
pub fn collector() -> Result<Collector> {
    Collector::new(Some(KEPT_PER_CHANNEL as u64))
}

/// Reads a session to its end. Dropped before that, it ends the command.
pub async fn ended(
    mut session: ExecSession,
    mut collector: Collector,
    seen: &Seen,
) -> Result<ExecResult> {
    collector.named(session.audit_id.take());
    while let Some(event) = session.events.next().await {
        let event = event?;
        if let ExecEvent::Stdout(bytes) | ExecEvent::Stderr(bytes) = &event {
            seen.add(bytes.len());
        }
        collector.add(event);
    }
    collector.finish()
}

/// The answer: how it ended, its output within the budget, and where the rest is.
pub fn answer(call: &Call, mut result: ExecResult, budget: Option<u64>) -> Answer {
    let budget = budget.map_or(OUTPUT_BUDGET, |bytes| bytes as usize);
    // Standard error gets at least half of the budget, because it is short and important.
    let stderr = cut::middle(
        &result.stderr,
        (budget / 2).max(budget.saturating_sub(result.stdout.len())),
    );
    let stdout = cut::middle(&result.stdout, budget.saturating_sub(stderr.text.len()));
    let cut = stdout.missing + stderr.missing > 0;
    let mut text = how(&result);
    if !stdout.text.is_empty() {
        text.push_str(&stdout.text);
        line(&mut text);
    }
    if !stderr.text.is_empty() {
        text.push_str("[stderr]\n");
        text.push_str(&stderr.text);
        line(&mut text);
    }
    let mut whole = std::mem::replace(&mut result.stdout, stdout.text);
    let errors = std::mem::replace(&mut result.stderr, stderr.text);
    if cut {
        result.truncated = true;
        // The base64 forms would exceed the budget that the text was cut to.
        (result.stdout_base64, result.stderr_base64) = (None, None);
    }
    let mut answer = Answer::new(text, &result);
    if cut {
        if !errors.is_empty() {
            line(&mut whole);
            whole.push_str("[stderr]\n");
            whole.push_str(&errors);
        }
        let uri = format!("motu://outputs/{}", call.shared.outputs.keep(whole));
        let rest = format!("[the whole output: resource {uri}]\n");
        answer.text.push_str(&rest);
        answer.structured["rest"] = uri.into();
    }
    answer
}

fn how(result: &ExecResult) -> String {
    let code = result.exit_code;
    let ms = result.duration_ms;
    match (result.timed_out, result.out_of_memory) {
        (true, _) => {
            format!("[timed out after {ms} ms and was killed; raise timeout_seconds]\n")
        }
        (_, true) => {
            format!("[exit code {code} after {ms} ms: out of memory; raise mem_mib]\n")
        }
        _ => format!("[exit code {code} after {ms} ms]\n"),
    }
}
