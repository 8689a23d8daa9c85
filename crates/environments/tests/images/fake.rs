//! A configurable fake registry: a few lines of HTTP on a socket.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use crate::writer::{Image, digest};

/// A request, as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// First byte of the range asked for.
    pub fn from(&self) -> Option<usize> {
        let range = self.header("range")?.strip_prefix("bytes=")?;
        range.trim_end_matches('-').parse().ok()
    }

    pub fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }
}

/// A running registry. It lives as long as the test's process.
pub struct Fake {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    /// Answers each request, on a connection of its own, with `answer`.
    pub fn start(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), asked.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (answer.clone(), seen.clone());
                thread::spawn(move || {
                    let mut stream = stream;
                    if let Some(request) = read(&stream) {
                        seen.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// Serves an image; `instead` may answer first and then returns true.
    pub fn serve(
        image: Image,
        instead: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |asked, stream| {
            if !instead(asked, stream) {
                honest(&image, asked, stream);
            }
        })
    }

    pub fn name(&self) -> String {
        format!("{}/a/b:v1", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How many layers and configurations were asked for.
    pub fn blobs_asked(&self) -> usize {
        self.asked().iter().filter(|asked| asked.is_blob()).count()
    }
}

/// The answers of a correct registry.
pub fn honest(image: &Image, asked: &Asked, stream: &mut TcpStream) {
    if asked.path.contains("/manifests/") {
        let header = format!("docker-content-digest: {}\r\n", image.digest());
        return respond(stream, asked, "200 OK", &header, &image.manifest);
    }
    let blob = image
        .blobs()
        .into_iter()
        .find(|blob| asked.path.ends_with(&digest(blob)));
    match (blob, asked.from()) {
        (None, _) => {
            let error = br#"{"errors":[{"code":"BLOB_UNKNOWN","message":"no such blob"}]}"#;
            respond(stream, asked, "404 Not Found", "", error);
        }
        (Some(blob), Some(from)) => {
            let range = format!(
                "content-range: bytes {from}-{}/{}\r\n",
                blob.len() - 1,
                blob.len()
            );
            respond(stream, asked, "206 Partial Content", &range, &blob[from..]);
        }
        (Some(blob), None) => respond(stream, asked, "200 OK", "", blob),
    }
}

pub fn respond(stream: &mut TcpStream, asked: &Asked, status: &str, headers: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
        body.len()
    );
    // The client may have disconnected.
    let _ = stream.write_all(head.as_bytes());
    if asked.method != "HEAD" {
        let _ = stream.write_all(body);
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        let (key, value) = line.split_once(':')?;
        headers.insert(key.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Asked {
        method,
        path,
        headers,
    })
}
