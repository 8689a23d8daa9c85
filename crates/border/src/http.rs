//! Parses the HTTP/1 requests on one connection.
//!
//! Strict where servers differ: ambiguous requests (two lengths, folded lines, bare line feeds, two
//! hosts) are malformed, because servers could interpret them differently.

/// A parsed request head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The host it is for, without its port.
    pub host: Option<String>,
    pub path: String,
    pub query: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// Whether it asks to change the protocol of the connection.
    pub fn upgrades(&self) -> bool {
        self.method.eq_ignore_ascii_case("CONNECT")
            || self.headers.iter().any(|(name, _)| name == "upgrade")
    }
}

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
    /// This many bytes belong to an allowed request.
    Pass(usize),
    /// A request begins, with a head of this length.
    Head { length: usize, request: Request },
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
    Trailer,
}

/// The position in a stream of requests.
#[derive(Debug, Clone, Default)]
pub struct Reader(At);

impl Reader {
    /// Whether the next bytes are body data, not a head or framing.
    pub fn in_body(&self) -> bool {
        matches!(self.0, At::Body(_) | At::Chunk(_))
    }

    /// Whether the last request is complete.
    pub fn at_head(&self) -> bool {
        self.0 == At::Head
    }

    /// Parses the next step; the bytes of `Pass` and `Head` count as consumed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        if bytes.is_empty() {
            return Ok(Step::Need);
        }
        match self.0 {
            At::Head => self.head(bytes),
            At::Body(left) => {
                let now = left.min(bytes.len() as u64);
                self.0 = if now == left {
                    At::Head
                } else {
                    At::Body(left - now)
                };
                Ok(Step::Pass(now as usize))
            }
            At::Chunk(left) => {
                let now = left.min(bytes.len() as u64);
                self.0 = if now == left {
                    At::End
                } else {
                    At::Chunk(left - now)
                };
                Ok(Step::Pass(now as usize))
            }
            At::End => match bytes {
                [b'\r', b'\n', ..] => {
                    self.0 = At::Size;
                    Ok(Step::Pass(2))
                }
                [b'\r'] => Ok(Step::Need),
                _ => Err(Malformed),
            },
            At::Size => self.size(bytes),
            At::Trailer => self.trailer(bytes),
        }
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
        let mut lines = text.split("\r\n");
        let mut request = first_line(lines.next().unwrap_or_default())?;
        for line in lines {
            let header = header(line)?;
            request.headers.push(header);
        }
        self.0 = body(&request)?;
        let named = host(&request)?;
        request.host = match request.host.take() {
            // The request target is absolute: its host must equal the Host header.
            Some(target) if named.as_ref().is_some_and(|named| *named != target) => {
                return Err(Malformed);
            }
            Some(target) => Some(target),
            None => named,
        };
        Ok(Step::Head {
            length: end + 4,
            request,
        })
    }

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
        self.0 = if size == 0 {
            At::Trailer
        } else {
            At::Chunk(size)
        };
        Ok(Step::Pass(line.len() + 2))
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        let Some(line) = line(bytes, TRAILER)? else {
            return Ok(Step::Need);
        };
        if line.is_empty() {
            self.0 = At::Head;
        } else {
            header(str::from_utf8(line).map_err(|_| Malformed)?)?;
        }
        Ok(Step::Pass(line.len() + 2))
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

fn first_line(line: &str) -> Result<Request, Malformed> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Malformed);
    };
    let known = matches!(version, "HTTP/1.0" | "HTTP/1.1");
    if !known || !is_token(method) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Malformed);
    }
    let (host, local) = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            let slash = rest.find(['/', '?']).unwrap_or(rest.len());
            (Some(bare(&rest[..slash])?), &rest[slash..])
        }
        // Such as `/?next=http://…`.
        _ => (None, target),
    };
    let local = local.split('#').next().unwrap_or_default();
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    Ok(Request {
        method: method.to_owned(),
        host,
        path: if path.is_empty() { "/" } else { path }.to_owned(),
        query: query.to_owned(),
        headers: Vec::new(),
    })
}

