//! Web pages that may be clients: origins, and what a browser is told of them (CORS).
//!
//! A browser sends the origin of the page with each request, and asks with `OPTIONS` before the
//! first one, without the token. Pages of the server's own addresses may come, and those that the
//! operator names; all others are refused, token or not.

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use motu_core::{Error, Result};
use std::str::FromStr;

/// Headers that a client sends.
const SENT: &str = "authorization, content-type, accept, last-event-id, mcp-protocol-version, \
     mcp-session-id, mcp-method, mcp-name";
/// Headers that a page may read.
const READ: &str = "mcp-session-id, www-authenticate";
/// Seconds for which a browser may keep the answer to its question.
const KEPT: &str = "600";

/// Where web pages come from: a scheme, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    scheme: String,
    host: String,
    /// `None` is any port.
    port: Option<u16>,
}

impl FromStr for Origin {
    type Err = Error;

    /// `https://app.example`, `http://localhost:6274`, or `http://localhost:*` for any port.
    fn from_str(text: &str) -> Result<Origin> {
        let wrong = || {
            let shown = motu_core::shown::quoted(text, 200);
            Error::invalid(format!("{shown:?} is no origin of web pages"))
                .hint("such as http://localhost:6274, or http://localhost:* for any port of it")
        };
        let (plain, any) = match text.strip_suffix(":*") {
            Some(plain) => (plain, true),
            None => (text, false),
        };
        let origin = Origin::said(plain).ok_or_else(wrong)?;
        match any {
            true => Ok(Origin {
                port: None,
                ..origin
            }),
            false => Ok(origin),
        }
    }
}

impl Origin {
    /// An origin as a browser says it: the port is left out where it is the scheme's own.
    fn said(text: &str) -> Option<Origin> {
        let uri = Uri::try_from(text).ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = uri.authority()?;
        let bare = uri.path().trim_end_matches('/').is_empty() && uri.query().is_none();
        if !bare || authority.as_str().contains('@') {
            return None;
        }
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" => usual,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        Some(Origin {
            scheme,
            host: authority.host().to_ascii_lowercase(),
            port: Some(port),
        })
    }

    /// A page that this very server could have sent.
    pub fn own(host: &str, port: u16) -> Origin {
        let host = match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]"),
            false => host.to_ascii_lowercase(),
        };
        Origin {
            scheme: "http".to_string(),
            host,
            port: Some(port),
        }
    }

    fn admits(&self, other: &Origin) -> bool {
        let same = self.scheme == other.scheme && self.host == other.host;
        same && (self.port.is_none() || self.port == other.port)
    }
}

/// The pages that may come.
#[derive(Debug)]
pub struct Pages(Vec<Origin>);

/// Who sent a request.
#[derive(Debug, PartialEq)]
pub enum Sender {
    /// No browser.
    Program,
    /// A page that may come; its origin as it was sent.
    Page(HeaderValue),
    Refused(String),
}

impl Pages {
    pub fn new(all: Vec<Origin>) -> Pages {
        Pages(all)
    }

    pub fn sender(&self, headers: &HeaderMap) -> Sender {
        let Some(said) = headers.get(header::ORIGIN) else {
            return Sender::Program;
        };
        let origin = said.to_str().ok().and_then(Origin::said);
        let admitted =
            origin.is_some_and(|origin| self.0.iter().any(|known| known.admits(&origin)));
        match admitted {
            true => Sender::Page(said.clone()),
            false => {
                let shown = String::from_utf8_lossy(said.as_bytes());
                Sender::Refused(motu_core::shown::quoted(&shown, 200))
            }
        }
    }
}

/// Whether a browser only asks what it may send.
pub fn is_question(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The status of the answer to that.
pub const MAY_SEND: StatusCode = StatusCode::NO_CONTENT;

/// What a browser must read in an answer before the page may.
pub fn tell(headers: &mut HeaderMap, page: HeaderValue, question: bool) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let said = HeaderValue::from_static;
    match question {
        true => {
            let methods = said("GET, POST, DELETE, OPTIONS");
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, said(SENT));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, said(KEPT));
        }
        false => {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, said(READ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(allowed: &str, said: &str) -> bool {
        let pages = Pages::new(vec![allowed.parse().unwrap()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_str(said).unwrap());
        pages.sender(&headers) == Sender::Page(HeaderValue::from_str(said).unwrap())
    }

    #[test]
    fn pages_of_an_origin_are_those_with_its_scheme_host_and_port() {
        assert!(admitted("http://localhost:6274", "http://localhost:6274"));
        assert!(admitted("http://localhost:6274", "http://LOCALHOST:6274"));
        assert!(admitted("http://localhost:*", "http://localhost:8000"));
        assert!(admitted("https://app.example", "https://app.example"));
        assert!(admitted("https://app.example:443", "https://app.example"));
        assert!(admitted("http://[::1]:80", "http://[::1]"));
        for (allowed, said) in [
            ("http://localhost:6274", "http://localhost:6275"),
            ("http://localhost:6274", "https://localhost:6274"),
            ("http://localhost:*", "http://localhost.evil.example:8000"),
            ("https://app.example", "https://app.example.evil.example"),
            ("https://app.example", "https://a@app.example"),
            ("https://app.example", "null"),
            ("https://app.example", "https://app.example/x"),
        ] {
            assert!(!admitted(allowed, said), "{allowed} admits {said}");
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for wrong in [
            "*",
            "localhost",
            "null",
            "ftp://a",
            "http://a/b",
            "http://a:x",
            "",
        ] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
        assert_eq!(
            Origin::own("::1", 7333),
            "http://[::1]:7333".parse().unwrap()
        );
    }
}
