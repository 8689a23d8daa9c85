//! Clients that listen to events: curl, which comes back with the last id it has seen, and one that
//! stands still.

use motu_testkit::story::Story;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest wait for anything, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// What is found, as soon as it is there.
pub fn until<T>(found: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "it did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The events that the command line shows.
pub fn events(story: &Story, args: &[&str]) -> Vec<Value> {
    let told = story.motu(&[&["events", "--json"], args].concat());
    assert_eq!(told.code, 0, "{args:?}: {told}");
    let lines = told.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub fn kinds(events: &[Value]) -> Vec<String> {
    let kinds = events.iter().map(|event| event["kind"].as_str().unwrap());
    kinds.map(str::to_string).collect()
}

/// A client that comes back whenever it loses its connection.
pub struct Listener {
    heard: Arc<Mutex<Vec<Value>>>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Listener {
    pub fn socket(story: &Story) -> Listener {
        let (heard, over) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicBool::new(false)),
        );
        let (all, end) = (heard.clone(), over.clone());
        let socket = story.home().join("daemon.sock");
        let thread = std::thread::spawn(move || {
            let mut last: Option<String> = None;
            while !end.load(Ordering::SeqCst) {
                listen(&socket, &mut last, &all, &end);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Listener {
            heard,
            over,
            thread: Some(thread),
        }
    }

    /// Everything that was heard until this number.
    pub fn until_sequence(mut self, last: u64) -> Vec<Value> {
        until(|| {
            let heard = self.heard.lock().unwrap();
            let there = heard.iter().any(|event| event["sequence"] == last);
            there.then_some(())
        });
        self.over.store(true, Ordering::SeqCst);
        let heard = self.heard.lock().unwrap().clone();
        // The thread ends at the next line or when its daemon does.
        drop(self.thread.take());
        heard
    }
}

/// Listens until the connection ends.
fn listen(socket: &Path, last: &mut Option<String>, heard: &Mutex<Vec<Value>>, over: &AtomicBool) {
    let mut curl = motu_needs::command("curl");
    curl.args(["--silent", "--no-buffer", "--unix-socket"])
        .arg(socket)
        .args(["--header", "Accept: text/event-stream"]);
    if let Some(last) = last {
        curl.args(["--header", &format!("Last-Event-ID: {last}")]);
    }
    let mut curl = curl
        .arg("http://motu/v1/events")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut id = None;
    for line in BufReader::new(curl.stdout.take().unwrap()).lines() {
        let Ok(line) = line else { break };
        if let Some(number) = line.strip_prefix("id: ") {
            id = Some(number.to_string());
        } else if let Some(data) = line.strip_prefix("data: ")
            && let Ok(event) = serde_json::from_str::<Value>(data)
            && event["sequence"].is_u64()
        {
            assert_eq!(
                id,
                Some(event["sequence"].to_string()),
                "the id is the number"
            );
            heard.lock().unwrap().push(event);
            last.clone_from(&id);
        }
        if over.load(Ordering::SeqCst) {
            break;
        }
    }
    let _ = curl.kill();
    let _ = curl.wait();
}

/// A client that has asked for events and reads nothing.
pub struct Stuck {
    stream: UnixStream,
}

impl Stuck {
    pub fn open(story: &Story, after: u64) -> Stuck {
        let mut stream = UnixStream::connect(story.home().join("daemon.sock")).unwrap();
        let request = format!(
            "GET /v1/events?follow=true&after={after} HTTP/1.1\r\nHost: motu\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        // The answer has begun: the daemon reads for this client.
        let mut first = [0; 8];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1");
        stream.set_read_timeout(Some(SOON)).unwrap();
        Stuck { stream }
    }

    /// Reads everything until an event of this number.
    pub fn read_until(self, last: u64) -> Vec<Value> {
        let mut heard = Vec::new();
        // Chunks have their length before them, on lines of their own.
        for line in BufReader::new(self.stream).lines() {
            let line = line.unwrap();
            let Ok(event) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if event["sequence"].is_u64() {
                heard.push(event);
            }
            if heard.last().is_some_and(|event| event["sequence"] == last) {
                return heard;
            }
        }
        panic!("the stream ended after {} events", heard.len());
    }
}

/// Makes so many events, with one curl.
pub fn pause_and_resume(story: &Story, id: &str, changes: u64) {
    let urls: PathBuf = story.path().join("urls");
    let mut text = String::new();
    for number in 0..changes {
        let verb = if number % 2 == 0 { "pause" } else { "resume" };
        text.push_str(&format!(
            "url = \"http://motu/v1/sandboxes/{id}/{verb}\"\nrequest = POST\noutput = /dev/null\nnext\n\
             unix-socket = \"{}\"\nfail\n",
            story.home().join("daemon.sock").display()
        ));
    }
    // What follows the last `next` asks for something that changes nothing.
    text.push_str("url = \"http://motu/v1/version\"\noutput = /dev/null\n");
    std::fs::write(&urls, text).unwrap();
    let mut curl = motu_needs::command("curl");
    let done = curl
        .args(["--silent", "--show-error", "--fail", "--unix-socket"])
        .arg(story.home().join("daemon.sock"))
        .arg("--config")
        .arg(&urls)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
