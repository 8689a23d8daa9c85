#![no_main]
//! Output of a command as a foreign service sends it: any bytes, in pieces of any size.

use libfuzzer_sys::fuzz_target;
use motu_http::lines::Lines;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let mut lines = Lines::new(1024);
    for piece in bytes.chunks(usize::from(size).max(1)) {
        lines.feed(piece);
        loop {
            match lines.line() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = lines.last();
});
