//! Reads the HTTP/1 requests of one connection, so that they can be written anew.
//!
//! Nothing of a request is passed that was not understood: heads and the framing of bodies are
//! written from what was read. Strict where servers differ: what can be read in two ways (two
//! lengths, folded lines, bare line feeds, two hosts, a body of `GET`) is malformed.

mod head;

pub use head::{Framing, Head, Request};
pub(crate) use head::{authority, is_framing, written};

/// Longest head.
pub const HEAD: usize = 32 * 1024;
/// Longest chunk-size line, and most bytes of trailers.
const CHUNK: usize = 256;
const TRAILER: usize = 8 * 1024;

/// Not HTTP/1, or ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// What to do with the available bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for more.
    Need,
    /// A request begins, with a head of this length.
    Head { length: usize, head: Box<Head> },
    /// This many bytes are of the body and pass as they are.
    Body(usize),
    /// This many bytes are framing, in whose place this is written.
    Framing { length: usize, anew: String },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    Body(u64),
    Size,
    Chunk(u64),
    /// The line end after a chunk.
    End,
    /// Trailers, of which this many bytes were read.
    Trailer(usize),
    /// The last request of the connection is complete.
    Over,
}

/// The position in a stream of requests.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    at: At,
    /// No other request follows this one.
    last: bool,
}

impl Reader {
    /// Whether the last request is complete.
    pub fn is_between(&self) -> bool {
        matches!(self.at, At::Head | At::Over)
    }

    /// Parses the next step, whose bytes count as consumed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        if bytes.is_empty() {
            return Ok(Step::Need);
        }
        match self.at {
            At::Head => self.head(bytes),
            At::Body(left) => {
                let now = left.min(bytes.len() as u64);
                self.at = match left - now {
                    0 => self.done(),
                    left => At::Body(left),
                };
                Ok(Step::Body(now as usize))
            }
            At::Chunk(left) => {
                let now = left.min(bytes.len() as u64);
                self.at = match left - now {
                    0 => At::End,
                    left => At::Chunk(left),
                };
                Ok(Step::Body(now as usize))
            }
            At::End => match bytes {
                [b'\r', b'\n', ..] => {
                    self.at = At::Size;
                    Ok(framing(2, "\r\n"))
                }
                [b'\r'] => Ok(Step::Need),
                _ => Err(Malformed),
            },
            At::Size => self.size(bytes),
            At::Trailer(read) => self.trailer(bytes, read),
            // The host closes, and reads none of it.
            At::Over => Ok(framing(bytes.len(), "")),
        }
    }

    /// Where a complete request leads.
    fn done(&self) -> At {
        if self.last { At::Over } else { At::Head }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        let window = &bytes[..bytes.len().min(HEAD)];
        let Some(end) = window.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() >= HEAD {
                Err(Malformed)
            } else {
                Ok(Step::Need)
            };
        };
        let text = str::from_utf8(&bytes[..end]).map_err(|_| Malformed)?;
        let head = Head::read(text)?;
        self.last = head.last;
        self.at = match head.framing {
            Framing::None | Framing::Length(0) => self.done(),
            Framing::Length(length) => At::Body(length),
            Framing::Chunked => At::Size,
        };
        Ok(Step::Head {
            length: end + 4,
            head: Box::new(head),
        })
    }

    /// A chunk's size. Extensions are left out: nobody needs them, and servers differ in them.
    fn size(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        let Some(line) = line(bytes, CHUNK)? else {
            return Ok(Step::Need);
        };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(Malformed);
        }
        let text = str::from_utf8(digits).map_err(|_| Malformed)?;
        let size = u64::from_str_radix(text, 16).map_err(|_| Malformed)?;
        self.at = if size == 0 {
            At::Trailer(0)
        } else {
            At::Chunk(size)
        };
        Ok(framing(line.len() + 2, &format!("{size:x}\r\n")))
    }

    /// A line after the last chunk. Trailers are left out: some servers take them for headers.
    fn trailer(&mut self, bytes: &[u8], read: usize) -> Result<Step, Malformed> {
        let Some(line) = line(bytes, TRAILER)? else {
            return Ok(Step::Need);
        };
        let length = line.len() + 2;
        if line.is_empty() {
            self.at = self.done();
            return Ok(framing(length, "\r\n"));
        }
        head::field(str::from_utf8(line).map_err(|_| Malformed)?)?;
        if read + length > TRAILER {
            return Err(Malformed);
        }
        self.at = At::Trailer(read + length);
        Ok(framing(length, ""))
    }
}

fn framing(length: usize, anew: &str) -> Step {
    Step::Framing {
        length,
        anew: anew.to_owned(),
    }
}

/// The first line, without its end.
fn line(bytes: &[u8], most: usize) -> Result<Option<&[u8]>, Malformed> {
    let end = bytes.windows(2).take(most).position(|two| two == b"\r\n");
    let line = match end {
        Some(end) => &bytes[..end],
        None if bytes.len() > most => return Err(Malformed),
        None => bytes.strip_suffix(b"\r").unwrap_or(bytes),
    };
    let plain = line.iter().all(|byte| *byte == b'\t' || *byte >= b' ');
    if plain {
        Ok(end.map(|_| line))
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests;
