//! Rewrites HTTP/1 requests as they pass: each is judged, and written anew from what was understood.
//!
//! Bodies are streamed, unless a secret may be in them or they are part of a signature: those are
//! buffered first, up to [`BODY`] bytes.

use crate::http::{Framing, Head, Reader, Request, Step};
use crate::place::{Gate, Out, Place, Refusal};
use crate::sigv4::{self, Signed};
use crate::swap::{Swap, Writing};
use zeroize::Zeroizing;

/// Largest buffered body.
pub const BODY: usize = 1 << 20;
/// Largest head and body after secrets were inserted.
pub(crate) const HEAD_OUT: usize = 256 * 1024;
const BODY_OUT: usize = 4 * BODY;

/// A stream of requests.
#[derive(Debug, Default)]
pub struct Rewriter {
    reader: Reader,
    /// Unparsed bytes: less than a head, or than a line.
    held: Vec<u8>,
    waiting: Option<Waiting>,
}

/// A request whose body is being buffered.
#[derive(Debug)]
struct Waiting {
    head: Head,
    body: Zeroizing<Vec<u8>>,
}

impl Rewriter {
    /// Takes bytes of the sandbox, and writes what is allowed to `out`. Without a place, as on a
    /// connection that is not encrypted, no secret is inserted and the gate alone decides.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        place: Option<&Place>,
        gate: &mut dyn Gate,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        loop {
            match self.reader.step(rest).map_err(|_| Refusal::Malformed)? {
                Step::Need => break,
                Step::Body(count) => {
                    let (part, later) = rest.split_at(count);
                    rest = later;
                    self.pass(part, out)?;
                }
                Step::Framing { length, anew } => {
                    rest = &rest[length..];
                    // A buffered body is sent with a length of its own.
                    if self.waiting.is_none() {
                        out.forward.extend_from_slice(anew.as_bytes());
                    }
                }
                Step::Head { length, head } => {
                    rest = &rest[length..];
                    self.begin(*head, place, gate, out)?;
                }
            }
            if let Some(place) = place
                && self.reader.is_between()
                && let Some(waiting) = self.waiting.take()
            {
                finish(waiting.head, Some(waiting.body), place, gate, out)?;
            }
        }
        self.held = rest.to_vec();
        Ok(())
    }

    /// Whether everything has been passed on and the next bytes begin a request.
    pub fn is_even(&self) -> bool {
        self.held.is_empty() && self.waiting.is_none() && self.reader.is_between()
    }

    fn pass(&mut self, part: &[u8], out: &mut Out) -> Result<(), Refusal> {
        let Some(waiting) = &mut self.waiting else {
            out.forward.extend_from_slice(part);
            return Ok(());
        };
        if waiting.body.len() + part.len() > BODY {
            return Err(Refusal::TooLarge);
        }
        waiting.body.extend_from_slice(part);
        Ok(())
    }

    fn begin(
        &mut self,
        mut head: Head,
        place: Option<&Place>,
        gate: &mut dyn Gate,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let Some(place) = place else {
            if !gate.ask(&head.request, &[]) {
                return Err(Refusal::NotAllowed);
            }
            head.write(&mut out.forward);
            return Ok(());
        };
        may_carry(&head, place)?;
        let has_body = !self.reader.is_between();
        if !has_body || !collects(&head.request, place)? {
            return finish(head, None, place, gate, out);
        }
        if let Framing::Length(length) = head.framing
            && length > BODY as u64
        {
            return Err(Refusal::TooLarge);
        }
        if head.forget("expect") {
            // Answer `100 Continue` here: the host is contacted only after the body has been
            // buffered.
            out.back.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.waiting = Some(Waiting {
            head,
            body: Zeroizing::new(Vec::new()),
        });
        Ok(())
    }
}

/// Whether a request is one that secrets may be put into.
fn may_carry(head: &Head, place: &Place) -> Result<(), Refusal> {
    let request = &head.request;
    if head.absolute {
        return Err(Refusal::Malformed);
    }
    if !place.is(request.host.as_deref(), request.port) {
        return Err(Refusal::NameMismatch);
    }
    if request.upgrades() {
        return Err(Refusal::Upgrade);
    }
    if request.is_echoed() {
        return Err(Refusal::Echo);
    }
    Ok(())
}

/// Whether the body must be buffered before the request can be sent.
fn collects(request: &Request, place: &Place) -> Result<bool, Refusal> {
    let coded = request
        .headers
        .iter()
        .any(|(name, _)| name == "content-encoding");
    let swapped = !coded && place.secrets.iter().any(|secret| secret.body);
    let signed = sigv4::read(request, place)?;
    Ok(swapped || signed.is_some_and(|signed| signed.needs_body()))
}

/// Inserts secrets into a request and sends it.
fn finish(
    mut head: Head,
    body: Option<Zeroizing<Vec<u8>>>,
    place: &Place,
    gate: &mut dyn Gate,
    out: &mut Out,
) -> Result<(), Refusal> {
    let signed = sigv4::read(&head.request, place)?;
    let mut swap = Swap::new(&place.secrets);
    if let Some(target) = swap.target(head.target.as_bytes(), HEAD_OUT)? {
        head.target = text(&target)?;
    }
    for (_, value) in &mut head.fields {
        if let Some(swapped) = swap.header(value.as_bytes(), HEAD_OUT)? {
            *value = text(&swapped)?;
        }
    }
    let coded = head.value("content-encoding").is_some();
    let body = match body {
        Some(body) if !coded => {
            swap.bodies = true;
            let writing = writing(head.value("content-type").unwrap_or_default());
            Some(swap.bytes(&body, writing, BODY_OUT)?.unwrap_or(body))
        }
        body => body,
    };
    if let Some(body) = &body {
        head.framing = Framing::Length(body.len() as u64);
    }
    let mut used = std::mem::take(&mut swap.used);
    if let Some(signed) = signed {
        used.push(sign(&signed, &mut head, body.as_deref(), place)?);
    }
    if !gate.ask(&head.request, &used) {
        return Err(Refusal::NotAllowed);
    }
    let before = out.forward.len();
    head.write(&mut out.forward);
    if out.forward.len() - before > HEAD_OUT {
        return Err(Refusal::TooLarge);
    }
    if let Some(body) = body {
        out.forward.extend_from_slice(&body);
    }
    Ok(())
}

/// Signs a request again; returns the name of the secret it was signed with.
fn sign(
    signed: &Signed,
    head: &mut Head,
    body: Option<&Vec<u8>>,
    place: &Place,
) -> Result<String, Refusal> {
    let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
    let after = Request {
        query: head
            .target
            .split_once('?')
            .map_or("", |(_, query)| query)
            .to_owned(),
        headers: head.sent().into_iter().map(lower).collect(),
        ..head.request.clone()
    };
    let empty = Vec::new();
    let body = body.unwrap_or(&empty);
    let (name, authorization) = signed.again(&head.request, &after, body, place)?;
    for (header, value) in &mut head.fields {
        if header.eq_ignore_ascii_case("authorization") {
            value.clone_from(&authorization);
        }
    }
    Ok(name)
}

/// How values are encoded in a body of this type.
fn writing(kind: &str) -> Writing {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        Writing::Percent
    } else if kind.ends_with("/json") || kind.ends_with("+json") {
        Writing::Json
    } else {
        Writing::Plain
    }
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Refusal::Malformed)
}

/// The response to a refused request.
pub fn answer(refusal: Refusal) -> Vec<u8> {
    let text = format!("motu: {refusal}\n");
    let length = text.len();
    format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;
