//! Names of sockets that clients take for names of hosts.
//!
//! Clients of gRPC's C core (Python, C++, Ruby, PHP) call the host of a Unix socket by the socket's
//! path, with its slashes escaped: `:authority: tmp%2Fdaemon.sock`. That is no name of a host, and the
//! HTTP/2 library resets the stream. Nobody here asks for the name, so each `%` of it becomes a `-` on
//! its way in: as many bytes as before, so nothing else changes.
//!
//! ```text
//!   preface ──► frame header ──► payload: skipped, or of HEADERS and CONTINUATION
//!                    ▲               │ header block: field ──► (name) ──► value
//!                    └───────────────┘
//! ```

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes before the first frame.
const PREFACE: u32 = 24;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The place of `:authority` in the table of names that every connection begins with.
const AUTHORITY: u32 = 1;
const AUTHORITY_NAME: &[u8] = b":authority";

/// A stream whose names of hosts are names.
#[derive(Debug)]
pub struct Named<S> {
    inner: S,
    reader: Reader,
}

impl<S> Named<S> {
    pub fn new(inner: S) -> Named<S> {
        Named {
            inner,
            reader: Reader::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Named<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let read = Pin::new(&mut this.inner).poll_read(cx, buffer);
        this.reader.pass(&mut buffer.filled_mut()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Named<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Where in the bytes of a connection the next one is.
#[derive(Debug)]
struct Reader {
    /// Bytes that are passed over before anything is looked at.
    skip: u32,
    /// The part of a frame's header that is there.
    head: [u8; 9],
    head_length: usize,
    /// Bytes of a header block that are still to come in this frame, and of what follows them.
    block: u32,
    padding: u32,
    /// The length of the padding is the next byte.
    padded: bool,
    /// What is passed over between that byte and the block.
    priority: u32,
    field: Field,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            skip: PREFACE,
            head: [0; 9],
            head_length: 0,
            block: 0,
            padding: 0,
            padded: false,
            priority: 0,
            field: Field::Begin,
        }
    }
}

impl Reader {
    fn pass(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = if self.skip > 0 {
                let taken = rest.len().min(self.skip as usize);
                self.skip -= taken as u32;
                taken
            } else if self.padded {
                self.padding = u32::from(rest[0]).min(self.block);
                self.block -= self.padding;
                self.padded = false;
                self.skip = self.priority;
                if self.block == 0 {
                    self.skip += self.padding;
                }
                1
            } else if self.block > 0 {
                let taken = rest.len().min(self.block as usize);
                for byte in &mut rest[..taken] {
                    self.field.next(byte);
                }
                self.block -= taken as u32;
                if self.block == 0 {
                    self.skip = self.padding;
                }
                taken
            } else {
                self.head[self.head_length] = rest[0];
                self.head_length += 1;
                if self.head_length == self.head.len() {
                    self.frame();
                }
                1
            };
            rest = &mut rest[taken..];
        }
    }

    /// The header of a frame is there: says what of its payload is looked at.
    fn frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.head_length = 0;
        self.padding = 0;
        self.priority = 0;
        if kind != HEADERS && kind != CONTINUATION {
            self.skip = length;
            return;
        }
        let is_headers = kind == HEADERS;
        self.padded = is_headers && flags & PADDED != 0 && length > 0;
        let left = length - u32::from(self.padded);
        if is_headers && flags & PRIORITY != 0 {
            self.priority = left.min(5);
        }
        self.block = left - self.priority;
        if !self.padded {
            self.skip = self.priority;
        }
    }
}

/// Where in a header block the next byte is (RFC 7541, section 6).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    /// A field begins.
    Begin,
    /// More of the number that began in its first byte: the name by its place, or a size.
    Index {
        value: u32,
        shift: u32,
        literal: bool,
    },
    /// The length of a string begins.
    Length {
        is: Is,
    },
    LengthMore {
        is: Is,
        value: u32,
        shift: u32,
        coded: bool,
    },
    Text {
        is: Is,
        left: u32,
        coded: bool,
    },
}

/// What a string is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// Of a field; its bytes so far are that many of `:authority`, or others.
    Name {
        fits: Option<usize>,
    },
    Authority,
    Value,
}

impl Field {
    fn next(&mut self, byte: &mut u8) {
        *self = match *self {
            Field::Begin => Field::begin(*byte),
            Field::Index {
                value,
                shift,
                literal,
            } => match number(value, shift, *byte) {
                (value, true) => Field::Index {
                    value,
                    shift: shift + 7,
                    literal,
                },
                (value, false) if literal => Field::named(value),
                (_, false) => Field::Begin,
            },
            Field::Length { is } => {
                let coded = *byte & 0x80 != 0;
                match u32::from(*byte & 0x7f) {
                    0x7f => Field::LengthMore {
                        is,
                        value: 0x7f,
                        shift: 0,
                        coded,
                    },
                    left => Field::text(is, left, coded),
                }
            }
            Field::LengthMore {
                is,
                value,
                shift,
                coded,
            } => match number(value, shift, *byte) {
                (value, true) => Field::LengthMore {
                    is,
                    value,
                    shift: shift + 7,
                    coded,
                },
                (left, false) => Field::text(is, left, coded),
            },
            Field::Text { is, left, coded } => {
                if is == Is::Authority && !coded && *byte == b'%' {
                    *byte = b'-';
                }
                Field::text(is.after(*byte, coded), left - 1, coded)
            }
        };
    }

