//! Messages from either side decode or fail; never a panic.

use motu_link::message::{Control, Note, Outcome, Request};
use prost::Message;

pub fn link_messages(data: &[u8]) {
    let _ = Request::decode(data);
    let _ = Note::decode(data);
    let _ = Control::decode(data);
    let _ = Outcome::decode(data);
}
