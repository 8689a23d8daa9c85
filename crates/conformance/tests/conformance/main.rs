//! The suite on every runtime, and what only one of them promises.

mod e2b;
mod engines;
mod proot;
mod providers;
mod suite;