    fn begin(byte: u8) -> Field {
        let (bits, literal) = match byte {
            0x80.. => (7, false),
            0x40..=0x7f => (6, true),
            0x20..=0x3f => (5, false),
            _ => (4, true),
        };
        let most = (1u32 << bits) - 1;
        let value = u32::from(byte) & most;
        match (value == most, literal) {
            (true, literal) => Field::Index {
                value,
                shift: 0,
                literal,
            },
            (false, true) => Field::named(value),
            (false, false) => Field::Begin,
        }
    }

    /// The place of a field's name is known; 0 says that the name itself comes.
    fn named(index: u32) -> Field {
        Field::Length {
            is: match index {
                0 => Is::Name { fits: Some(0) },
                AUTHORITY => Is::Authority,
                _ => Is::Value,
            },
        }
    }

    fn text(is: Is, left: u32, coded: bool) -> Field {
        match (left, is) {
            (0, Is::Name { fits }) if fits == Some(AUTHORITY_NAME.len()) => {
                Field::Length { is: Is::Authority }
            }
            (0, Is::Name { .. }) => Field::Length { is: Is::Value },
            (0, _) => Field::Begin,
            _ => Field::Text { is, left, coded },
        }
    }
}

impl Is {
    /// What a string is that has this byte, too. Coded names are not looked into.
    fn after(self, byte: u8, coded: bool) -> Is {
        let Is::Name { fits } = self else {
            return self;
        };
        let fits = fits.filter(|at| !coded && AUTHORITY_NAME.get(*at) == Some(&byte));
        Is::Name {
            fits: fits.map(|at| at + 1),
        }
    }
}

/// A number with seven more bits, and whether more of them come. One that is too large for the
/// library is refused there; here it only must not overflow.
fn number(value: u32, shift: u32, byte: u8) -> (u32, bool) {
    let more = u32::from(byte & 0x7f)
        .checked_shl(shift)
        .unwrap_or(u32::MAX);
    (value.saturating_add(more), byte & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// A block with the name of the host twice: by the number of `:authority` and, as the C core
    /// writes it, by its letters.
    fn block(authority: &str) -> Vec<u8> {
        let mut block = vec![0x83, 0x86, 0x44, 5];
        block.extend(b"/50%x");
        block.extend([0x41, authority.len() as u8]);
        block.extend(authority.as_bytes());
        for (name, value) in [
            (&b":authorities"[..], "a%b"),
            (&b":authority"[..], authority),
            (&b":author"[..], "a%b"),
        ] {
            block.extend([0x40, name.len() as u8]);
            block.extend(name);
            block.push(value.len() as u8);
            block.extend(value.as_bytes());
        }
        block.extend([0x40, 4]);
        block.extend(b"te%x");
        block.push(8);
        block.extend(b"trail%rs");
        block
    }

    /// Passes bytes in pieces of one length.
    fn passed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let mut reader = Reader::default();
        for piece in bytes.chunks_mut(piece) {
            reader.pass(piece);
        }
        bytes
    }

    fn connection(authority: &str) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, &[0, 2, 0, 0, 0, 0]));
        bytes.extend(frame(HEADERS, 4, &block(authority)));
        bytes.extend(frame(0, 0, b"A%2Fdata\x41\x03%%%"));
        // With padding and priority.
        let mut padded = vec![3, 0, 0, 0, 0, 7];
        padded.extend(block(authority));
        padded.extend([b'%'; 3]);
        bytes.extend(frame(HEADERS, 4 | PADDED | PRIORITY, &padded));
        // In two frames.
        let whole = block(authority);
        let (first, second) = whole.split_at(14);
        bytes.extend(frame(HEADERS, 0, first));
        bytes.extend(frame(CONTINUATION, 4, second));
        bytes
    }

    #[test]
    fn only_the_name_of_the_host_changes_however_it_is_cut() {
        for (escaped, plain) in [
            ("tmp%2Fa%2Fdaemon.sock", "tmp-2Fa-2Fdaemon.sock"),
            ("localhost", "localhost"),
        ] {
            let (given, wanted) = (connection(escaped), connection(plain));
            for piece in [1, 2, 3, 7, 64, 100_000] {
                assert_eq!(passed(&given, piece), wanted, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_long_name_has_a_long_length() {
        let name = "x%2F".repeat(60);
        let mut block = vec![0x41, 0x7f, (name.len() - 0x7f) as u8];
        assert!(block[2] < 0x80);
        block.extend(name.as_bytes());
        let mut bytes = vec![0; PREFACE as usize];
        bytes.extend(frame(HEADERS, 4, &block));
        let out = passed(&bytes, 5);
        assert!(!out.contains(&b'%') && out.len() == bytes.len());
    }

    #[test]
    fn whatever_comes_nothing_overflows() {
        let mut noise = vec![0; PREFACE as usize];
        let mut state = 7u32;
        for _ in 0..200_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            noise.push((state >> 24) as u8);
        }
        for kind in [HEADERS, CONTINUATION] {
            let mut bytes = vec![0; PREFACE as usize];
            bytes.extend(frame(kind, 0xff, &noise[..60_000]));
            bytes.extend(frame(kind, 0, &[0xff; 300]));
            assert_eq!(passed(&bytes, 11).len(), bytes.len());
        }
        assert_eq!(passed(&noise, 13).len(), noise.len());
    }
}
