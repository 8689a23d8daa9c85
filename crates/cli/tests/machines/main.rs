//! Real machines of every runtime at work: their networks, programs, builds, templates and file
//! systems. The tests are slow, and many need root.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod agent;
mod border;
mod building;
mod file_systems;
mod namespaces;
mod network;
mod ordinary;
mod packages;
mod pjdfstest;
mod programs;
mod templates;
mod traces;
