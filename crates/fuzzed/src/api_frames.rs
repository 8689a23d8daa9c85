//! A client may send anything, cut anywhere: frames, a wait for more, or an
//! error; never a panic.

use bytes::Bytes;
use motu_api::{event, frame::Decoder};

pub fn api_frames(data: &[u8]) {
    let Some((&cut, rest)) = data.split_first() else {
        return;
    };
    let mut decoder = Decoder::default();
    for piece in rest.chunks(usize::from(cut).max(1)) {
        decoder.push(Bytes::copy_from_slice(piece));
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let _ = event::decode_input(frame.clone());
                    let _ = event::decode_event(frame);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
