//! The head of a request: what it says, and how it is written anew.

use super::Malformed;
use std::net::Ipv6Addr;

/// A request, as the rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The host it is for: in lower case, without a dot at its end, without its port.
    pub host: Option<String>,
    /// The port, if it names one.
    pub port: Option<u16>,
    pub path: String,
    pub query: String,
    /// All of them, as they were sent. Names are in lower case.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// Whether it asks to change the protocol of the connection.
    pub fn upgrades(&self) -> bool {
        self.method.eq_ignore_ascii_case("CONNECT")
            || self.headers.iter().any(|(name, _)| name == "upgrade")
    }

    /// Whether its answer repeats what was sent, secrets included.
    pub fn is_echoed(&self) -> bool {
        ["TRACE", "TRACK", "DEBUG"]
            .iter()
            .any(|method| self.method.eq_ignore_ascii_case(method))
    }

    pub(crate) fn all(&self, wanted: &str) -> Vec<&str> {
        let mine = self.headers.iter().filter(|(name, _)| name == wanted);
        mine.map(|(_, value)| value.as_str()).collect()
    }
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
}

/// A request's head, in parts from which it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    pub request: Request,
    /// Path and query, as they are sent.
    pub target: String,
    /// Whether its target named a scheme and a host.
    pub absolute: bool,
    pub framing: Framing,
    /// Whether no other request follows on the connection.
    pub last: bool,
    /// Headers that are about the request and not about this connection, as they were named.
    pub fields: Vec<(String, String)>,
    /// HTTP/1.0.
    old: bool,
}

/// Headers about the connection or the body's framing: they are understood here, and written from
/// that or not at all.
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What `Connection` may name. Another name there would make a server forget that header.
const PERSISTENCE: [&str; 6] = [
    "close",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
];

impl Head {
    /// Reads a head, without the empty line at its end.
    pub(super) fn read(text: &str) -> Result<Self, Malformed> {
        let mut lines = text.split("\r\n");
        let mut head = first_line(lines.next().unwrap_or_default())?;
        for line in lines {
            let (name, value) = field(line)?;
            let lower = name.to_ascii_lowercase();
            let framing = is_framing(&lower);
            // `Content_Length`: the same header for servers that make variables of headers.
            if framing && !FRAMING.contains(&lower.as_str()) {
                return Err(Malformed);
            }
            if !framing {
                head.fields.push((name.to_owned(), value.to_owned()));
            }
            head.request.headers.push((lower, value.to_owned()));
        }
        head.names_one_host()?;
        head.framing = head.framed()?;
        head.last = head.is_last()?;
        if let Some(expect) = head.expects()? {
            head.fields.push(expect);
        }
        Ok(head)
    }

    /// The target and the header must name the same host.
    fn names_one_host(&mut self) -> Result<(), Malformed> {
        let named = match self.request.all("host").as_slice() {
            [] => None,
            [host] => Some(authority(host)?),
            _ => return Err(Malformed),
        };
        let Some((host, port)) = named else {
            return Ok(());
        };
        if self.absolute {
            let given = (self.request.host.as_ref(), self.request.port.unwrap_or(80));
            if given != (Some(&host), port.unwrap_or(80)) {
                return Err(Malformed);
            }
        }
        (self.request.host, self.request.port) = (Some(host), port);
        Ok(())
    }

