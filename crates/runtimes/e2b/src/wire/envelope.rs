//! Messages of a Connect stream: one byte of flags, four of length, then JSON.
//!
//! The bytes are untrusted. The length is bounded, and nothing is allocated for a message before it
//! has arrived.

use bytes::{Buf as _, Bytes, BytesMut};

/// Flags and length before each message.
const HEAD: usize = 5;
const COMPRESSED: u8 = 0b01;
const LAST: u8 = 0b10;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The last message, with the stream's result.
    pub last: bool,
    pub payload: Bytes,
}

/// Why the bytes are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    TooLong,
    /// The beginning of the invalid bytes.
    Nonsense(Vec<u8>),
}

/// Splits bytes into messages.
#[derive(Debug)]
pub struct Envelopes {
    buffer: BytesMut,
    most: usize,
}

impl Envelopes {
    /// With a bound for the length of a message.
    pub fn new(most: usize) -> Envelopes {
        Envelopes {
            buffer: BytesMut::new(),
            most,
        }
    }

    /// Adds bytes. Call [`Envelopes::take`] until it returns nothing first.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message.
    pub fn take(&mut self) -> Result<Option<Envelope>, Unreadable> {
        let Some(head) = self.buffer.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [flags, length @ ..] = *head;
        // Compression was not offered, and other flags are unknown.
        if flags & !LAST != 0 || flags & COMPRESSED != 0 {
            let shown = self.buffer.len().min(400);
            return Err(Unreadable::Nonsense(self.buffer[..shown].to_vec()));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.most {
            return Err(Unreadable::TooLong);
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        self.buffer.advance(HEAD);
        Ok(Some(Envelope {
            last: flags & LAST != 0,
            payload: self.buffer.split_to(length).freeze(),
        }))
    }

    /// Whether a message is incomplete.
    pub fn is_torn(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// Encodes a message.
pub fn sealed(payload: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(HEAD + payload.len());
    message.push(0);
    message.extend_from_slice(
        &u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    message.extend_from_slice(payload);
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_message_is_not_waited_for() {
        let mut found = Envelopes::new(16);
        found.feed(&[0, 0, 0, 0, 17]);
        assert_eq!(found.take(), Err(Unreadable::TooLong));
        for flags in [1, 3, 4, 0x80] {
            let mut found = Envelopes::new(16);
            found.feed(&[flags, 0, 0, 0, 0]);
            assert!(matches!(found.take(), Err(Unreadable::Nonsense(_))));
        }
        let mut found = Envelopes::new(16);
        found.feed(&[2, 0, 0, 0, 2, b'{']);
        assert_eq!(found.take(), Ok(None));
        assert!(found.is_torn());
    }

    proptest! {
        #[test]
        fn messages_come_back_whole_in_pieces_of_any_size(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
            size in 1usize..64,
        ) {
            let sent: Vec<u8> = messages.iter().flat_map(|message| sealed(message)).collect();
            let mut envelopes = Envelopes::new(200);
            let mut found = Vec::new();
            for piece in sent.chunks(size) {
                envelopes.feed(piece);
                while let Some(envelope) = envelopes.take().unwrap() {
                    prop_assert!(!envelope.last);
                    found.push(envelope.payload.to_vec());
                }
            }
            prop_assert!(!envelopes.is_torn());
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn rubbish_ends_in_an_error_or_in_nothing(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 1usize..300) {
            let mut envelopes = Envelopes::new(64);
            'all: for piece in bytes.chunks(size) {
                envelopes.feed(piece);
                loop {
                    match envelopes.take() {
                        Ok(Some(envelope)) => {
                            prop_assert!(envelope.payload.len() <= 64);
                            let _ = crate::wire::event::read(&envelope);
                        }
                        Ok(None) => break,
                        Err(_) => break 'all,
                    }
                }
                prop_assert!(envelopes.buffer.len() <= 64 + HEAD + size);
            }
        }
    }
}
