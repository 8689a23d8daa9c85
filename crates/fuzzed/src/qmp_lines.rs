//! Whatever QEMU says on its control socket is read or refused, and never more than it said.

use motu_qemu::qmp::{Line, parse};

pub fn qmp_lines(line: &[u8]) {
    match parse(line) {
        Ok(Line::Failed(reason)) => assert!(reason.chars().count() <= 500),
        Ok(Line::Event(name)) => assert!(name.len() <= line.len() * 3),
        Ok(Line::Greeting | Line::Return(_)) | Err(_) => {}
    }
}
