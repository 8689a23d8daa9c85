//! The audit log: every call once, chained by hashes, signed, on the disk before its answer.
//!
//! ```text
//!   gate ──► Log ──queue──► writer thread: number, chain, sign, write, fdatasync ──► "durable"
//!                             one signature and one fdatasync for all that wait
//!
//!   MOTU_HOME/audit.key                         signs; 0600
//!   MOTU_HOME/audit/00000000000000000001.jsonl  a segment: canonical JSON, one record per line
//!   MOTU_HOME/audit/00000000000000000001.index  where its calls are; made again when it is missing
//!   MOTU_HOME/audit/head                        the last checkpoint, beside the log
//! ```
//!
//! The format is described in `docs/audit.md`, exactly enough to check a log or a receipt in
//! another language.

mod canonical;
mod disk;
mod hex;
mod index;
mod key;
mod log;
mod open;
mod read;
mod receipt;
mod record;
mod segment;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod verify;
mod view;
mod writer;

pub use canonical::canonical;
pub use key::PublicKey;
pub use log::Log;
pub use read::{Export, Follower};
pub use receipt::check as check_receipt;
pub use state::Settings;
pub use verify::{Expected, verify};
pub use view::View;

/// The version of records.
const VERSION: u64 = 1;

/// A SHA-256.
type Hash = [u8; 32];

/// Parses bytes as a segment; for the fuzzer.
pub fn look_at(bytes: &[u8]) {
    let view = View::of_bytes(bytes);
    verify(&view, &Expected::default());
}
