//! Commands: read to their end, cut to a budget, the rest kept.

use crate::OUTPUT_BUDGET;
use crate::answer::Answer;
use crate::call::Call;
use crate::cut;
use crate::outputs::KEPT_PER_CHANNEL;
use crate::progress::Seen;
use crate::tools::line;
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, ExecSession, Exited};
use motu_core::sandbox::Sandbox;
use motu_core::{Error, Result};
use serde_json::{Value, json};

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

/// One channel, up to what is kept.
#[derive(Debug, Default)]
struct Channel {
    bytes: Vec<u8>,
    lost: bool,
}

impl Channel {
    fn add(&mut self, more: &Bytes) {
        let room = KEPT_PER_CHANNEL - self.bytes.len();
        self.bytes.extend_from_slice(&more[..more.len().min(room)]);
        self.lost |= more.len() > room;
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A command that has ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub sandbox: Option<Box<Sandbox>>,
    exited: Exited,
    stdout: String,
    stderr: String,
    /// Some output is not even kept.
    lost: bool,
}

/// Reads a session to its end. Dropped before that, it ends the command.
pub async fn ended(mut session: ExecSession, seen: &Seen) -> Result<Ended> {
    let (mut stdout, mut stderr) = (Channel::default(), Channel::default());
    let (mut sandbox, mut exited, mut gap) = (None, None, false);
    while let Some(event) = session.events.next().await {
        match event? {
            ExecEvent::Sandbox(made) => sandbox = Some(made),
            ExecEvent::Started(_) => {}
            ExecEvent::Stdout(bytes) => {
                seen.add(bytes.len());
                stdout.add(&bytes);
            }
            ExecEvent::Stderr(bytes) => {
                seen.add(bytes.len());
                stderr.add(&bytes);
            }
            ExecEvent::Gap(_) => gap = true,
            ExecEvent::Exited(how) => exited = Some(how),
        }
    }
    let Some(exited) = exited else {
        return Err(Error::transport(
            "the machine went away before the command ended",
        ));
    };
    Ok(Ended {
        sandbox,
        exited,
        stdout: stdout.text(),
        stderr: stderr.text(),
        lost: stdout.lost || stderr.lost || gap,
    })
}

/// The answer: how it ended, its output within the budget, and where the rest is.
pub fn answer(call: &Call, ended: Ended, budget: Option<u64>, mut facts: Value) -> Answer {
    let budget = budget.map_or(OUTPUT_BUDGET, |bytes| bytes as usize);
    // Errors are short and matter; what they leave is for the output.
    let stderr = cut::middle(
        &ended.stderr,
        (budget / 2).max(budget.saturating_sub(ended.stdout.len())),
    );
    let stdout = cut::middle(&ended.stdout, budget.saturating_sub(stderr.text.len()));
    let cut = stdout.missing + stderr.missing > 0;
    let exited = &ended.exited;
    let mut text = how(exited);
    if !stdout.text.is_empty() {
        text.push_str(&stdout.text);
        line(&mut text);
    }
    if !stderr.text.is_empty() {
        text.push_str("[stderr]\n");
        text.push_str(&stderr.text);
        line(&mut text);
    }
    facts["exit_code"] = exited.exit_code.into();
    facts["stdout"] = stdout.text.into();
    facts["stderr"] = stderr.text.into();
    facts["timed_out"] = exited.timed_out.into();
    facts["truncated"] = (cut || ended.lost).into();
    facts["duration_ms"] = exited.duration_ms.into();
    if exited.out_of_memory {
        facts["out_of_memory"] = true.into();
    }
    if cut {
        let mut whole = ended.stdout;
        if !ended.stderr.is_empty() {
            line(&mut whole);
            whole.push_str("[stderr]\n");
            whole.push_str(&ended.stderr);
        }
        let uri = format!("motu://outputs/{}", call.shared.outputs.keep(whole));
        text.push_str(&format!("[the whole output: resource {uri}]\n"));
        facts["rest"] = uri.into();
    }
    if let Some(sandbox) = &ended.sandbox {
        facts["environment"] = sandbox.environment.clone().into();
        facts["isolation"] = json!(sandbox.isolation);
    }
    Answer::new(text, &facts)
}

fn how(exited: &Exited) -> String {
    let code = exited.exit_code;
    let ms = exited.duration_ms;
    match exited {
        Exited {
            timed_out: true, ..
        } => {
            format!("[timed out after {ms} ms and was killed; raise timeout_seconds]\n")
        }
        Exited {
            out_of_memory: true,
            ..
        } => {
            format!("[exit code {code} after {ms} ms: out of memory; raise mem_mib]\n")
        }
        _ => format!("[exit code {code} after {ms} ms]\n"),
    }
}
