//! Real machines, made as root by the real `runsc` with the real guest.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step ends the test, and should"
)]

mod kept;
mod life;
mod limits;
mod runtimes;
mod support;
mod walls;
