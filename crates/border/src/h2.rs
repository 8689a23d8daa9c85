//! Rewrites HTTP/2 requests as they pass.
//!
//! Only header blocks are changed: they are decoded, judged and encoded again. All other frames
//! pass unchanged, so flow control and settings stay between the two ends. Bodies are not
//! inspected; where that is needed, HTTP/1.1 is negotiated.

use crate::h1::HEAD_OUT;
use crate::hpack::{self, Decoder, Header};
use crate::http::Request;
use crate::place::{Gate, Out, Place, Refusal};
use crate::swap::Swap;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME: usize = 9;
/// Largest encoded header block.
const BLOCK: usize = 64 * 1024;
/// The frame size that every receiver accepts.
const PART: usize = 16 * 1024;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A stream of frames.
#[derive(Debug, Default)]
pub struct Rewriter {
    /// How much of the connection preface has passed.
    preface: usize,
    held: Vec<u8>,
    /// Bytes left of a frame that passes unchanged.
    pass: usize,
    block: Option<Block>,
    decoder: Decoder,
}

/// An incomplete header block.
#[derive(Debug)]
struct Block {
    stream: [u8; 4],
    /// The flags of its first frame (`END_STREAM`, `PRIORITY`).
    flags: u8,
    priority: Vec<u8>,
    bytes: Vec<u8>,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Frame {
    fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<FRAME>()?;
        Some(Self {
            length: u32::from_be_bytes([0, *a, *b, *c]) as usize,
            kind: *kind,
            flags: *flags,
            stream: *stream,
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.length as u32).to_be_bytes()[1..]);
        out.extend([self.kind, self.flags]);
        out.extend(self.stream);
    }
}

impl Rewriter {
    /// Takes bytes of the sandbox, and writes the rewritten ones to `out`.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        place: &Place,
        gate: &mut dyn Gate,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        if self.preface < PREFACE.len() {
            let wanted = &PREFACE[self.preface..];
            let count = wanted.len().min(rest.len());
            if rest[..count] != wanted[..count] {
                return Err(Refusal::Malformed);
            }
            out.forward.extend_from_slice(&rest[..count]);
            self.preface += count;
            rest = &rest[count..];
        }
        while let Some(later) = self.step(rest, place, gate, out)? {
            rest = later;
        }
        self.held = rest.to_vec();
        Ok(())
    }

    /// Whether everything has been passed on.
    pub fn is_even(&self) -> bool {
        self.held.is_empty() && self.pass == 0 && self.block.is_none()
    }

    /// Handles one frame, or part of one that passes unchanged; returns the remaining bytes.
    fn step<'a>(
        &mut self,
        bytes: &'a [u8],
        place: &Place,
        gate: &mut dyn Gate,
        out: &mut Out,
    ) -> Result<Option<&'a [u8]>, Refusal> {
        if self.pass > 0 {
            let (part, rest) = bytes.split_at(self.pass.min(bytes.len()));
            out.forward.extend_from_slice(part);
            self.pass -= part.len();
            return Ok((!part.is_empty()).then_some(rest));
        }
        let Some(frame) = Frame::read(bytes) else {
            return Ok(None);
        };
        let rest = &bytes[FRAME..];
        match (frame.kind, &self.block) {
            (HEADERS, None) | (CONTINUATION, Some(_)) => {
                if frame.length > BLOCK {
                    return Err(Refusal::TooLarge);
                }
                let Some((payload, rest)) = rest.split_at_checked(frame.length) else {
                    return Ok(None);
                };
                self.part(frame, payload)?;
                if frame.flags & END_HEADERS != 0
                    && let Some(block) = self.block.take()
                {
                    self.finish(&block, place, gate, out)?;
                }
                Ok(Some(rest))
            }
            // No frame may interrupt a header block, and clients send no PUSH_PROMISE.
            (_, Some(_)) | (CONTINUATION | PUSH_PROMISE, None) => Err(Refusal::Malformed),
            _ => {
                frame.write(&mut out.forward);
                self.pass = frame.length;
                Ok(Some(rest))
            }
        }
    }

    /// Adds a frame's fragment to its header block.
    fn part(&mut self, frame: Frame, payload: &[u8]) -> Result<(), Refusal> {
        if let Some(block) = &mut self.block {
            if block.stream != frame.stream {
                return Err(Refusal::Malformed);
            }
            if block.bytes.len() + payload.len() > BLOCK {
                return Err(Refusal::TooLarge);
            }
            block.bytes.extend_from_slice(payload);
            return Ok(());
        }
        let mut payload = payload;
        if frame.flags & PADDED != 0 {
            let (padding, rest) = payload.split_first().ok_or(Refusal::Malformed)?;
            let kept = rest.len().checked_sub(usize::from(*padding));
            payload = &rest[..kept.ok_or(Refusal::Malformed)?];
        }
        let mut priority = Vec::new();
        if frame.flags & PRIORITY != 0 {
            let (own, rest) = payload.split_at_checked(5).ok_or(Refusal::Malformed)?;
            priority = own.to_vec();
            payload = rest;
        }
        self.block = Some(Block {
            stream: frame.stream,
            flags: frame.flags,
            priority,
            bytes: payload.to_vec(),
        });
        Ok(())
    }

    fn finish(
        &mut self,
        block: &Block,
        place: &Place,
        gate: &mut dyn Gate,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let read = self.decoder.decode(&block.bytes);
        let mut read = read.map_err(|_| Refusal::Malformed)?;
        let trailers = !read.headers.iter().any(|one| one.name.starts_with(b":"));
        if trailers {
            for header in &read.headers {
                field(header)?;
            }
        } else {
            let request = request(&read.headers, place)?;
            let mut swap = Swap::new(&place.secrets);
            rewrite(&mut read.headers, &mut swap)?;
            if !gate.ask(&request, &swap.used) {
                return Err(Refusal::NotAllowed);
            }
        }
        block.write(&hpack::encode(&read.sizes, &read.headers), &mut out.forward);
        Ok(())
    }
}

