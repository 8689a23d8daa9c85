//! Rewrites HTTP/1.1 requests as they pass.
//!
//! Bodies are streamed, unless a secret may be in them or they are part of a signature: those are
//! buffered first, up to [`BODY`] bytes.

use crate::http::{Reader, Request, Step};
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
    request: Request,
    head: Head,
    body: Zeroizing<Vec<u8>>,
}

/// A head as it was written, so that unchanged parts stay as they were.
#[derive(Debug)]
struct Head {
    method: String,
    target: String,
    version: String,
    headers: Vec<(String, String)>,
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
        loop {
            let payload = self.reader.in_body();
            match self.reader.step(rest).map_err(|_| Refusal::Malformed)? {
                Step::Need => break,
                Step::Pass(count) => {
                    let (part, later) = rest.split_at(count);
                    rest = later;
                    self.pass(part, payload, out)?;
                    if self.reader.at_head()
                        && let Some(waiting) = self.waiting.take()
                    {
                        let body = Some(waiting.body);
                        finish(&waiting.request, waiting.head, body, place, gate, out)?;
                    }
                }
                Step::Head { length, request } => {
                    let (head, later) = rest.split_at(length);
                    rest = later;
                    self.begin(request, Head::read(head)?, place, gate, out)?;
                }
            }
        }
        self.held = rest.to_vec();
        Ok(())
    }

    /// Whether everything has been passed on and the next bytes begin a request.
    pub fn is_even(&self) -> bool {
        self.held.is_empty() && self.waiting.is_none() && self.reader.at_head()
    }

    fn pass(&mut self, part: &[u8], payload: bool, out: &mut Out) -> Result<(), Refusal> {
        match &mut self.waiting {
            None => out.forward.extend_from_slice(part),
            Some(waiting) if payload => {
                if waiting.body.len() + part.len() > BODY {
                    return Err(Refusal::TooLarge);
                }
                waiting.body.extend_from_slice(part);
            }
            // The chunk framing is dropped: the body is sent with a new length.
            Some(_) => {}
        }
        Ok(())
    }

    fn begin(
        &mut self,
        request: Request,
        mut head: Head,
        place: &Place,
        gate: &mut dyn Gate,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let local = head.target.starts_with('/') || head.target == "*";
        if !local {
            return Err(Refusal::Malformed);
        }
        let host = request.headers.iter().find(|(name, _)| name == "host");
        if !host.is_some_and(|(_, host)| place.is_named(host)) {
            return Err(Refusal::NameMismatch);
        }
        if request.upgrades() {
            return Err(Refusal::Upgrade);
        }
        let has_body = !self.reader.at_head();
        if !has_body || !collects(&request, place)? {
            return finish(&request, head, None, place, gate, out);
        }
        let length = head
            .value("content-length")
            .and_then(|text| text.parse().ok());
        if length.unwrap_or(0) > BODY as u64 {
            return Err(Refusal::TooLarge);
        }
        if head.value("expect").is_some() {
            // Answer `100 Continue` here: the host is contacted only after the body has been
            // buffered.
            head.drop("expect");
            out.back.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.waiting = Some(Waiting {
            request,
            head,
            body: Zeroizing::new(Vec::new()),
        });
        Ok(())
    }
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
    request: &Request,
    mut head: Head,
    body: Option<Zeroizing<Vec<u8>>>,
    place: &Place,
    gate: &mut dyn Gate,
    out: &mut Out,
) -> Result<(), Refusal> {
    let signed = sigv4::read(request, place)?;
    let mut swap = Swap::new(&place.secrets);
    if let Some(target) = swap.target(head.target.as_bytes(), HEAD_OUT)? {
        head.target = text(&target)?;
    }
    for (_, value) in &mut head.headers {
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
    let mut used = std::mem::take(&mut swap.used);
    if let Some(signed) = signed {
        used.push(sign(&signed, request, &mut head, body.as_deref(), place)?);
    }
    if !gate.ask(request, &used) {
        return Err(Refusal::NotAllowed);
    }
    if let Some(body) = &body {
        for name in ["content-length", "transfer-encoding", "trailer", "te"] {
            head.drop(name);
        }
        let length = body.len().to_string();
        head.headers.push(("Content-Length".to_owned(), length));
    }
    head.write(&mut out.forward)?;
    if let Some(body) = body {
        out.forward.extend_from_slice(&body);
    }
    Ok(())
}

/// Signs a request again; returns the name of the secret it was signed with.
fn sign(
    signed: &Signed,
    request: &Request,
    head: &mut Head,
    body: Option<&Vec<u8>>,
    place: &Place,
) -> Result<String, Refusal> {
    let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
    let after = Request {
        query: head
            .target
            .split_once('?')
            .map_or("", |(_, query)| query)
            .to_owned(),
        headers: head.headers.iter().map(lower).collect(),
        ..request.clone()
    };
    let empty = Vec::new();
    let body = body.unwrap_or(&empty);
    let (name, authorization) = signed.again(request, &after, body, place)?;
    for (header, value) in &mut head.headers {
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

impl Head {
    /// Parses a head that the reader has delimited.
    fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let text = str::from_utf8(bytes).map_err(|_| Refusal::Malformed)?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut word = || words.next().map(str::to_owned).ok_or(Refusal::Malformed);
        let (method, target, version) = (word()?, word()?, word()?);
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
            headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
        Ok(Self {
            method,
            target,
            version,
            headers,
        })
    }

    fn value(&self, name: &str) -> Option<&str> {
        let mut mine = self.headers.iter();
        mine.find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn drop(&mut self, name: &str) {
        self.headers
            .retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let before = out.len();
        let Self {
            method,
            target,
            version,
            ..
        } = self;
        out.extend_from_slice(format!("{method} {target} {version}\r\n").as_bytes());
        for (name, value) in &self.headers {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if out.len() - before > HEAD_OUT {
            return Err(Refusal::TooLarge);
        }
        Ok(())
    }
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
