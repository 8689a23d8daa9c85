//! What shows that a service does its work.
//!
//! A port is given as a number, or inside an address as people and other programs write it:
//! `tcp` takes `port` or `address`, `http` takes `port` and `path` or `url`. What is told back
//! always has the number.

use crate::Error;
use serde::{Deserialize, Serialize};

/// What shows that a service does its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", try_from = "Asked")]
pub enum Readiness {
    /// A file exists.
    File { path: String },
    /// A port accepts connections.
    Tcp { port: u16 },
    /// A port answers a GET with a status below 400.
    Http {
        port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// A shell command exits with 0.
    Command { command: String },
    /// A line of the output matches a regular expression.
    Log { pattern: String },
}

/// Every word there is for it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(rename = "type")]
    kind: Kind,
    path: Option<String>,
    port: Option<u16>,
    address: Option<String>,
    url: Option<String>,
    command: Option<String>,
    pattern: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    File,
    Tcp,
    Http,
    Command,
    Log,
}

impl TryFrom<Asked> for Readiness {
    type Error = Error;

    fn try_from(asked: Asked) -> Result<Readiness, Error> {
        let Asked {
            kind,
            path,
            port,
            address,
            url,
            command,
            pattern,
        } = asked;
        let wrong = |what: &str| Error::invalid(format!("this kind of readiness takes {what}"));
        match (kind, path, port, address, url, command, pattern) {
            (Kind::File, Some(path), None, None, None, None, None) => Ok(Readiness::File { path }),
            (Kind::Tcp, None, Some(port), None, None, None, None) if port > 0 => {
                Ok(Readiness::Tcp { port })
            }
            (Kind::Tcp, None, None, Some(address), None, None, None) => Readiness::tcp(&address),
            (Kind::Http, path, Some(port), None, None, None, None) if port > 0 => {
                Ok(Readiness::Http { port, path })
            }
            (Kind::Http, None, None, None, Some(url), None, None) => Readiness::http(&url),
            (Kind::Command, None, None, None, None, Some(command), None) => {
                Ok(Readiness::Command { command })
            }
            (Kind::Log, None, None, None, None, None, Some(pattern)) => {
                Ok(Readiness::Log { pattern })
            }
            (Kind::File, ..) => Err(wrong("a path")),
            (Kind::Tcp, ..) => Err(wrong("a port from 1 to 65535, or an address")),
            (Kind::Http, ..) => Err(wrong("a port from 1 to 65535 and a path, or a url")),
            (Kind::Command, ..) => Err(wrong("a command")),
            (Kind::Log, ..) => Err(wrong("a pattern")),
        }
    }
}

impl Readiness {
    /// `PORT`, or an address of the loopback with it.
    pub fn tcp(text: &str) -> Result<Readiness, Error> {
        match port(text)? {
            (port, "") => Ok(Readiness::Tcp { port }),
            _ => Err(not_a_port()),
        }
    }

    /// `PORT[/PATH]`, or a URL of the loopback.
    pub fn http(text: &str) -> Result<Readiness, Error> {
        let (port, path) = port(text)?;
        let path = (!path.is_empty()).then(|| path.to_string());
        Ok(Readiness::Http { port, path })
    }
}

fn not_a_port() -> Error {
    Error::invalid("a port is a number from 1 to 65535")
        .hint("of the machine itself: PORT, 127.0.0.1:PORT or http://127.0.0.1:PORT/PATH")
}

/// The port in `PORT`, `HOST:PORT` or a URL of the loopback, and what follows it.
fn port(text: &str) -> Result<(u16, &str), Error> {
    let rest = text.strip_prefix("http://").unwrap_or(text);
    let rest = ["127.0.0.1:", "localhost:", "[::1]:"]
        .iter()
        .find_map(|host| rest.strip_prefix(host))
        .unwrap_or(rest);
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].parse() {
        Ok(port) if port > 0 => Ok((port, &rest[end..])),
        _ => Err(not_a_port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: serde_json::Value) -> Result<Readiness, serde_json::Error> {
        serde_json::from_value(value)
    }

    #[test]
    fn a_port_is_a_number_or_in_an_address() {
        let tcp = Readiness::Tcp { port: 8000 };
        for form in [
            json!({"type": "tcp", "port": 8000}),
            json!({"type": "tcp", "address": "127.0.0.1:8000"}),
            json!({"type": "tcp", "address": "8000"}),
        ] {
            assert_eq!(read(form).unwrap(), tcp);
        }
        let http = Readiness::Http {
            port: 80,
            path: Some("/a".to_string()),
        };
        for form in [
            json!({"type": "http", "port": 80, "path": "/a"}),
            json!({"type": "http", "url": "http://localhost:80/a"}),
        ] {
            assert_eq!(read(form).unwrap(), http);
        }
        assert_eq!(
            json!(http),
            json!({"type": "http", "port": 80, "path": "/a"})
        );
    }

    #[test]
    fn what_belongs_to_another_kind_is_refused() {
        for form in [
            json!({"type": "tcp"}),
            json!({"type": "tcp", "port": 0}),
            json!({"type": "tcp", "port": 1, "address": "1"}),
            json!({"type": "tcp", "address": "example.org:80"}),
            json!({"type": "http", "port": 80, "pattern": "a"}),
            json!({"type": "file", "path": "/a", "port": 1}),
            json!({"type": "log"}),
            json!({"type": "other"}),
            json!({"type": "file", "path": "/a", "more": 1}),
        ] {
            assert!(read(form.clone()).is_err(), "{form}");
        }
    }
}
