//! One suite that every runtime passes.
//!
//! The checks go through the engine, so they prove what users get: the contract in
//! [`motu_core::runtime`] and the promises of [`motu_core::Service`] together. A runtime joins with
//! one line:
//!
//! ```ignore
//! motu_conformance::conformance!(mine, motu_conformance::subjects::mine());
//! ```
//!
//! and a function that returns its [`Subject`]. Each check becomes one test
//! named `mine::GROUP::CHECK`. A runtime that cannot work on this host is
//! skipped, with its reason on the test's output and in the file that
//! `MOTU_SKIP_LOG` names; it never passes silently, and with `MOTU_NO_SKIP` set it
//! fails.
//!
//! The checks use only commands of a fake machine (see [`motu_fake::program`])
//! and never look at a runtime's insides.

pub mod bench;
pub mod checks;
pub mod life;
pub mod shared;
pub mod subject;
pub mod subjects;
mod suite;

pub use bench::{Bench, prove, prove_across};
pub use life::Life;
pub use motu_needs::skip;
pub use subject::{Skip, Subject};
