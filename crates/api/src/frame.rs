//! Frames of a live stream: `[kind u8][length u32 BE][payload]`.
//!
//! All output passes through here, so nothing is copied: an encoder emits header and payload
//! separately, and the decoder returns slices of the received buffers. A data frame may therefore
//! be returned in several pieces; only JSON frames are reassembled.

use bytes::{Buf, Bytes, BytesMut};
use motu_core::{Error, limits};

/// The length of a header.
pub const HEADER_BYTES: usize = 5;
/// The maximum length of a payload; longer data is sent in several frames.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The maximum length of a message, which is one frame: a request may carry long arguments.
pub const MAX_MESSAGE: usize = limits::REQUEST_BODY_BYTES.max as usize;

/// The kind of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An event or a control message.
    Json,
    /// Standard input to the server, standard output from it.
    Data,
    /// Standard error.
    Stderr,
}

impl Kind {
    /// The longest payload.
    pub fn most(self) -> usize {
        match self {
            Kind::Json => MAX_MESSAGE,
            Kind::Data | Kind::Stderr => MAX_PAYLOAD,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Kind::Json => 0,
            Kind::Data => 1,
            Kind::Stderr => 2,
        }
    }

    fn parse(byte: u8) -> Result<Kind, Error> {
        match byte {
            0 => Ok(Kind::Json),
            1 => Ok(Kind::Data),
            2 => Ok(Kind::Stderr),
            other => Err(Error::invalid(format!(
                "the stream holds a frame of unknown kind {other}"
            ))),
        }
    }
}

/// A JSON message, or a piece of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub payload: Bytes,
}

impl Frame {
    pub fn new(kind: Kind, payload: impl Into<Bytes>) -> Frame {
        Frame {
            kind,
            payload: payload.into(),
        }
    }

    /// Header and payload in one buffer, for transports that need that.
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(HEADER_BYTES + self.payload.len());
        whole.extend_from_slice(&header(self.kind, self.payload.len()));
        whole.extend_from_slice(&self.payload);
        whole.freeze()
    }
}

/// The header of a payload, which is at most [`Kind::most`] long.
pub fn header(kind: Kind, length: usize) -> [u8; HEADER_BYTES] {
    debug_assert!(length <= kind.most());
    let length = (length as u32).to_be_bytes();
    [kind.byte(), length[0], length[1], length[2], length[3]]
}

/// Allocates headers from one buffer for hundreds of frames.
#[derive(Debug, Default)]
pub struct Headers(BytesMut);

impl Headers {
    const SLAB: usize = 4096;

    pub fn next(&mut self, kind: Kind, length: usize) -> Bytes {
        if self.0.capacity() < HEADER_BYTES {
            self.0 = BytesMut::with_capacity(Self::SLAB);
        }
        self.0.extend_from_slice(&header(kind, length));
        self.0.split().freeze()
    }
}

/// Decodes received bytes into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The last received buffer, as far as it is not consumed.
    input: Bytes,
    head: [u8; HEADER_BYTES],
    head_len: usize,
    /// The frame being read, and how many bytes of it are missing.
    current: Option<(Kind, usize)>,
    json: BytesMut,
}

impl Decoder {
    /// Adds received bytes. All earlier ones must have been consumed with [`Decoder::next_frame`].
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty());
        self.input = bytes;
    }

    /// The next message or piece of data; `None` if more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            let Some((kind, left)) = self.current else {
                if !self.read_header()? {
                    return Ok(None);
                }
                continue;
            };
            let take = left.min(self.input.len());
            if kind != Kind::Json {
                if take == 0 && left > 0 {
                    return Ok(None);
                }
                self.advance(kind, left - take);
                let payload = self.input.split_to(take);
                if payload.is_empty() {
                    continue;
                }
                return Ok(Some(Frame { kind, payload }));
            }
            if self.json.is_empty() && take == left {
                self.current = None;
                let payload = self.input.split_to(take);
                return Ok(Some(Frame { kind, payload }));
            }
            self.json.extend_from_slice(&self.input.split_to(take));
            self.advance(kind, left - take);
            if left > take {
                return Ok(None);
            }
            let payload = self.json.split().freeze();
            return Ok(Some(Frame { kind, payload }));
        }
    }

    /// Whether the input so far ends at the end of a frame.
    pub fn is_at_boundary(&self) -> bool {
        self.current.is_none() && self.head_len == 0 && self.input.is_empty()
    }

    fn advance(&mut self, kind: Kind, left: usize) {
        self.current = (left > 0).then_some((kind, left));
    }

    fn read_header(&mut self) -> Result<bool, Error> {
        let take = (HEADER_BYTES - self.head_len).min(self.input.len());
        self.head[self.head_len..self.head_len + take].copy_from_slice(&self.input[..take]);
        self.input.advance(take);
        self.head_len += take;
        if self.head_len < HEADER_BYTES {
            return Ok(false);
        }
        self.head_len = 0;
        let kind = Kind::parse(self.head[0])?;
        let length = u32::from_be_bytes([self.head[1], self.head[2], self.head[3], self.head[4]]);
        let length = length as usize;
        let most = kind.most();
        if length > most {
            return Err(Error::invalid(format!(
                "the stream holds a frame of {length} bytes; the most is {most}"
            )));
        }
        self.current = Some((kind, length));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joins adjacent pieces of the same kind of data.
    fn joined(frames: Vec<Frame>) -> Vec<(Kind, Vec<u8>)> {
        let mut out: Vec<(Kind, Vec<u8>)> = Vec::new();
        for frame in frames {
            match out.last_mut() {
                Some((kind, bytes)) if *kind == frame.kind && frame.kind != Kind::Json => {
                    bytes.extend_from_slice(&frame.payload);
                }
                _ if frame.payload.is_empty() && frame.kind != Kind::Json => {}
                _ => out.push((frame.kind, frame.payload.to_vec())),
            }
        }
        out
    }

    fn decode(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, Error> {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        let mut at = 0;
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            let end = cut.clamp(at, bytes.len());
            decoder.push(Bytes::copy_from_slice(&bytes[at..end]));
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
            at = end;
        }
        assert!(decoder.is_at_boundary());
        Ok(frames)
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        (0u8..3, proptest::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(kind, payload)| Frame::new(Kind::parse(kind).unwrap(), payload))
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(
            frames in proptest::collection::vec(any_frame(), 0..12),
            mut cuts in proptest::collection::vec(0usize..2500, 0..20),
        ) {
            cuts.sort_unstable();
            let wire: Vec<u8> = frames.iter().flat_map(|frame| frame.to_bytes().to_vec()).collect();
            prop_assert_eq!(joined(decode(&wire, &cuts).unwrap()), joined(frames));
        }

        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = Decoder::default();
            decoder.push(Bytes::from(bytes));
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_is_read() {
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]));
        let error = decoder.next_frame().unwrap_err();
        assert!(error.message.contains("4294967295"), "{error}");
    }

    #[test]
    fn headers_share_their_allocation() {
        let mut headers = Headers::default();
        let first = headers.next(Kind::Data, 1);
        let second = headers.next(Kind::Stderr, 258);
        assert_eq!(&first[..], [1, 0, 0, 0, 1]);
        assert_eq!(&second[..], [2, 0, 0, 1, 2]);
        assert_eq!(
            first.as_ptr() as usize + HEADER_BYTES,
            second.as_ptr() as usize
        );
    }
}
