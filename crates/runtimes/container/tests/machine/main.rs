//! Real machines, made as root with the real guest.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step ends the test, and should"
)]

mod directories;
mod kept;
mod life;
mod limits;
mod programs;
mod rootless;
mod support;
mod walls;
