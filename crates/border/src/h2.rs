//! Rewrites HTTP/2 requests as they pass.
//!
//! Header blocks are decoded, judged and written anew; frames that this does not know are left out.
//! Other frames pass, so flow control and settings stay between the two ends. Bodies are measured
//! and not inspected; where that is needed, HTTP/1.1 is negotiated.

use crate::h1::HEAD_OUT;
use crate::hpack::{self, Decoder, Header};
use crate::http::{self, Request};
use crate::place::{Gate, Out, Place, Refusal};
use crate::swap::Swap;
use std::collections::BTreeMap;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME: usize = 9;
/// Largest encoded header block.
const BLOCK: usize = 64 * 1024;
/// The frame size that every receiver accepts.
const PART: usize = 16 * 1024;

/// Requests whose bodies may be on their way. Of more, the oldest is forgotten: the host has ended
/// it long ago.
const STREAMS: usize = 4096;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
/// Frames of a client that pass as they are: PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY,
/// WINDOW_UPDATE, PRIORITY_UPDATE.
const PASSING: [u8; 7] = [2, RST_STREAM, 4, 6, 7, 8, 16];
const PUSH_PROMISE: u8 = 5;

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
    /// Bytes left of a frame that passes unchanged, or is left out.
    pass: usize,
    drops: bool,
    block: Option<Block>,
    decoder: Decoder,
    /// Requests that have not ended, and how much of their bodies is missing, if they said.
    streams: BTreeMap<u32, Option<u64>>,
    /// The last request's stream.
    newest: u32,
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
            stream: [stream[0] & 0x7f, stream[1], stream[2], stream[3]],
        })
    }

    /// The number of its stream. The highest bit is reserved, and not sent on.
    fn number(self) -> u32 {
        u32::from_be_bytes(self.stream)
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
            if !self.drops {
                out.forward.extend_from_slice(part);
            }
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
            (DATA, None) => {
                let padded = frame.flags & PADDED != 0 && frame.length > 0;
                if padded && rest.is_empty() {
                    return Ok(None);
                }
                let padding = rest.first().filter(|_| padded);
                self.measure(frame, padding.map_or(0, |own| 1 + usize::from(*own)))?;
                self.let_pass(frame, out);
                Ok(Some(rest))
            }
            (kind, None) if PASSING.contains(&kind) => {
                if kind == RST_STREAM {
                    self.streams.remove(&frame.number());
                }
                self.let_pass(frame, out);
                Ok(Some(rest))
            }
            // A receiver has to ignore what it does not know; this is not left to it.
            _ => {
                (self.pass, self.drops) = (frame.length, true);
                Ok(Some(rest))
            }
        }
    }

    fn let_pass(&mut self, frame: Frame, out: &mut Out) {
        frame.write(&mut out.forward);
        (self.pass, self.drops) = (frame.length, false);
    }

    /// Counts a part of a body: it must be of an open request, and no longer than that said.
    fn measure(&mut self, frame: Frame, padding: usize) -> Result<(), Refusal> {
        let length = frame.length.checked_sub(padding);
        let length = length.ok_or(Refusal::Malformed)? as u64;
        let left = self.streams.get_mut(&frame.number());
        let left = left.ok_or(Refusal::Malformed)?;
        if let Some(left) = left {
            *left = left.checked_sub(length).ok_or(Refusal::Malformed)?;
        }
        if frame.flags & END_STREAM != 0 {
            self.end(frame.number())?;
        }
        Ok(())
    }

    /// A request's body has ended.
    fn end(&mut self, stream: u32) -> Result<(), Refusal> {
        match self.streams.remove(&stream) {
            Some(None | Some(0)) => Ok(()),
            _ => Err(Refusal::Malformed),
        }
    }

    /// A request begins on this stream.
    fn open(&mut self, block: &Block, length: Option<u64>) -> Result<(), Refusal> {
        let stream = u32::from_be_bytes(block.stream);
        if stream.is_multiple_of(2) || stream <= self.newest {
            return Err(Refusal::Malformed);
        }
        self.newest = stream;
        self.streams.insert(stream, length);
        if block.flags & END_STREAM != 0 {
            return self.end(stream);
        }
        if self.streams.len() > STREAMS {
            self.streams.pop_first();
        }
        Ok(())
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
            if block.flags & END_STREAM == 0 {
                return Err(Refusal::Malformed);
            }
            self.end(u32::from_be_bytes(block.stream))?;
            for header in &read.headers {
                let (name, _) = field(header)?;
                if http::is_framing(name) {
                    return Err(Refusal::Malformed);
                }
            }
        } else {
            let request = request(&read.headers, place)?;
            self.open(block, length(&request)?)?;
            let mut swap = Swap::new(&place.secrets);
            name_host(&mut read.headers, &request);
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
    let hosts = request.all("host");
    let mut named = hosts.into_iter().chain(authority).peekable();
    let mut port = None;
    let mut mine = |text: &str| {
        let (host, given) = http::authority(text).ok()?;
        port = port.or(given);
        place.is(Some(&host), given).then_some(())
    };
    if named.peek().is_none() || !named.all(|text| mine(text).is_some()) {
        return Err(Refusal::NameMismatch);
    }
    let local = path.starts_with('/') || (path == "*" && method == "OPTIONS");
    if !local || path.contains('#') {
        return Err(Refusal::Malformed);
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    request.method = method.to_owned();
    request.host = Some(place.name.clone());
    request.port = port;
    request.path = path.to_owned();
    request.query = query.to_owned();
    if request.upgrades() {
        return Err(Refusal::Upgrade);
    }
    if request.is_echoed() {
        return Err(Refusal::Echo);
    }
    Ok(request)
}

/// How long the body of a request is, if that is known.
fn length(request: &Request) -> Result<Option<u64>, Refusal> {
    let said = match request.all("content-length").as_slice() {
        [] => None,
        [text] if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(text.parse().map_err(|_| Refusal::Malformed)?)
        }
        _ => return Err(Refusal::Malformed),
    };
    // As in HTTP/1: these have none.
    match (request.method.as_str(), said) {
        ("GET" | "HEAD", None | Some(0)) => Ok(Some(0)),
        ("GET" | "HEAD", Some(_)) => Err(Refusal::Malformed),
        (_, said) => Ok(said),
    }
}

/// Names the host once, in its one form.
fn name_host(headers: &mut Vec<Header>, request: &Request) {
    headers.retain(|one| one.name != b"host" && one.name != b":authority");
    let host = request.host.as_deref().unwrap_or_default();
    let pseudo = headers.iter().filter(|one| one.name.starts_with(b":"));
    let authority = Header {
        name: b":authority".to_vec(),
        value: http::written(host, request.port).into_bytes(),
        never: false,
    };
    // Behind the method and the scheme, where most clients have it.
    let place = pseudo.count().min(2);
    headers.insert(place, authority);
}

/// A regular header, if HTTP/2 allows it.
fn field(header: &Header) -> Result<(&str, &str), Refusal> {
    let name = str::from_utf8(&header.name).map_err(|_| Refusal::Malformed)?;
    let value = str::from_utf8(&header.value).map_err(|_| Refusal::Malformed)?;
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    // What HTTP/2 says by other means, in any spelling; `te` may say that trailers are understood.
    let fine = match name {
        "host" | "content-length" | "upgrade" => true,
        "te" => value == "trailers",
        "expect" => value.eq_ignore_ascii_case("100-continue"),
        name => !http::is_framing(name),
    };
    let clean = value
        .bytes()
        .all(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f);
    if name.is_empty() || !name.bytes().all(plain) || !fine || !clean {
        return Err(Refusal::Malformed);
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests;
