//! Loops over every byte of a virtual machine's memory or kernel: checksums, and unpacking.
//!
//! They are a crate of their own for the sake of test builds, which optimise this one and not the runtime around it.

pub mod lz4;
mod sum;

pub use sum::Sum;
