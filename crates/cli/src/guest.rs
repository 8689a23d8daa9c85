//! The program that runs inside every machine, carried in this one.

pub static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/motu-guest"));
