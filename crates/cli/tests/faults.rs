//! Faults, end to end: the real binary, a real daemon, real machines.
//!
//! Everything here goes wrong on purpose: daemons and guests are killed while they work,
//! programs inside are hostile, disks fill up, callers send invalid data. Each test has its own
//! state directory and fails if it leaves a process, a cgroup or a loop device behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "faults/archives.rs"]
mod archives;
#[path = "faults/audit.rs"]
mod audit;
#[path = "faults/backups.rs"]
mod backups;
#[path = "faults/baselines.rs"]
mod baselines;
#[path = "faults/bounded.rs"]
mod bounded;
#[path = "faults/chaos.rs"]
mod chaos;
#[path = "faults/clients.rs"]
mod clients;
#[path = "faults/crash.rs"]
mod crash;
#[path = "faults/daemons.rs"]
mod daemons;
#[path = "faults/durable.rs"]
mod durable;
#[path = "faults/exports.rs"]
mod exports;
#[path = "faults/failing.rs"]
mod failing;
#[path = "faults/files.rs"]
mod files;
#[path = "faults/filling.rs"]
mod filling;
#[path = "faults/full.rs"]
mod full;
#[path = "faults/guest.rs"]
mod guest;
#[path = "faults/hostile.rs"]
mod hostile;
#[path = "faults/intents.rs"]
mod intents;
#[path = "faults/lent.rs"]
mod lent;
#[path = "faults/links.rs"]
mod links;
#[path = "faults/machines.rs"]
mod machines;
#[path = "faults/mistakes.rs"]
mod mistakes;
#[path = "faults/output.rs"]
mod output;
#[path = "faults/recovery.rs"]
mod recovery;
#[path = "faults/sessions.rs"]
mod sessions;
#[path = "faults/shore.rs"]
mod shore;
#[path = "faults/signals.rs"]
mod signals;
#[path = "faults/support.rs"]
mod support;
#[path = "faults/terminals.rs"]
mod terminals;
#[path = "faults/traces.rs"]
mod traces;
#[path = "faults/undo.rs"]
mod undo;
#[path = "faults/vanished.rs"]
mod vanished;
#[path = "faults/wire.rs"]
mod wire;
#[path = "faults/workspaces.rs"]
mod workspaces;
