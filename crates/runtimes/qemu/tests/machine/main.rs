//! Real virtual machines under software emulation, from boot to nothing left.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod broken;
mod copies;
mod faults;
mod keeping;
mod kernels;
mod life;
mod saved;
mod spares;
mod support;
mod templates;
