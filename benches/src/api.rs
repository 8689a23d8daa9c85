//! A minimal blocking HTTP client for the daemon's socket, so that the results are the daemon's and
//! not a client library's.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// One kept-alive connection.
#[derive(Debug)]
pub struct Api {
    io: BufReader<UnixStream>,
}

impl Api {
    pub fn connect(socket: &Path) -> Fallible<Api> {
        Ok(Api {
            io: BufReader::new(UnixStream::connect(socket)?),
        })
    }

    /// Sends a JSON request and returns its JSON answer; an error status is an error.
    pub fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Fallible<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: motu\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.io.get_mut().write_all(head.as_bytes())?;
        let (status, length) = self.head()?;
        let mut answer = vec![0; length];
        self.io.read_exact(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        if !(200..300).contains(&status) {
            return Err(format!("{method} {path}: {status}: {text}").into());
        }
        Ok(if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text)?
        })
    }

    /// Sends a block so many times as the body of a `PUT`.
    pub fn upload(&mut self, path: &str, block: &[u8], times: usize) -> Fallible<()> {
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: motu\r\ncontent-length: {}\r\n\r\n",
            block.len() * times
        );
        self.io.get_mut().write_all(head.as_bytes())?;
        for _ in 0..times {
            self.io.get_mut().write_all(block)?;
        }
        let (status, length) = self.head()?;
        let mut answer = vec![0; length];
        self.io.read_exact(&mut answer)?;
        match status {
            200 => Ok(()),
            _ => Err(format!("PUT {path}: {status}: {}", String::from_utf8_lossy(&answer)).into()),
        }
    }

    /// Reads the body of an answer piece by piece, and says how long it was.
    pub fn download(
        &mut self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Fallible<()>,
    ) -> Fallible<u64> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: motu\r\n\r\n");
        self.io.get_mut().write_all(head.as_bytes())?;
        let (status, _) = self.head()?;
        if status != 200 {
            return Err(format!("GET {path}: {status}").into());
        }
        // Files come in chunks: each has its length before it, and the last one has none.
        let mut piece = vec![0; 1 << 20];
        let (mut whole, mut line) = (0, String::new());
        loop {
            line.clear();
            self.io.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim_end(), 16)?;
            let mut left = length;
            while left > 0 {
                let most = left.min(piece.len());
                let got = self.io.read(&mut piece[..most])?;
                if got == 0 {
                    return Err(format!("GET {path}: it ends {left} bytes early").into());
                }
                take(&piece[..got])?;
                left -= got;
            }
            self.io.read_exact(&mut [0; 2])?;
            if length == 0 {
                return Ok(whole);
            }
            whole += length as u64;
        }
    }

    fn head(&mut self) -> Fallible<(u16, usize)> {
        let mut line = String::new();
        self.io.read_line(&mut line)?;
        let status = line
            .split_whitespace()
            .nth(1)
            .ok_or("no status line")?
            .parse()?;
        let mut length = 0;
        loop {
            line.clear();
            self.io.read_line(&mut line)?;
            let header = line.trim_end();
            if header.is_empty() {
                return Ok((status, length));
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
    }

    /// Creates a sandbox and returns its id.
    pub fn create(&mut self, environment: &str) -> Fallible<String> {
        let body = serde_json::json!({ "environment": environment, "ttl_seconds": 3600 });
        let made = self.call("POST", "/v1/sandboxes", Some(&body))?;
        Ok(made["sandbox_id"]
            .as_str()
            .ok_or("no sandbox_id")?
            .to_string())
    }

    /// Runs a command to its end; a non-zero exit is an error here.
    pub fn exec(&mut self, id: &str, command: &[&str]) -> Fallible<Value> {
        let body = serde_json::json!({ "command": command });
        let done = self.call("POST", &format!("/v1/sandboxes/{id}/exec"), Some(&body))?;
        match done["exit_code"].as_i64() {
            Some(0) => Ok(done),
            _ => Err(format!("{command:?} failed: {done}").into()),
        }
    }

    pub fn destroy(&mut self, id: &str) -> Fallible<()> {
        self.call("DELETE", &format!("/v1/sandboxes/{id}"), None)
            .map(drop)
    }
}
