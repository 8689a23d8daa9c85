//! A proxy between this host and the internet: its address, the destinations that bypass it, and
//! the dialogue with it. Pure.
//!
//! ```text
//!   HTTP:    CONNECT name:port ──► 200
//!   SOCKS5:  greeting ──► method [──► user and password ──► fine] ──► connect name:port ──► fine
//! ```

use crate::address::Network;
use crate::judge::Reason;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Longest answer of a proxy that is read.
pub const MOST: usize = 16 * 1024;
/// Longest user name and password in SOCKS5.
const WORD: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Http,
    Socks5,
}

/// Who carries connections to the internet.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    pub kind: Kind,
    /// A name or an address.
    pub host: String,
    pub port: u16,
    /// User and password.
    credentials: Option<(String, String)>,
    /// Destinations that bypass it, in the syntax of `NO_PROXY`.
    direct: Vec<String>,
}

/// Without its credentials.
impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Proxy({:?} {}:{})", self.kind, self.host, self.port)
    }
}

/// Text that is no valid proxy. It is not quoted, because it may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a proxy: {0}; want http://HOST:PORT or socks5://HOST:PORT")]
pub struct NotAProxy(&'static str);

impl Proxy {
    /// Reads `http://[USER[:PASSWORD]@]HOST[:PORT]`, or the same with `socks5://`.
    pub fn parse(text: &str) -> Result<Self, NotAProxy> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let kind = match scheme {
            "http" => Kind::Http,
            // With both, names are resolved by the proxy.
            "socks5" | "socks5h" => Kind::Socks5,
            "https" => return Err(NotAProxy("TLS to a proxy is not supported")),
            _ => return Err(NotAProxy("its scheme is not known")),
        };
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((given, place)) => (Some(credentials(given)?), place),
            None => (None, rest),
        };
        let usual = match kind {
            Kind::Http => 80,
            Kind::Socks5 => 1080,
        };
        let (host, port) = place_of(place, usual)?;
        Ok(Self {
            kind,
            host,
            port,
            credentials,
            direct: Vec::new(),
        })
    }

    /// The proxy of an environment, by the usual variables; `None` if there is none.
    pub fn of_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, NotAProxy> {
        let first = |names: [&str; 2]| {
            let values = names.into_iter().filter_map(&get);
            values
                .map(|value| value.trim().to_owned())
                .find(|value| !value.is_empty())
        };
        let named =
            first(["HTTPS_PROXY", "https_proxy"]).or_else(|| first(["ALL_PROXY", "all_proxy"]));
        let Some(named) = named else {
            return Ok(None);
        };
        let mut proxy = Self::parse(&named)?;
        proxy.without(&first(["NO_PROXY", "no_proxy"]).unwrap_or_default());
        Ok((!proxy.direct.iter().any(|word| word == "*")).then_some(proxy))
    }

    /// Sets the destinations that bypass it: names with their subdomains, addresses, networks.
    pub fn without(&mut self, list: &str) {
        let words = list.split(',').map(|word| word.trim().to_ascii_lowercase());
        self.direct = words.filter(|word| !word.is_empty()).collect();
    }

    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// Whether a normalized name bypasses it.
    pub fn leaves_name(&self, name: &str) -> bool {
        self.direct.iter().any(|word| {
            let word = word.strip_prefix('*').unwrap_or(word);
            let word = word.strip_prefix('.').unwrap_or(word);
            let rest = name.strip_suffix(word);
            !word.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }

    /// Whether an address bypasses it.
    pub fn leaves_address(&self, address: IpAddr) -> bool {
        self.direct.iter().any(|word| {
            word.parse() == Ok(address)
                || word
                    .parse()
                    .is_ok_and(|network: Network| network.contains(address))
        })
    }
}

fn place_of(place: &str, usual: u16) -> Result<(String, u16), NotAProxy> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or(NotAProxy("its address is open"))?;
            (host, after.strip_prefix(':'))
        }
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let known = host.parse::<IpAddr>().is_ok() || crate::host::normal(host).is_some();
    if !known {
        return Err(NotAProxy("it names no host"));
    }
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0),
        None => Some(usual),
    };
    Ok((
        host.to_owned(),
        port.ok_or(NotAProxy("its port is no port"))?,
    ))
}

