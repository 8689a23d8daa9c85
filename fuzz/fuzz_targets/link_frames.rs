//! Any bytes are frames, a wait for more, or an error; never a panic.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use motu_link::frame::{Frame, Taken};

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    while let Ok(Taken::Frame(frame)) = Frame::take(&mut buffer) {
        // What was read can be written again.
        let _ = frame.header();
    }
});
