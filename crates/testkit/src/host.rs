//! A daemon with an address, and curl.

use crate::story::Story;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    method: String,
    path: String,
    body: Option<Vec<u8>>,
    headers: Vec<String>,
}

impl Ask {
    pub fn new(method: &str, path: &str) -> Ask {
        Ask {
            method: method.to_string(),
            path: path.to_string(),
            body: None,
            headers: Vec::new(),
        }
    }

    pub fn get(path: &str) -> Ask {
        Ask::new("GET", path)
    }

    pub fn post(path: &str, body: Value) -> Ask {
        Ask::new("POST", path).body(body)
    }

    pub fn body(self, body: Value) -> Ask {
        self.bytes(body.to_string().into_bytes())
    }

    pub fn bytes(mut self, body: Vec<u8>) -> Ask {
        self.body = Some(body);
        self
    }

    pub fn header(mut self, header: &str) -> Ask {
        self.headers.push(header.to_string());
        self
    }
}

/// What was answered. A status of 0: nothing was.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
    pub json: Value,
    headers: Vec<(String, String)>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, self.text)
    }
}

/// A state directory whose daemon listens.
#[derive(Debug)]
pub struct Host {
    pub story: Story,
    pub address: SocketAddr,
}

/// An address that was free when it was asked for.
fn free() -> SocketAddr {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap()
}

impl Host {
    /// One where machines can be made; `listen` is more of its section.
    pub fn new(listen: &str) -> Host {
        let host = Host::configured("runtime = \"container\"\n", listen);
        assert!(host.story.has_busybox());
        host
    }

    pub fn configured(config: &str, listen: &str) -> Host {
        let host = Host::unstarted();
        host.listen(config, listen);
        host.start();
        host
    }

    /// An empty state directory, and an address that was free.
    pub fn unstarted() -> Host {
        let (story, address) = (Story::new(), free());
        std::fs::create_dir_all(story.home()).unwrap();
        Host { story, address }
    }

    /// Writes the configuration.
    pub fn listen(&self, config: &str, listen: &str) {
        let address = self.address;
        self.story.configure(&format!(
            "{config}\n[listen]\naddress = \"{address}\"\n{listen}"
        ));
    }

    /// Has a daemon: the first command starts it.
    pub fn start(&self) -> &Host {
        let told = self.story.motu(&["ps"]);
        assert_eq!(told.code, 0, "{told}");
        self
    }

    pub fn stop(&self) {
        let told = self.story.motu(&["serve", "--stop"]);
        assert_eq!(told.code, 0, "{told}");
    }

    pub fn key(&self, args: &[&str]) -> String {
        let told = self.story.motu(&[&["key", "create"], args].concat());
        assert_eq!(told.code, 0, "{told}");
        told.stdout.trim().to_string()
    }

    /// Asks with a key.
    pub fn call(&self, key: &str, ask: Ask) -> Answer {
        self.ask(ask.header(&format!("Authorization: Bearer {key}")))
    }

    pub fn ask(&self, ask: Ask) -> Answer {
        self.ask_at(&format!("http://{}", self.address), &[], ask)
    }

    /// Asks at an address, with more arguments of curl.
    pub fn ask_at(&self, base: &str, more: &[&str], ask: Ask) -> Answer {
        let sent = self.story.path().join("sent");
        let mut command = motu_needs::command("curl");
        command
            .args(["--silent", "--max-time", "60", "--dump-header", "-"])
            .args(["--request", &ask.method])
            .args(more);
        for header in &ask.headers {
            command.args(["--header", header]);
        }
        if let Some(body) = &ask.body {
            std::fs::write(&sent, body).unwrap();
            command.arg("--data-binary");
            command.arg(format!("@{}", sent.display()));
        }
        let output = command.arg(format!("{base}{}", ask.path)).output();
        answer(&output.unwrap().stdout)
    }

    /// Everything that is kept, environments and disks of machines aside.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.story.home()];
        while let Some(dir) = left.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() && entry.file_name() != "environments" {
                    left.push(path);
                } else if kind.is_file() && entry.metadata().unwrap().len() < 64 << 20 {
                    found.push(path);
                }
            }
        }
        assert!(found.iter().any(|path| path.ends_with("motu.db")));
        found
    }
}

fn answer(bytes: &[u8]) -> Answer {
    let whole = String::from_utf8_lossy(bytes).into_owned();
    // An answer with 100 before it has two heads.
    let mut rest = whole.as_str();
    let mut head = "";
    while rest.starts_with("HTTP/") {
        (head, rest) = rest.split_once("\r\n\r\n").unwrap_or((rest, ""));
    }
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.and_then(|text| text.parse().ok()).unwrap_or(0),
        json: serde_json::from_str(rest).unwrap_or_default(),
        text: rest.to_string(),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
            .collect(),
    }
}
