//! Messages from either side decode or fail; never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use motu_link::message::{Control, Note, Outcome, Request};
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let _ = Request::decode(data);
    let _ = Note::decode(data);
    let _ = Control::decode(data);
    let _ = Outcome::decode(data);
});
