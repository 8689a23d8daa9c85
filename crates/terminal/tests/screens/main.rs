//! The emulator and the session above it, without a shell: bytes in, screen out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod chunks;
mod pictures;
mod recordings;
mod vt;
mod xterm;
