//! Faults, end to end: the real binary, a real daemon, real machines.
//!
//! Everything here goes wrong on purpose: daemons and guests are killed while they work,
//! programs inside are hostile, disks fill up, callers send invalid data or come in crowds. Each test
//! has its own state directory and fails if it leaves a process, a cgroup or a loop device behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod archives;
mod audit;
mod backups;
mod baselines;
mod bounded;
mod chaos;
mod clients;
mod crash;
mod daemons;
mod dormant;
mod durable;
mod exports;
mod failing;
mod files;
mod files_kept;
mod filling;
mod full;
mod guest;
mod homes;
mod hostile;
mod intents;
mod lent;
mod links;
mod load;
mod machines;
mod mistakes;
mod output;
mod races;
mod readiness;
mod recovery;
mod sessions;
mod shore;
mod signals;
mod terminals;
mod unattended;
mod undo;
mod vanished;
mod wire;
mod workspaces;
