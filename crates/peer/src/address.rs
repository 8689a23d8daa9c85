//! The address of a service, and paths there.

use motu_core::Error;
use std::net::IpAddr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// The prefix of every path, without a final slash.
    base: String,
}

impl Address {
    /// Parses `http://host:port/path` and `https://…`. Without TLS only loopback addresses are
    /// allowed, because others could read the key in transit. `setting` is the name of the setting
    /// for messages.
    pub fn parse(setting: &str, url: &str) -> Result<Address, Error> {
        let wrong = |why: &str| {
            Error::invalid(format!("{setting}: {why}"))
                .hint("such as http://127.0.0.1:7424 or https://sandboxes.example.org")
        };
        let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("it begins with neither http:// nor https://")),
        };
        let uri: http::Uri = url.parse().map_err(|_| wrong("it is no address"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() || rest.contains(['@', '?', '#']) {
            return Err(wrong("a host, perhaps a port and a path, and nothing else"));
        }
        if !tls && !is_here(host) {
            return Err(wrong(
                "without TLS the key could be read on the way; use https",
            ));
        }
        Ok(Address {
            tls,
            host: host.to_string(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            base: uri.path().trim_end_matches('/').to_string(),
        })
    }

    /// The value of the `Host` header.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base)
    }
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Percent-encodes text for a path or a query.
pub fn encoded(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                safe.push(char::from(byte));
            }
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how() {
        let found = Address::parse("[http] url", "http://127.0.0.1:7424/base/").unwrap();
        assert_eq!(found.to_string(), "http://127.0.0.1:7424/base");
        assert_eq!(found.path("/exec"), "/base/exec");
        let six = Address::parse("[http] url", "http://[::1]:80").unwrap();
        assert_eq!((six.host.as_str(), &*six.authority()), ("::1", "[::1]:80"));
        let far = Address::parse("[http] url", "https://example.org").unwrap();
        assert_eq!((far.tls, far.port), (true, 443));
    }

    #[test]
    fn what_is_no_address_or_shows_the_key_is_refused() {
        for wrong in [
            "",
            "127.0.0.1:80",
            "ftp://x",
            "http://",
            "http://user:secret@127.0.0.1/",
            "https://x/?key=1",
            "http://example.org",
            "http://10.0.0.1:7424",
        ] {
            let error = Address::parse("[http] url", wrong).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_path_survives_a_query() {
        assert_eq!(encoded("/a b&c=%é"), "%2Fa%20b%26c%3D%25%C3%A9");
    }
}