fn header(line: &str) -> Result<(String, String), Malformed> {
    let (name, value) = line.split_once(':').ok_or(Malformed)?;
    let value = value.trim_matches([' ', '\t']);
    // A folded line begins with a space, which is not a token character.
    if !is_token(name) || value.bytes().any(|byte| byte != b'\t' && byte < b' ') {
        return Err(Malformed);
    }
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

/// How the body is delimited; exactly one way is allowed.
fn body(request: &Request) -> Result<At, Malformed> {
    let all = |wanted: &str| {
        let mine = request.headers.iter().filter(|(name, _)| name == wanted);
        mine.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    match (
        all("content-length").as_slice(),
        all("transfer-encoding").as_slice(),
    ) {
        ([], []) => Ok(At::Head),
        ([length], []) => {
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length: u64 = length.parse().map_err(|_| Malformed)?;
            match (digits, length) {
                (false, _) => Err(Malformed),
                (true, 0) => Ok(At::Head),
                (true, length) => Ok(At::Body(length)),
            }
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(At::Size),
        _ => Err(Malformed),
    }
}

fn host(request: &Request) -> Result<Option<String>, Malformed> {
    let mut hosts = request.headers.iter().filter(|(name, _)| name == "host");
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some((_, host)), None) => bare(host).map(Some),
        _ => Err(Malformed),
    }
}

/// A host without its port, in lower case.
fn bare(text: &str) -> Result<String, Malformed> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(Malformed)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    let port = port.strip_prefix(':').unwrap_or(port);
    if !host.is_empty() && host.bytes().all(plain) && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        Ok(host.to_ascii_lowercase())
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The requests of a stream, given in parts of `size`.
    fn requests(text: &str, size: usize) -> Result<Vec<Request>, Malformed> {
        let (mut reader, mut held, mut found) = (Reader::default(), Vec::new(), Vec::new());
        for part in text.as_bytes().chunks(size) {
            held.extend_from_slice(part);
            loop {
                let read = match reader.step(&held)? {
                    Step::Need => break,
                    Step::Pass(count) => count,
                    Step::Head { length, request } => {
                        found.push(request);
                        length
                    }
                };
                held.drain(..read);
            }
        }
        Ok(found)
    }

    #[test]
    fn every_request_of_a_connection_is_seen() {
        let text = "POST /a?x=1 HTTP/1.1\r\nHost: A.example:8080\r\nContent-Length: 5\r\n\r\nGET /\
                    GET /b HTTP/1.1\r\nHost: b.example\r\n\r\n\
                    PUT /c HTTP/1.1\r\nhost:c.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                    4;x=y\r\nGET \r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n\
                    GET http://d.example/d HTTP/1.1\r\nHost: d.example\r\n\r\n";
        for size in [1, 2, 3, 17, 5000] {
            let found = requests(text, size).unwrap();
            let seen: Vec<_> = found
                .iter()
                .map(|one| (one.method.as_str(), one.path.as_str(), one.host.as_deref()))
                .collect();
            assert_eq!(
                seen,
                [
                    ("POST", "/a", Some("a.example")),
                    ("GET", "/b", Some("b.example")),
                    ("PUT", "/c", Some("c.example")),
                    ("GET", "/d", Some("d.example")),
                ]
            );
            assert_eq!(found[0].query, "x=1");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_malformed() {
        let head = "POST / HTTP/1.1\r\nHost: a.example\r\n";
        for rest in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "Content-Length: +5\r\n\r\n",
            "Content-Length: 5, 5\r\n\r\n",
            "Transfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: xchunked\r\n\r\n",
            "Host: b.example\r\n\r\n",
            "X: a\r\n folded\r\n\r\n",
            "Content-Length : 5\r\n\r\n",
            "X: a\nHost: b.example\r\n\r\n",
            "X: a\rb\r\n\r\n",
        ] {
            assert_eq!(
                requests(&format!("{head}{rest}"), 4096),
                Err(Malformed),
                "{rest:?}"
            );
        }
        for text in [
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1 \r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET /\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n",
        ] {
            assert_eq!(requests(text, 4096), Err(Malformed), "{text:?}");
        }
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for rest in [
            "-1\r\n",
            "0x5\r\n",
            "\r\n",
            "5\nhello\r\n",
            "5\r\nhelloX",
            "fffffffffffffffff\r\n",
        ] {
            assert_eq!(
                requests(&format!("{chunked}{rest}"), 4096),
                Err(Malformed),
                "{rest:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(text in "(GET / HTTP/1.1\r\n|Host: a\r\n|\r\n|[0-9a-f\r\n;: ]|Transfer-Encoding: chunked\r\n|Content-Length: 3\r\n){0,40}", size in 1usize..50) {
            let whole = requests(&text, text.len().max(1));
            // The same requests are parsed, however the bytes are split.
            if let Ok(whole) = whole {
                prop_assert_eq!(requests(&text, size), Ok(whole));
            }
        }
    }
}
