//! SIGTERM ends this program, whatever it is doing.
//!
//! Commands that listen for the signal have a way out of their own: a command inside a machine
//! gets it first, open calls may end. An alarm of the kernel bounds that way out: it depends on
//! nothing else, so neither a stuck call nor a full pipe can keep the program, and it costs
//! nothing until the signal comes.

mod sys;

use std::time::Duration;

/// The exit code of a program that SIGTERM ended, as a shell gives it.
pub const TERMINATED: u8 = 143;
/// How long a command inside a machine may take to end before it is left.
pub const LEAVE: Duration = Duration::from_secs(10);
/// How much longer than its own way out the program may take.
const SLACK: Duration = Duration::from_secs(3);

/// From now on this program is gone soon after `way_out` is over, once it gets a SIGTERM.
pub fn bound(way_out: Duration) {
    let seconds = (way_out + SLACK).as_secs() as u32;
    // Without the alarm, the program still ends in the normal way.
    if let Err(error) = sys::alarm_on_sigterm(seconds, TERMINATED) {
        tracing::warn!(%error, "no bound for the way out");
    }
}
