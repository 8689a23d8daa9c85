//! A live session folded into one answer.
//!
//! Used where a caller wants the result of a one-shot as a single value. Output
//! beyond the budget is counted and marked, never kept.

use crate::audit::AuditId;
use crate::exec::{ExecEvent, ExecResult, ExecSession, Exited};
use crate::sandbox::Sandbox;
use crate::{Error, Result, limits};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt;

/// One channel, cut to its budget.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    cut: bool,
}

impl Kept {
    fn add(&mut self, more: &Bytes, budget: usize) {
        let room = budget - self.bytes.len();
        self.bytes.extend_from_slice(&more[..more.len().min(room)]);
        self.cut |= more.len() > room;
    }

    /// Text, or a readable approximation and the exact bytes as base64. A character that the
    /// budget cut in two is left out: what came before it is still text.
    fn text(mut self) -> (String, Option<String>) {
        if let Err(error) = std::str::from_utf8(&self.bytes)
            && self.cut
            && error.error_len().is_none()
        {
            self.bytes.truncate(error.valid_up_to());
        }
        match String::from_utf8(self.bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let exact = BASE64.encode(error.as_bytes());
                let approximation = String::from_utf8_lossy(error.as_bytes()).into_owned();
                (approximation, Some(exact))
            }
        }
    }
}

/// Everything seen of one session.
#[derive(Debug)]
pub struct Collector {
    budget: usize,
    sandbox: Option<Box<Sandbox>>,
    is_workspace: bool,
    stdout: Kept,
    stderr: Kept,
    gaps: bool,
    exited: Option<Exited>,
    audit_id: Option<AuditId>,
}

impl Collector {
    /// Keeps up to `max_output_bytes` per channel.
    pub fn new(max_output_bytes: Option<u64>) -> Result<Collector> {
        let budget = limits::MAX_OUTPUT_BYTES.resolve(max_output_bytes)?;
        Ok(Collector {
            budget: budget as usize,
            sandbox: None,
            is_workspace: false,
            stdout: Kept::default(),
            stderr: Kept::default(),
            gaps: false,
            exited: None,
            audit_id: None,
        })
    }

    /// Says which sandbox the session is in, where the session itself does not.
    #[must_use]
    pub fn within(mut self, sandbox: Sandbox) -> Collector {
        self.sandbox = Some(Box::new(sandbox));
        self
    }

    /// Says that the sandbox is a workspace.
    #[must_use]
    pub fn of_workspace(mut self) -> Collector {
        self.is_workspace = true;
        self
    }

    /// Says what the call is named in the audit log.
    pub fn named(&mut self, id: Option<AuditId>) {
        self.audit_id = id;
    }

    pub fn add(&mut self, event: ExecEvent) {
        match event {
            ExecEvent::Sandbox(sandbox) => self.sandbox = Some(sandbox),
            ExecEvent::Started(_) => {}
            ExecEvent::Stdout(bytes) => self.stdout.add(&bytes, self.budget),
            ExecEvent::Stderr(bytes) => self.stderr.add(&bytes, self.budget),
            ExecEvent::Gap(_) => self.gaps = true,
            ExecEvent::Exited(exited) => self.exited = Some(exited),
        }
    }

    /// Reads a session to its end. Nothing is ever typed into it.
    pub async fn add_all(&mut self, mut session: ExecSession) -> Result<()> {
        self.named(session.audit_id.take());
        while let Some(event) = session.events.next().await {
            self.add(event?);
        }
        Ok(())
    }

    /// The answer, once the session has ended.
    pub fn finish(self) -> Result<ExecResult> {
        let (Some(sandbox), Some(exited)) = (self.sandbox, self.exited) else {
            return Err(Error::transport("the session ended before its command did"));
        };
        let truncated = self.stdout.cut || self.stderr.cut || self.gaps;
        let (stdout, stdout_base64) = self.stdout.text();
        let (stderr, stderr_base64) = self.stderr.text();
        let not_enforced = sandbox.not_enforced();
        Ok(ExecResult {
            workspace_id: self.is_workspace.then(|| sandbox.sandbox_id.clone()),
            sandbox_id: sandbox.sandbox_id,
            environment: sandbox.environment,
            exit_code: exited.exit_code,
            not_started: exited.not_started,
            signal: exited.signal,
            stdout,
            stderr,
            stdout_base64,
            stderr_base64,
            truncated,
            stdout_bytes: exited.stdout_bytes,
            stderr_bytes: exited.stderr_bytes,
            timed_out: exited.timed_out,
            out_of_memory: exited.out_of_memory,
            duration_ms: exited.duration_ms,
            runtime: sandbox.runtime,
            isolation: sandbox.isolation,
            accelerator: sandbox.accelerator,
            network: sandbox.network,
            not_enforced,
            audit_id: self.audit_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_the_budget_exactly() {
        let mut kept = Kept::default();
        kept.add(&Bytes::from_static(b"abc"), 4);
        assert!(!kept.cut);
        kept.add(&Bytes::from_static(b"d"), 4);
        assert!(!kept.cut);
        kept.add(&Bytes::from_static(b"e"), 4);
        assert!(kept.cut);
        assert_eq!(kept.bytes, b"abcd");
    }

    #[test]
    fn bytes_that_are_not_text_are_kept_exactly() {
        let mut kept = Kept::default();
        kept.add(&Bytes::from_static(b"a\xff"), 4);
        let (text, exact) = kept.text();
        assert_eq!(text, "a\u{fffd}");
        assert_eq!(exact.as_deref(), Some("Yf8="));
    }

    #[test]
    fn a_character_cut_in_two_leaves_text() {
        let mut kept = Kept::default();
        kept.add(&Bytes::from("aé".to_string()), 2);
        assert_eq!(kept.text(), ("a".to_string(), None));
    }

    #[test]
    fn an_unfinished_session_is_an_error() {
        assert!(Collector::new(None).unwrap().finish().is_err());
    }
}