fn credentials(given: &str) -> Result<(String, String), NotAProxy> {
    let (user, password) = given.split_once(':').unwrap_or((given, ""));
    let read = |text: &str| {
        let text = decoded(text)?;
        let fine = text.len() <= WORD && !text.chars().any(char::is_control);
        fine.then_some(text)
    };
    let wrong = NotAProxy("its user or password cannot be used");
    let (user, password) = (read(user).ok_or(wrong)?, read(password).ok_or(wrong)?);
    // The first colon ends the user name, so it must not contain one.
    (!user.is_empty() && !user.contains(':'))
        .then_some((user, password))
        .ok_or(wrong)
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// Encodes base64.
fn letters(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for letter in 0..4 {
            let index = (bits >> (18 - 6 * letter)) & 63;
            out.push(if letter <= three.len() {
                char::from(LETTERS[index as usize])
            } else {
                '='
            });
        }
    }
    out
}

/// The destination that a proxy is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Name(String),
    Address(IpAddr),
}

/// The state of a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Waits for the head of an HTTP response.
    Head,
    /// Waits for the authentication method of SOCKS5.
    Method,
    /// Waits for the result of authentication.
    Welcome,
    /// Waits for the result of the connect request.
    Outcome,
}

/// The dialogue with a proxy about one connection.
#[derive(Debug)]
pub struct Dialogue {
    waits: Waits,
    proxy: Proxy,
    target: Target,
    port: u16,
}

/// The result of parsing a proxy's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Incomplete.
    Part,
    /// This many bytes are consumed; send these.
    Say(usize, Vec<u8>),
    /// After this many bytes the connection is established.
    Done(usize),
}

impl Dialogue {
    pub fn new(proxy: &Proxy, target: Target, port: u16) -> Self {
        Self {
            waits: match proxy.kind {
                Kind::Http => Waits::Head,
                Kind::Socks5 => Waits::Method,
            },
            proxy: proxy.clone(),
            target,
            port,
        }
    }

    /// The first message to the proxy.
    pub fn first(&self) -> Vec<u8> {
        match self.proxy.kind {
            Kind::Http => self.connect().into_bytes(),
            Kind::Socks5 if self.proxy.has_credentials() => vec![5, 2, 0, 2],
            Kind::Socks5 => vec![5, 1, 0],
        }
    }

    fn connect(&self) -> String {
        let host = match &self.target {
            Target::Name(name) => name.clone(),
            Target::Address(IpAddr::V4(address)) => address.to_string(),
            Target::Address(IpAddr::V6(address)) => format!("[{address}]"),
        };
        let place = format!("{host}:{}", self.port);
        let mut text = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some((user, password)) = &self.proxy.credentials {
            let word = letters(format!("{user}:{password}").as_bytes());
            text.push_str(&format!("Proxy-Authorization: Basic {word}\r\n"));
        }
        text + "\r\n"
    }

    /// Parses the proxy's next bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Heard, Reason> {
        match self.waits {
            Waits::Head => head(bytes),
            Waits::Method => self.method(bytes),
            Waits::Welcome => match bytes {
                [_, 0, ..] => Ok(Heard::Say(2, self.ask())),
                [_, _, ..] => Err(Reason::ProxyRefused),
                _ => Ok(Heard::Part),
            },
            Waits::Outcome => outcome(bytes),
        }
    }

    fn method(&mut self, bytes: &[u8]) -> Result<Heard, Reason> {
        match (bytes, &self.proxy.credentials) {
            ([5, 0, ..], _) => Ok(Heard::Say(2, self.ask())),
            ([5, 2, ..], Some((user, password))) => {
                let mut out = vec![1, user.len() as u8];
                out.extend(user.bytes());
                out.push(password.len() as u8);
                out.extend(password.bytes());
                self.waits = Waits::Welcome;
                Ok(Heard::Say(2, out))
            }
            ([_, _, ..], _) => Err(Reason::ProxyRefused),
            _ => Ok(Heard::Part),
        }
    }

    fn ask(&mut self) -> Vec<u8> {
        self.waits = Waits::Outcome;
        let mut out = vec![5, 1, 0];
        match &self.target {
            Target::Name(name) => {
                // A normalized name has at most 253 bytes.
                out.extend([3, name.len() as u8]);
                out.extend(name.bytes());
            }
            Target::Address(IpAddr::V4(address)) => {
                out.push(1);
                out.extend(address.octets());
            }
            Target::Address(IpAddr::V6(address)) => {
                out.push(4);
                out.extend(address.octets());
            }
        }
        out.extend(self.port.to_be_bytes());
        out
    }
}

