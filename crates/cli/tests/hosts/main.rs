//! Hosts and their users: installation, ordinary users, container engines, other sandboxes around
//! `motu`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod dist;
mod docker;
mod nested;
mod network_rootless;
mod proot;
mod rootless;
mod stories_host;
