//! Any bytes are frames, a wait for more, or an error; never a panic.

use bytes::BytesMut;
use motu_link::frame::{Frame, Taken};

pub fn link_frames(data: &[u8]) {
    let mut buffer = BytesMut::from(data);
    while let Ok(Taken::Frame(frame)) = Frame::take(&mut buffer) {
        // What was read can be written again.
        let _ = frame.header();
    }
}