/// The head of an answer of HTTP.
fn head(bytes: &[u8]) -> Result<Heard, Reason> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= MOST {
            Err(Reason::ProxyRefused)
        } else {
            Ok(Heard::Part)
        };
    };
    let fine = bytes.starts_with(b"HTTP/1.") && bytes.get(8..10) == Some(b" 2");
    fine.then_some(Heard::Done(end + 4))
        .ok_or(Reason::ProxyRefused)
}

/// Parses the reply of SOCKS5: a code, and an address that is ignored.
fn outcome(bytes: &[u8]) -> Result<Heard, Reason> {
    let [version, code, _, kind, rest @ ..] = bytes else {
        return Ok(Heard::Part);
    };
    match (version, code) {
        (5, 0) => {}
        (5, 3 | 4) => return Err(Reason::Unreachable),
        (5, 5) => return Err(Reason::Refused),
        (5, 6) => return Err(Reason::TimedOut),
        _ => return Err(Reason::ProxyRefused),
    }
    let address = match kind {
        1 => 4,
        4 => 16,
        3 => match rest.first() {
            Some(length) => 1 + usize::from(*length),
            None => return Ok(Heard::Part),
        },
        _ => return Err(Reason::ProxyRefused),
    };
    let length = 4 + address + 2;
    Ok(if bytes.len() < length {
        Heard::Part
    } else {
        Heard::Done(length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> Target {
        Target::Name("a.example".to_owned())
    }

    #[test]
    fn what_people_write_is_read_and_passwords_are_not_shown() {
        let proxy = Proxy::parse("http://u:p%40ss@proxy.corp:3128/").unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("proxy.corp", 3128));
        assert_eq!(format!("{proxy:?}"), "Proxy(Http proxy.corp:3128)");
        let said = String::from_utf8(Dialogue::new(&proxy, name(), 443).first()).unwrap();
        assert!(said.starts_with("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n"));
        // u:p@ss
        assert!(
            said.ends_with("Proxy-Authorization: Basic dTpwQHNz\r\n\r\n"),
            "{said}"
        );
        let proxy = Proxy::parse("socks5h://[2600::1]:9").unwrap();
        assert_eq!(
            (proxy.kind, &*proxy.host, proxy.port),
            (Kind::Socks5, "2600::1", 9)
        );
        assert_eq!(Proxy::parse("proxy:8080").unwrap().port, 8080);
        for text in [
            "https://proxy:1",
            "socks4://proxy:1",
            "http://",
            "http://proxy:0",
            "http://proxy:x",
            "http://s3cr3t%zz@proxy",
            "http://a%0ab:s3cr3t@proxy",
            "http://:s3cr3t@proxy",
            "http://[::1",
        ] {
            let error = Proxy::parse(text).unwrap_err();
            assert!(!error.to_string().contains("s3cr3t"), "{text}");
        }
    }

    #[test]
    fn the_environment_names_it_and_those_it_is_not_for() {
        let of = |pairs: &[(&str, &str)]| {
            let find = |name: &str| pairs.iter().find(|pair| pair.0 == name);
            Proxy::of_variables(|name| find(name).map(|pair| pair.1.to_owned())).unwrap()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("HTTPS_PROXY", " ")]), None);
        assert_eq!(of(&[("HTTPS_PROXY", "p:1"), ("NO_PROXY", "*")]), None);
        let list = "localhost, .corp.example,*.dev, 10.0.0.0/8, 11.1.1.1,Exact.example";
        let proxy = of(&[("all_proxy", "socks5://p"), ("no_proxy", list)]).unwrap();
        assert_eq!(proxy.port, 1080);
        for (text, direct) in [
            ("a.corp.example", true),
            ("corp.example", true),
            ("acorp.example", false),
            ("x.dev", true),
            ("exact.example", true),
            ("below.exact.example", true),
            ("other.example", false),
        ] {
            assert_eq!(proxy.leaves_name(text), direct, "{text}");
        }
        for (text, direct) in [("10.1.2.3", true), ("11.1.1.1", true), ("11.1.1.2", false)] {
            assert_eq!(
                proxy.leaves_address(text.parse().unwrap()),
                direct,
                "{text}"
            );
        }
    }

    #[test]
    fn http_is_asked_once_and_what_follows_the_answer_is_left() {
        let proxy = Proxy::parse("http://p").unwrap();
        let mut dialogue = Dialogue::new(&proxy, Target::Address("2600::1".parse().unwrap()), 22);
        assert!(
            dialogue
                .first()
                .starts_with(b"CONNECT [2600::1]:22 HTTP/1.1\r\n")
        );
        let answer = b"HTTP/1.1 200 fine\r\nVia: p\r\n\r\nSSH-2.0";
        assert_eq!(dialogue.read(&answer[..20]), Ok(Heard::Part));
        assert_eq!(dialogue.read(answer), Ok(Heard::Done(answer.len() - 7)));
        for text in [
            "HTTP/1.1 407 who\r\n\r\n",
            "HTTP/1.1 503 no\r\n\r\n",
            "SSH-2.0\r\n\r\n",
        ] {
            let mut dialogue = Dialogue::new(&proxy, name(), 1);
            assert_eq!(
                dialogue.read(text.as_bytes()),
                Err(Reason::ProxyRefused),
                "{text}"
            );
        }
        assert_eq!(dialogue.read(&[b'a'; MOST]), Err(Reason::ProxyRefused));
    }

    #[test]
    fn socks_asks_who_it_is_and_says_what_became_of_it() {
        let proxy = Proxy::parse("socks5://me:word@p").unwrap();
        let mut dialogue = Dialogue::new(&proxy, name(), 443);
        assert_eq!(dialogue.first(), [5, 2, 0, 2]);
        assert_eq!(dialogue.read(&[5]), Ok(Heard::Part));
        let word = b"\x01\x02me\x04word".to_vec();
        assert_eq!(dialogue.read(&[5, 2]), Ok(Heard::Say(2, word)));
        let ask = b"\x05\x01\0\x03\x09a.example\x01\xbb".to_vec();
        assert_eq!(dialogue.read(&[1, 0]), Ok(Heard::Say(2, ask)));
        let fine = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(dialogue.read(&fine[..9]), Ok(Heard::Part));
        assert_eq!(dialogue.read(&fine), Ok(Heard::Done(10)));
        assert_eq!(dialogue.read(&[5, 5, 0, 1]), Err(Reason::Refused));
        assert_eq!(dialogue.read(&[5, 2, 0, 1]), Err(Reason::ProxyRefused));
        let plain = Proxy::parse("socks5://p").unwrap();
        let mut dialogue = Dialogue::new(&plain, name(), 443);
        assert_eq!(dialogue.first(), [5, 1, 0]);
        assert_eq!(dialogue.read(&[5, 2]), Err(Reason::ProxyRefused));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Proxy::parse(&text);
            for scheme in ["http://p", "socks5://u:p@p"] {
                let proxy = Proxy::parse(scheme).unwrap();
                let mut dialogue = Dialogue::new(&proxy, name(), 1);
                let mut rest = &bytes[..];
                while let Ok(Heard::Say(taken, _)) = dialogue.read(rest) {
                    prop_assert!(taken > 0 && taken <= rest.len());
                    rest = &rest[taken..];
                }
            }
        }
    }
}
