//! Detects the protocol of a connection (TLS, HTTP or other) and the host it is for.

use super::http;
use crate::judge::Flight;

/// Longer than any real ClientHello; more is not waited for.
pub const MOST: usize = 32 * 1024;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of records: ChangeCipherSpec, alert, handshake, application data. And the size of a head.
const CHANGE: u8 = 0x14;
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
const DATA: u8 = 0x17;
const RECORD: usize = 5;
/// More early data than servers skip that do not want it.
const EARLY: usize = 1 << 20;
const SERVER_NAME: u16 = 0;
const EARLY_DATA: u16 = 42;
/// `encrypted_client_hello` and its drafts, `encrypted_server_name`: a name for the server alone.
/// Whether there is one, or only noise in its place, nobody else can tell.
const ENCRYPTED: [u16; 7] = [0xfe0d, 0xfe0c, 0xfe0a, 0xfe09, 0xfe08, 0xff02, 0xffce];
/// The longest method of HTTP that is in use is `UPDATEREDIRECTREF`.
const METHOD: usize = 20;

/// The protocol of the first bytes; `None` while there are too few. `ended`: no more will come.
pub fn read(bytes: &[u8], ended: bool) -> Option<Flight> {
    let found = match bytes.first() {
        None => return ended.then_some(Flight::Other),
        Some(&HANDSHAKE) => hello(bytes).map(|found| found.flight),
        Some(_) if bytes.starts_with(PREFACE) => Some(Flight::Http2),
        Some(_) if PREFACE.starts_with(bytes) => None,
        Some(_) => request(bytes),
    };
    match found {
        None if ended || bytes.len() >= MOST => Some(Flight::Other),
        found => found,
    }
}

fn request(bytes: &[u8]) -> Option<Flight> {
    let word = bytes.iter().take(METHOD + 1).position(|byte| *byte == b' ');
    let method = &bytes[..word.unwrap_or(bytes.len().min(METHOD + 1))];
    if method.is_empty() || method.len() > METHOD || !method.iter().all(u8::is_ascii_uppercase) {
        return Some(Flight::Other);
    }
    match http::Reader::default().step(bytes) {
        Ok(http::Step::Head { head, .. }) => Some(Flight::Http(head.request.host)),
        Ok(_) => None,
        Err(http::Malformed) => Some(Flight::Other),
    }
}

/// A ClientHello at the beginning of some bytes.
struct Hello {
    flight: Flight,
    /// Of its records; nothing, if it is none.
    length: usize,
    /// Whether data may follow before the server has answered.
    early: bool,
}

/// Parses a ClientHello, which may span several records.
fn hello(bytes: &[u8]) -> Option<Hello> {
    let other = || {
        Some(Hello {
            flight: Flight::Other,
            length: 0,
            early: false,
        })
    };
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(first) = message.first()
            && *first != 1
        {
            return other();
        }
        if let [_, a, b, c, body @ ..] = message.as_slice() {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > MOST || body.len() > length {
                return other();
            }
            if body.len() == length {
                let Some((flight, early)) = named(body) else {
                    return other();
                };
                let length = bytes.len() - rest.len();
                return Some(Hello {
                    flight,
                    length,
                    early,
                });
            }
        }
        let [kind, major, _, a, b, body @ ..] = rest else {
            // Too few bytes to tell, unless they cannot begin a record.
            let wrong = rest.first().is_some_and(|kind| *kind != HANDSHAKE)
                || rest.get(1).is_some_and(|major| *major != 3);
            return if wrong { other() } else { None };
        };
        let length = usize::from(u16::from_be_bytes([*a, *b]));
        if *kind != HANDSHAKE || *major != 3 || length == 0 || length > 16_384 {
            return other();
        }
        let part = body.get(..length)?;
        message.extend_from_slice(part);
        rest = &body[length..];
    }
}

/// Which host a ClientHello is for, and whether data may follow at once; `None` if it is malformed.
fn named(body: &[u8]) -> Option<(Flight, bool)> {
    let mut at = Cursor(body);
    at.take(2 + 32)?;
    at.short_block()?;
    at.block()?;
    at.short_block()?;
    if at.0.is_empty() {
        return Some((Flight::Tls(None), false));
    }
    let mut extensions = Cursor(at.block()?);
    if !at.0.is_empty() {
        return None;
    }
    let (mut found, mut hidden, mut early) = (None, false, false);
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let data = extensions.block()?;
        hidden |= ENCRYPTED.contains(&kind);
        early |= kind == EARLY_DATA;
        if kind == SERVER_NAME {
            // Two server names: servers differ in which one they use.
            if found.is_some() {
                return None;
            }
            let mut list = Cursor(data);
            let mut names = Cursor(list.block()?);
            let kind = names.take(1)?;
            let name = names.block()?;
            if kind != [0] || !names.0.is_empty() || !list.0.is_empty() {
                return None;
            }
            found = Some(str::from_utf8(name).ok()?.to_owned());
        }
    }
    let flight = if hidden {
        Flight::HiddenTls(found)
    } else {
        Flight::Tls(found)
    };
    Some((flight, early))
}