    fn framed(&self) -> Result<Framing, Malformed> {
        let (lengths, codings) = (
            self.request.all("content-length"),
            self.request.all("transfer-encoding"),
        );
        let framing = match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Framing::None,
            ([length], []) => Framing::Length(number(length).ok_or(Malformed)?),
            // A server of HTTP/1.0 does not know chunks.
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && !self.old => {
                Framing::Chunked
            }
            _ => return Err(Malformed),
        };
        // Some servers do not read these bodies, and take them for the next request.
        match (self.request.method.as_str(), framing) {
            ("GET" | "HEAD" | "TRACE" | "CONNECT", Framing::Length(0)) => Ok(Framing::None),
            ("GET" | "HEAD" | "TRACE" | "CONNECT", Framing::Length(_) | Framing::Chunked) => {
                Err(Malformed)
            }
            _ => Ok(framing),
        }
    }

    fn is_last(&self) -> Result<bool, Malformed> {
        let (mut close, mut keep) = (false, false);
        for value in self.request.all("connection") {
            for word in value.split(',').map(|word| word.trim_matches([' ', '\t'])) {
                let word = word.to_ascii_lowercase();
                if !word.is_empty() && !PERSISTENCE.contains(&word.as_str()) {
                    return Err(Malformed);
                }
                close |= word == "close";
                keep |= word == "keep-alive";
            }
        }
        // Servers read the bodies of these methods; of others it is not certain.
        let reads = matches!(self.request.method.as_str(), "POST" | "PUT" | "PATCH");
        let body = !matches!(self.framing, Framing::None | Framing::Length(0));
        Ok(close || (self.old && !keep) || (body && !reads))
    }

    /// The wish to be told before a body is sent, where there is one.
    fn expects(&self) -> Result<Option<(String, String)>, Malformed> {
        match self.request.all("expect").as_slice() {
            [] => Ok(None),
            [wish] if wish.eq_ignore_ascii_case("100-continue") => {
                let body = !matches!(self.framing, Framing::None | Framing::Length(0));
                let wish = ("Expect".to_owned(), (*wish).to_owned());
                Ok((body && !self.old).then_some(wish))
            }
            _ => Err(Malformed),
        }
    }

    /// Every header as it is sent.
    pub(crate) fn sent(&self) -> Vec<(String, String)> {
        let mut sent = Vec::with_capacity(self.fields.len() + 3);
        let mut add = |name: &str, value: String| sent.push((name.to_owned(), value));
        if let Some(host) = &self.request.host {
            add("Host", written(host, self.request.port));
        }
        for (name, value) in &self.fields {
            add(name, value.clone());
        }
        match (self.last, self.old) {
            (true, _) => add("Connection", "close".to_owned()),
            (false, true) => add("Connection", "keep-alive".to_owned()),
            (false, false) => {}
        }
        match self.framing {
            Framing::None => {}
            Framing::Length(length) => add("Content-Length", length.to_string()),
            Framing::Chunked => add("Transfer-Encoding", "chunked".to_owned()),
        }
        sent
    }

    /// Writes it anew.
    pub fn write(&self, out: &mut Vec<u8>) {
        let version = if self.old { "1.0" } else { "1.1" };
        let (method, target) = (&self.request.method, &self.target);
        out.extend_from_slice(format!("{method} {target} HTTP/{version}\r\n").as_bytes());
        for (name, value) in self.sent() {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut mine = self.fields.iter();
        mine.find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Leaves a header out. Returns whether it was there.
    pub(crate) fn forget(&mut self, name: &str) -> bool {
        let before = self.fields.len();
        self.fields
            .retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self.fields.len() < before
    }
}

/// Whether a header, in lower case, is one about the connection or the framing, however its words
/// are joined.
pub(crate) fn is_framing(name: &str) -> bool {
    let joined = |byte: char| {
        if byte.is_ascii_alphanumeric() {
            byte
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(joined).collect();
    FRAMING.contains(&name.as_str())
}

fn first_line(line: &str) -> Result<Head, Malformed> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Malformed);
    };
    let known = matches!(version, "HTTP/1.0" | "HTTP/1.1");
    // A fragment is never sent; servers differ in what they take it for.
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if !known || !is_token(method) || !target.bytes().all(plain) {
        return Err(Malformed);
    }
    let mut head = Head {
        old: version == "HTTP/1.0",
        ..Head::default()
    };
    let scheme = target.get(..7);
    let local = if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        target
    } else if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) {
        // Any other scheme is one that servers may take for a host of its own.
        let rest = &target[7..];
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, port) = authority(&rest[..end])?;
        (head.request.host, head.request.port) = (Some(host), port);
        head.absolute = true;
        &rest[end..]
    } else {
        return Err(Malformed);
    };
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    let path = if path.is_empty() { "/" } else { path };
    head.target = match local.contains('?') {
        true => format!("{path}?{query}"),
        false => path.to_owned(),
    };
    head.request.method = method.to_owned();
    head.request.path = path.to_owned();
    head.request.query = query.to_owned();
    Ok(head)
}

/// A header's name and value.
pub(super) fn field(line: &str) -> Result<(&str, &str), Malformed> {
    let (name, value) = line.split_once(':').ok_or(Malformed)?;
    let value = value.trim_matches([' ', '\t']);
    let plain = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    // A folded line begins with a space, which is not a token character.
    if !is_token(name) || !value.bytes().all(plain) {
        return Err(Malformed);
    }
    Ok((name, value))
}

fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

/// A number without a sign.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// A host in its one form, and its port.
pub(crate) fn authority(text: &str) -> Result<(String, Option<u16>), Malformed> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(Malformed)?;
            let host: Ipv6Addr = host.parse().map_err(|_| Malformed)?;
            (host.to_string(), port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let host = host.strip_suffix('.').unwrap_or(host);
            (host.to_ascii_lowercase(), port)
        }
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(Malformed);
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return Err(Malformed),
        Some(port) => {
            let number = number(port).and_then(|number| u16::try_from(number).ok());
            Some(number.filter(|number| *number > 0).ok_or(Malformed)?)
        }
    };
    Ok((host, port))
}

/// A host and its port, as they are sent.
pub(crate) fn written(host: &str, port: Option<u16>) -> String {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}