impl Block {
    /// Writes an encoded block as HEADERS and CONTINUATION frames.
    fn write(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let first = bytes.len().min(PART - self.priority.len());
        let (now, mut rest) = bytes.split_at(first);
        let kept = self.flags & (END_STREAM | PRIORITY);
        let ends = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
        let frame = |kind, flags, length| Frame {
            length,
            kind,
            flags,
            stream: self.stream,
        };
        frame(HEADERS, kept | ends(rest), self.priority.len() + now.len()).write(out);
        out.extend_from_slice(&self.priority);
        out.extend_from_slice(now);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PART));
            rest = later;
            frame(CONTINUATION, ends(rest), now.len()).write(out);
            out.extend_from_slice(now);
        }
    }
}

/// Inserts secrets into the query of the path and into headers.
fn rewrite(headers: &mut [Header], swap: &mut Swap<'_>) -> Result<(), Refusal> {
    let mut total = 0;
    for header in headers {
        let most = HEAD_OUT - total;
        let swapped = match header.name.as_slice() {
            b":path" => swap.target(&header.value, most)?,
            name if name.starts_with(b":") => None,
            _ => swap.header(&header.value, most)?,
        };
        if let Some(value) = swapped {
            header.value = value.to_vec();
            header.never = true;
        }
        total += header.name.len() + header.value.len();
        if total > HEAD_OUT {
            return Err(Refusal::TooLarge);
        }
    }
    Ok(())
}

/// Converts a header list to a request; strict where servers differ.
fn request(headers: &[Header], place: &Place) -> Result<Request, Refusal> {
    let mut request = Request::default();
    let (mut method, mut path, mut authority, mut scheme) = (None, None, None, None);
    let mut ordinary = false;
    for header in headers {
        let value = str::from_utf8(&header.value).map_err(|_| Refusal::Malformed)?;
        let place = match header.name.as_slice() {
            b":method" => &mut method,
            b":path" => &mut path,
            b":authority" => &mut authority,
            b":scheme" => &mut scheme,
            b":protocol" => return Err(Refusal::Upgrade),
            name if name.starts_with(b":") => return Err(Refusal::Malformed),
            _ => {
                ordinary = true;
                let (name, value) = field(header)?;
                request.headers.push((name.to_owned(), value.to_owned()));
                continue;
            }
        };
        let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        if ordinary || !plain || place.replace(value).is_some() {
            return Err(Refusal::Malformed);
        }
    }
    let (Some(method), Some(path), Some("https")) = (method, path, scheme) else {
        return Err(Refusal::Malformed);
    };
    let hosts = request.headers.iter().filter(|(name, _)| name == "host");
    let mut named = hosts
        .map(|(_, value)| value.as_str())
        .chain(authority)
        .peekable();
    if named.peek().is_none() || !named.all(|text| place.is_named(text)) {
        return Err(Refusal::NameMismatch);
    }
    if !path.starts_with('/') && path != "*" || path.contains('#') {
        return Err(Refusal::Malformed);
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    request.method = method.to_owned();
    request.host = Some(place.name.clone());
    request.path = path.to_owned();
    request.query = query.to_owned();
    if request.upgrades() {
        return Err(Refusal::Upgrade);
    }
    Ok(request)
}

/// A regular header, if HTTP/2 allows it.
fn field(header: &Header) -> Result<(&str, &str), Refusal> {
    let name = str::from_utf8(&header.name).map_err(|_| Refusal::Malformed)?;
    let value = str::from_utf8(&header.value).map_err(|_| Refusal::Malformed)?;
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    let connection = matches!(
        name,
        "connection" | "transfer-encoding" | "keep-alive" | "proxy-connection"
    );
    let clean = value
        .bytes()
        .all(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f);
    if name.is_empty() || !name.bytes().all(plain) || connection || !clean {
        return Err(Refusal::Malformed);
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests;