/// What the records of TLS that a client sends mean for the name it was judged by.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Need,
    /// This many bytes do not matter.
    Pass(usize),
    /// Another ClientHello of this length, in answer to a HelloRetryRequest: some servers go by the
    /// name in this one.
    Hello {
        length: usize,
        flight: Flight,
    },
    /// No other ClientHello can come.
    Done,
}

/// The records behind a ClientHello, until no other one can come.
#[derive(Debug)]
pub struct Records {
    /// Bytes left of a record.
    left: usize,
    /// Whether early data may be among them, and how much there was.
    early: bool,
    seen: usize,
    /// Whether records may be encrypted: one said that they are now.
    changed: bool,
    /// Whether there was another ClientHello.
    again: bool,
}

impl Records {
    /// Of a connection that begins with these bytes: a ClientHello, which was judged.
    pub fn after(bytes: &[u8]) -> Self {
        let first = hello(bytes);
        Self {
            left: first.as_ref().map_or(0, |first| first.length),
            early: first.is_some_and(|first| first.early),
            seen: 0,
            changed: false,
            again: false,
        }
    }

    pub fn step(&mut self, bytes: &[u8]) -> Next {
        if self.left > 0 && !bytes.is_empty() {
            let now = self.left.min(bytes.len());
            self.left -= now;
            return Next::Pass(now);
        }
        if self.again {
            return Next::Done;
        }
        let [kind, _, _, a, b, body @ ..] = bytes else {
            return Next::Need;
        };
        let length = usize::from(u16::from_be_bytes([*a, *b]));
        match *kind {
            CHANGE | ALERT => self.changed |= *kind == CHANGE,
            DATA if self.early && self.seen <= EARLY => self.seen += length,
            HANDSHAKE if body.is_empty() && length > 0 => return Next::Need,
            HANDSHAKE if body.first() == Some(&1) => return self.hello(bytes),
            _ => return Next::Done,
        }
        self.left = RECORD + length;
        self.step(bytes)
    }

