//! Whom the memory killer takes when a machine's memory ends.
//!
//! To the host, all that runs in a machine is gVisor: the sandbox, which is the machine, and one
//! process for the memory of each program. They have the same score at first, and the sandbox is
//! the largest of them. Those of programs are made by copying one that was there before the first:
//! with a mark on that one, all of them go before the sandbox, and before the guest, whose process
//! was made without the mark.
//!
//! It does not help where the sandbox itself writes the memory, as for a `read` of hundreds of
//! megabytes at once: what it was asked for is not given back by the end of the program. Then the
//! machine ends, and says so.

use motu_local::start_time;

/// More than anything without a mark, however large.
const FIRST: &str = "1000";

/// Marks what the processes of programs are copied from; `members` are the machine's processes.
pub(crate) fn spare_the_sandbox(sandbox: i32, members: &[i32]) -> std::io::Result<()> {
    let made_by_sandbox = members.iter().filter(|pid| parent(**pid) == Some(sandbox));
    // The guest's was copied from it too, so it is the oldest.
    let source = made_by_sandbox.min_by_key(|pid| start_time(**pid).unwrap_or(u64::MAX));
    match source {
        Some(pid) => std::fs::write(format!("/proc/{pid}/oom_score_adj"), FIRST),
        None => Err(std::io::ErrorKind::NotFound.into()),
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces and parentheses of its own.
    let fields = stat.get(stat.rfind(')')? + 1..)?;
    fields.split_whitespace().nth(1)?.parse().ok()
}
