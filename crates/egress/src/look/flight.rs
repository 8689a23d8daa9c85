//! Detects the protocol of a connection (TLS, HTTP or other) and the host it is for.

use super::http;
use crate::judge::Flight;

/// Longer than any real ClientHello; more is not waited for.
pub const MOST: usize = 32 * 1024;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest method of HTTP that is in use is `UPDATEREDIRECTREF`.
const METHOD: usize = 20;

/// The protocol of the first bytes; `None` while there are too few. `ended`: no more will come.
pub fn read(bytes: &[u8], ended: bool) -> Option<Flight> {
    let found = match bytes.first() {
        None => return ended.then_some(Flight::Other),
        Some(0x16) => hello(bytes),
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
        Ok(http::Step::Head { request, .. }) => Some(Flight::Http(request.host)),
        Ok(_) => None,
        Err(http::Malformed) => Some(Flight::Other),
    }
}

/// Parses a ClientHello, which may span several records.
fn hello(bytes: &[u8]) -> Option<Flight> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(first) = message.first()
            && *first != 1
        {
            return Some(Flight::Other);
        }
        if let [_, a, b, c, body @ ..] = message.as_slice() {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > MOST {
                return Some(Flight::Other);
            }
            if let Some(body) = body.get(..length) {
                return Some(name(body).map_or(Flight::Other, Flight::Tls));
            }
        }
        let [kind, major, _, a, b, body @ ..] = rest else {
            // Too few bytes to tell, unless they cannot begin a record.
            let wrong = rest.first().is_some_and(|kind| *kind != 0x16)
                || rest.get(1).is_some_and(|major| *major != 3);
            return wrong.then_some(Flight::Other);
        };
        let length = usize::from(u16::from_be_bytes([*a, *b]));
        if *kind != 0x16 || *major != 3 || length == 0 || length > 16_384 {
            return Some(Flight::Other);
        }
        let part = body.get(..length)?;
        message.extend_from_slice(part);
        rest = &body[length..];
    }
}

/// The server name of a ClientHello; the outer `None` if it is malformed.
fn name(body: &[u8]) -> Option<Option<String>> {
    let mut at = Cursor(body);
    at.take(2 + 32)?;
    at.short_block()?;
    at.block()?;
    at.short_block()?;
    if at.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Cursor(at.block()?);
    if !at.0.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let data = extensions.block()?;
        if kind == 0 {
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
    Some(found)
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
            prop_assert!(read(&bytes, true).is_some());
        }
    }
}