    fn hello(&mut self, bytes: &[u8]) -> Next {
        let found = hello(bytes);
        let other = found
            .as_ref()
            .is_some_and(|one| one.flight == Flight::Other);
        match found {
            // What is encrypted may begin as a ClientHello does, and is none.
            _ if other && self.changed => Next::Done,
            None if bytes.len() < MOST => Next::Need,
            found => {
                self.again = true;
                Next::Hello {
                    length: found.as_ref().map_or(0, |one| one.length),
                    flight: found.map_or(Flight::Other, |one| one.flight),
                }
            }
        }
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.number()?);
        self.take(length)
    }

    fn short_block(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.take(1)?.first()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(name: &str) -> Vec<u8> {
        let entry = [&[0][..], &block(name.as_bytes())].concat();
        [&[0, 0][..], &block(&block(&entry))].concat()
    }

    /// A hello with these extensions, cut into records of `size`.
    fn tls(extensions: &[u8], size: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(block(&[0x13, 1]));
        body.extend([1, 0]);
        body.extend(block(extensions));
        let length = (body.len() as u32).to_be_bytes();
        let message = [&[1][..], &length[1..], &body].concat();
        let records = message.chunks(size);
        records
            .flat_map(|part| [&[0x16, 3, 1][..], &block(part)].concat())
            .collect()
    }

    fn named(name: &str) -> Option<Flight> {
        Some(Flight::Tls(Some(name.to_owned())))
    }

    /// What a connection of these records comes to: the names of further ClientHellos, and how many
    /// bytes passed before nothing else could come.
    fn followed(bytes: &[u8], size: usize) -> (Vec<Flight>, Option<usize>) {
        let (mut records, mut found, mut at) = (Records::after(bytes), Vec::new(), 0);
        for end in (0..bytes.len()).step_by(size).skip(1).chain([bytes.len()]) {
            loop {
                match records.step(&bytes[at..end]) {
                    Next::Need => break,
                    Next::Pass(count) => at += count,
                    Next::Hello { length, flight } => {
                        found.push(flight);
                        at += length;
                    }
                    Next::Done => return (found, Some(at)),
                }
            }
        }
        (found, None)
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 3, 3][..], &block(content)].concat()
    }

    #[test]
    fn a_second_hello_is_found_and_what_is_none_ends_the_search() {
        let first = tls(&extension("a.example"), 9000);
        let second = tls(&extension("b.example"), 30);
        let early = tls(
            &[&extension("a.example")[..], &[0, 42, 0, 0]].concat(),
            9000,
        );
        let change = record(CHANGE, &[1]);
        let data = record(DATA, &[7; 300]);
        let b = vec![named("b.example").unwrap()];
        for size in [1, 3, 50, 9000] {
            let of = |parts: &[&[u8]]| followed(&parts.concat(), size);
            assert_eq!(of(&[&first]), (vec![], None));
            assert_eq!(of(&[&first, &second, &data]).0, b);
            assert_eq!(of(&[&first, &change, &second, &data]).0, b);
            assert_eq!(of(&[&early, &change, &data, &second]).0, b);
            assert_eq!(of(&[&first, &data, &second]), (vec![], Some(first.len())));
            // Keys of TLS 1.2, and what is encrypted and begins like a hello.
            let keys = record(HANDSHAKE, &[16, 0, 0, 1, 1]);
            assert_eq!(of(&[&first, &keys, &second]), (vec![], Some(first.len())));
            let secret = record(HANDSHAKE, &[&[1, 0, 0, 8][..], &[9; 36]].concat());
            let at = first.len() + change.len();
            assert_eq!(of(&[&first, &change, &secret]), (vec![], Some(at)));
            assert_eq!(of(&[&first, &secret]).0, [Flight::Other]);
        }
    }

    #[test]
    fn an_encrypted_hello_inside_is_known() {
        for kind in ENCRYPTED {
            let inside = [&kind.to_be_bytes()[..], &block(&[1; 40])].concat();
            let bytes = tls(&[&extension("a.example")[..], &inside].concat(), 9000);
            let hidden = Flight::HiddenTls(Some("a.example".to_owned()));
            assert_eq!(read(&bytes, false), Some(hidden));
        }
        // Two messages in one record.
        let mut bytes = tls(&extension("a.example"), 9000);
        bytes.push(1);
        let length = (bytes.len() - RECORD) as u16;
        bytes[3..5].copy_from_slice(&length.to_be_bytes());
        assert_eq!(read(&bytes, false), Some(Flight::Other));
    }

    #[test]
    fn the_name_of_a_hello_is_found_however_it_is_cut() {
        for size in [1, 7, 40, 9000] {
            let bytes = tls(&extension("a.example"), size);
            assert_eq!(read(&bytes, false), named("a.example"));
            for cut in 1..bytes.len() {
                assert_eq!(read(&bytes[..cut], false), None, "{cut} of {size}");
                assert_eq!(read(&bytes[..cut], true), Some(Flight::Other));
            }
        }
        assert_eq!(read(&tls(&[], 900), false), Some(Flight::Tls(None)));
        let twice = [extension("a.example"), extension("b.example")].concat();
        assert_eq!(read(&tls(&twice, 900), false), Some(Flight::Other));
    }

    #[test]
    fn http_is_known_by_its_request() {
        let http = |host: Option<&str>| Some(Flight::Http(host.map(str::to_owned)));
        let ask = |text: &str| read(text.as_bytes(), false);
        assert_eq!(
            ask("GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\nmore"),
            http(Some("a.example"))
        );
        assert_eq!(ask("GET / HTTP/1.0\r\n\r\n"), http(None));
        assert_eq!(ask("GET / HTTP/1.1\r\nHost: a."), None);
        assert_eq!(ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(Flight::Http2));
        assert_eq!(ask("PRI * HT"), None);
        assert_eq!(ask("SSH-2.0-x\r\n"), Some(Flight::Other));
        assert_eq!(ask("\0\0\0\u{8}"), Some(Flight::Other));
        assert_eq!(ask("GETGETGETGETGETGETGETGET"), Some(Flight::Other));
        assert_eq!(read(&vec![b'A'; MOST], false), Some(Flight::Other));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..2000), tls: bool) {
            let mut bytes = bytes;
            if tls {
                bytes.splice(0..0, [0x16, 3, 1]);
            }
            let _ = read(&bytes, false);
            let whole = followed(&bytes, bytes.len().max(1));
            prop_assert_eq!(followed(&bytes, 1), whole);
            prop_assert!(read(&bytes, true).is_some());
        }
    }
}
