//! Directs the OOM killer when a machine runs out of memory.
//!
//! For the host, everything in a machine is gVisor: the sandbox process, which is the machine, and
//! one process for the memory of each program. They start with the same score, and the sandbox is
//! the largest. The processes of programs are forked from one that exists before the first program:
//! raising that one's `oom_score_adj` makes all of them go before the sandbox, and before the
//! guest, whose process was forked earlier.
//!
//! It does not help if the sandbox itself writes the memory, as for a `read` of hundreds of
//! megabytes at once: that memory is not freed by killing the program. Then the machine ends, with
//! that reason.

use motu_local::start_time;

/// The maximum: above any process without an adjustment.
const FIRST: &str = "1000";

/// Raises the score of the process that programs are forked from; `members` are the machine's
/// processes.
pub(crate) fn spare_the_sandbox(sandbox: i32, members: &[i32]) -> std::io::Result<()> {
    let made_by_sandbox = members.iter().filter(|pid| parent(**pid) == Some(sandbox));
    // The guest's was forked from it too, so it is the oldest.
    let source = made_by_sandbox.min_by_key(|pid| start_time(**pid).unwrap_or(u64::MAX));
    match source {
        Some(pid) => std::fs::write(format!("/proc/{pid}/oom_score_adj"), FIRST),
        None => Err(std::io::ErrorKind::NotFound.into()),
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain spaces and parentheses.
    let fields = stat.get(stat.rfind(')')? + 1..)?;
    fields.split_whitespace().nth(1)?.parse().ok()
}
