//! The stream of a process as a foreign agent sends it: any bytes, in pieces of any size.

use motu_e2b::envelope::Envelopes;
use motu_e2b::event;

pub fn e2b_envelopes(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let mut envelopes = Envelopes::new(1024);
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        envelopes.feed(piece);
        loop {
            match envelopes.take() {
                Ok(Some(envelope)) => {
                    let _ = event::read(&envelope);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = envelopes.is_torn();
}
