//! What the gate saw: one line per call, for the log, the audit and the measurements.

use crate::caller::Caller;
use motu_core::ErrorKind;
use motu_core::verb::Info;
use std::time::Duration;

/// One call that has been answered.
#[derive(Debug)]
pub struct Seen<'a> {
    pub caller: &'a Caller,
    pub verb: &'a Info,
    /// Why it failed, if it did.
    pub failed: Option<ErrorKind>,
    /// Until the answer; a live session goes on after it.
    pub took: Duration,
}

/// Hears of every call.
pub trait Witness: Send + Sync {
    fn saw(&self, seen: &Seen<'_>);
}

/// Writes every call to the daemon's log, for whoever asked for that much.
pub struct Log;

impl Witness for Log {
    fn saw(&self, seen: &Seen<'_>) {
        tracing::debug!(
            request = seen.caller.request,
            who = %seen.caller.who,
            verb = seen.verb.name,
            took_us = seen.took.as_micros() as u64,
            failed = seen.failed.map(|kind| kind.as_str()),
            "call"
        );
    }
}
