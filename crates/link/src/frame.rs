//! Frames: a fixed header and a bounded payload.
//!
//! ```text
//!  0        4        8      9        10       12
//!  | length | stream | kind | channel | zero  | payload ...
//! ```
//!
//! All numbers are little-endian. `length` counts the payload only.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a frame header.
pub const HEADER_LEN: usize = 12;
/// The largest payload of one frame.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// The data channel of standard input and of file contents.
pub const CHANNEL_IN: u8 = 0;
/// The data channel of standard output (and of a terminal).
pub const CHANNEL_OUT: u8 = 1;
/// The data channel of standard error.
pub const CHANNEL_ERR: u8 = 2;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The host opens a stream; the payload is an encoded request.
    Open = 1,
    /// Bytes on a channel; costs credit.
    Data = 2,
    /// An encoded message; needs no credit, but the number of unread ones is bounded.
    Message = 3,
    /// The sender will send no more data (messages may follow).
    Eof = 4,
    /// The end of a stream by the guest; the payload is an encoded outcome.
    End = 5,
    /// Either side abandons the stream.
    Reset = 6,
    /// The receiver allows that many more data bytes (payload: u32).
    Credit = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Open,
            2 => Kind::Data,
            3 => Kind::Message,
            4 => Kind::Eof,
            5 => Kind::End,
            6 => Kind::Reset,
            7 => Kind::Credit,
            _ => return None,
        })
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub stream: u32,
    pub kind: Kind,
    pub channel: u8,
    pub payload: Bytes,
}

/// Why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {length} bytes is larger than the limit of {MAX_PAYLOAD}")]
    TooLong { length: usize },
    #[error("unknown frame kind {kind}")]
    UnknownKind { kind: u8 },
    #[error("reserved header bytes are not zero")]
    Reserved,
}

impl Frame {
    /// A frame with an empty payload on channel 0.
    pub fn bare(stream: u32, kind: Kind) -> Frame {
        Frame {
            stream,
            kind,
            channel: 0,
            payload: Bytes::new(),
        }
    }

    /// The header bytes that go before the payload.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        debug_assert!(self.payload.len() <= MAX_PAYLOAD);
        let mut header = [0u8; HEADER_LEN];
        let mut cursor = &mut header[..];
        cursor.put_u32_le(self.payload.len() as u32);
        cursor.put_u32_le(self.stream);
        cursor.put_u8(self.kind as u8);
        cursor.put_u8(self.channel);
        header
    }

    /// Takes one complete frame off the front of `buffer`.
    ///
    /// If it is incomplete, returns the number of missing bytes, so that the reader can reserve
    /// exactly that.
    pub fn take(buffer: &mut BytesMut) -> Result<Taken, FrameError> {
        if buffer.len() < HEADER_LEN {
            return Ok(Taken::Missing(HEADER_LEN - buffer.len()));
        }
        let mut header = &buffer[..HEADER_LEN];
        let length = header.get_u32_le() as usize;
        let stream = header.get_u32_le();
        let kind = header.get_u8();
        let channel = header.get_u8();
        let reserved = header.get_u16_le();
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLong { length });
        }
        let kind = Kind::from_byte(kind).ok_or(FrameError::UnknownKind { kind })?;
        if reserved != 0 {
            return Err(FrameError::Reserved);
        }
        let whole = HEADER_LEN + length;
        if buffer.len() < whole {
            return Ok(Taken::Missing(whole - buffer.len()));
        }
        let mut payload = buffer.split_to(whole);
        payload.advance(HEADER_LEN);
        Ok(Taken::Frame(Frame {
            stream,
            kind,
            channel,
            payload: payload.freeze(),
        }))
    }
}

/// The outcome of [`Frame::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Frame(Frame),
    /// At least this many more bytes are needed.
    Missing(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(frame: &Frame) -> BytesMut {
        let mut out = BytesMut::new();
        out.extend_from_slice(&frame.header());
        out.extend_from_slice(&frame.payload);
        out
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_anything_is_reserved() {
        let mut bytes = BytesMut::from(&[0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 2, 0, 0, 0][..]);
        assert_eq!(
            Frame::take(&mut bytes),
            Err(FrameError::TooLong {
                length: 0x7fff_ffff
            })
        );
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(stream: u32, channel: u8, payload in prop::collection::vec(any::<u8>(), 0..600), cut in 0usize..700) {
            let frame = Frame { stream, kind: Kind::Data, channel, payload: payload.into() };
            let whole = encode(&frame);
            let cut = cut.min(whole.len());
            let mut buffer = BytesMut::from(&whole[..cut]);
            if cut < whole.len() {
                prop_assert!(matches!(Frame::take(&mut buffer), Ok(Taken::Missing(n)) if n > 0 && n <= whole.len() - cut));
                buffer.extend_from_slice(&whole[cut..]);
            }
            prop_assert_eq!(Frame::take(&mut buffer), Ok(Taken::Frame(frame)));
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&noise[..]);
            while let Ok(Taken::Frame(_)) = Frame::take(&mut buffer) {}
        }
    }
}
