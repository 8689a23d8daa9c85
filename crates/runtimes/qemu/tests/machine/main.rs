//! Real virtual machines under software emulation, from boot to nothing left.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod broken;
#[path = "../conversation/mod.rs"]
#[expect(dead_code, reason = "what plays conversations back asks more of them")]
mod conversation;
mod copies;
mod faults;
mod keeping;
mod kernels;
mod life;
mod recordings;
mod saved;
mod spares;
mod support;
mod templates;
