//! Whatever QEMU says on its control socket is read or refused, and never more than it said.

#![no_main]

use libfuzzer_sys::fuzz_target;
use motu_qemu::qmp::{Line, parse};

fuzz_target!(|line: &[u8]| {
    match parse(line) {
        Ok(Line::Failed(reason)) => assert!(reason.chars().count() <= 500),
        Ok(Line::Event(name)) => assert!(name.len() <= line.len() * 3),
        Ok(Line::Greeting | Line::Return(_)) | Err(_) => {}
    }
});
