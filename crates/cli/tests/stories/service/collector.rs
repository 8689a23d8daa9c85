//! Spans and measurements at a collector: a server in the shape of one, on loopback, that decodes
//! what it is sent, refuses, and counts.

use motu_testkit::host::{Ask, Host};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TOKEN: &str = "a-token-of-the-collector";
/// What a caller says that nobody else may hear.
const PRIVATE: &str = "word-that-is-nobodys-business";

#[derive(Clone, Debug)]
struct Sent {
    path: String,
    taken: bool,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// A collector that answers with a status of the test's choice.
struct Collector {
    endpoint: String,
    status: Arc<AtomicU16>,
    arrived: Arc<Mutex<Vec<Sent>>>,
}

impl Collector {
    fn new(status: u16) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let status = Arc::new(AtomicU16::new(status));
        let arrived = Arc::<Mutex<Vec<Sent>>>::default();
        let (answer, all) = (status.clone(), arrived.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, all) = (answer.clone(), all.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &answer, &all));
            }
        });
        Collector {
            endpoint,
            status,
            arrived,
        }
    }

    /// What was sent to an address and taken or not.
    fn sent(&self, path: &str, taken: bool) -> Vec<Sent> {
        let all = self.arrived.lock().unwrap().clone();
        let of = |one: &Sent| one.path == path && one.taken == taken;
        all.into_iter().filter(of).collect()
    }

    /// Every span that was taken.
    fn spans(&self) -> Vec<Value> {
        let requests = self.sent("/v1/traces", true);
        let spans = requests.iter().flat_map(|one| {
            let scopes = &one.body["resourceSpans"][0]["scopeSpans"][0];
            scopes["spans"].as_array().unwrap().clone()
        });
        spans.collect()
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, status: &AtomicU16, all: &Mutex<Vec<Sent>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let path = line.split(' ').nth(1).unwrap().to_string();
        let mut headers = BTreeMap::new();
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_lowercase(), value.to_string()),
                None => break,
            };
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let status = status.load(Ordering::SeqCst);
        all.lock().unwrap().push(Sent {
            path,
            taken: status == 200,
            headers,
            body: serde_json::from_slice(&body).unwrap(),
        });
        let answer = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// What is found, as soon as it is there.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn told(collector: &Collector, more: &str) -> Host {
    let host = Host::unstarted();
    let headers = host.story.path().join("headers");
    std::fs::write(&headers, format!("Authorization: Bearer {TOKEN}\n")).unwrap();
    let otlp = format!(
        "runtime = \"container\"\n[otlp]\nendpoint = \"{}\"\nheaders_file = \"{}\"\n{more}",
        collector.endpoint,
        headers.display()
    );
    host.listen(&otlp, "");
    let pulled = host.story.motu(&["env", "pull", "busybox"]);
    assert_eq!(pulled.code, 0, "{pulled}");
    host
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|one| one["key"] == key)?;
    let value = found["value"].as_object().unwrap();
    value.values().next().unwrap().as_str()
}

#[test]
fn a_collector_hears_of_every_call_by_its_name_in_the_audit_log() {
    let collector = Collector::new(503);
    let host = told(&collector, "interval_seconds = 1\n");
    let key = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox", "sandbox_id": "box"});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let run = json!({
        "command": ["sh", "-c", format!("echo {PRIVATE}; exit 3")], "env": {"A": PRIVATE},
    });
    let ran = host.call(&key, Ask::post("/v1/sandboxes/box/exec", run));
    assert_eq!(ran.json["exit_code"], 3, "{ran}");
    let missing = host.call(&key, Ask::get("/v1/sandboxes/nobody"));
    assert_eq!(missing.status, 404);
    // What is refused for now is sent again.
    until("nothing was sent", || {
        let refused = collector.sent("/v1/traces", false);
        (refused.len() >= 2).then_some(())
    });
    assert_eq!(collector.spans(), Vec::<Value>::new());
    collector.status.store(200, Ordering::SeqCst);
    let id = ran.header("x-request-id").unwrap();
    let span = until("the span does not come", || {
        let spans = collector.spans().into_iter();
        spans.into_iter().find(|span| span["traceId"] == id[4..])
    });
    assert_eq!(span["name"], "exec");
    assert_eq!(span["spanId"], id[4 + 16..]);
    assert_eq!(span["status"], json!({"code": 1}));
    assert_eq!(attribute(&span, "motu.audit_id"), Some(id));
    assert_eq!(attribute(&span, "motu.sandbox_id"), Some("acme--box"));
    assert_eq!(attribute(&span, "motu.exit_code"), Some("3"));
    assert_eq!(attribute(&span, "motu.face"), Some("http"));
    let nanoseconds = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanoseconds("endTimeUnixNano") > nanoseconds("startTimeUnixNano"));
    let id = missing.header("x-request-id").unwrap();
    let spans = collector.spans();
    let failed = spans
        .iter()
        .find(|span| span["traceId"] == id[4..])
        .unwrap();
    assert_eq!(failed["status"]["message"], "not_found");
    // Every call of the audit log is one span.
    let audit = host.call(&key, Ask::get("/v1/audit?limit=100"));
    let entries = audit.json["entries"].as_array().unwrap();
    assert!(entries.len() >= 3, "{audit}");
    for entry in entries {
        let name = entry["id"].as_str().unwrap();
        until(name, || {
            let spans = collector.spans();
            let of = spans.iter().filter(|span| span["traceId"] == name[4..]);
            (of.count() == 1).then_some(())
        });
    }
    let measured = until("no measurements come", || {
        let all = collector.sent("/v1/metrics", true);
        let metrics = all.last()?.body["resourceMetrics"][0]["scopeMetrics"][0].clone();
        let metrics = metrics["metrics"].as_array().unwrap().clone();
        let calls = metrics.iter().find(|one| one["name"] == "motu_calls")?;
        let points = calls["sum"]["dataPoints"].as_array().unwrap();
        points
            .iter()
            .find(|one| {
                let verb = attribute(one, "verb") == Some("exec");
                verb && attribute(one, "outcome") == Some("ok")
            })
            .cloned()
    });
    assert_eq!(measured["asInt"], "1");
    for sent in collector.arrived.lock().unwrap().iter() {
        assert_eq!(sent.headers["authorization"], format!("Bearer {TOKEN}"));
        assert_eq!(sent.headers["content-type"], "application/json");
        let text = sent.body.to_string();
        assert!(!text.contains(PRIVATE) && !text.contains(TOKEN), "{text}");
        assert!(!text.contains(&key), "{text}");
    }
    let log = std::fs::read_to_string(host.story.home().join("daemon.log")).unwrap();
    assert!(!log.contains(TOKEN), "{log}");
}

#[test]
fn a_collector_that_is_away_holds_up_nobody_and_what_it_misses_is_counted() {
    let collector = Collector::new(503);
    let host = told(&collector, "queue = 5\n");
    let key = host.key(&["--scope", "*,metrics"]);
    let mut longest = Duration::ZERO;
    for _ in 0..30 {
        let begin = Instant::now();
        assert_eq!(host.call(&key, Ask::get("/v1/version")).status, 200);
        longest = longest.max(begin.elapsed());
    }
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    let metrics = host.call(&key, Ask::get("/metrics")).text;
    let dropped = metrics
        .lines()
        .find_map(|line| line.strip_prefix("motu_otlp_spans_dropped_total "));
    let dropped: u64 = dropped.unwrap().parse().unwrap();
    assert!(dropped >= 20, "{dropped}: {metrics}");
    // The newest are those that are left, and a daemon that leaves sends them.
    collector.status.store(200, Ordering::SeqCst);
    let last = host.call(&key, Ask::get("/v1/version"));
    let last = last.header("x-request-id").unwrap().to_string();
    host.stop();
    until("the last one is lost", || {
        let spans = collector.spans();
        let found = spans.iter().any(|span| span["traceId"] == last[4..]);
        found.then_some(())
    });
    assert!(collector.spans().len() <= 12, "{:?}", collector.spans());
}

#[test]
fn a_collector_that_cannot_be_is_said_when_the_daemon_starts() {
    let host = Host::unstarted();
    for (config, word) in [
        ("endpoint = \"http://10.0.0.1:4318\"", "https"),
        ("headers_file = \"/dev/null\"", "endpoint"),
        (
            "endpoint = \"http://127.0.0.1:9\"\nheaders_file = \"/nowhere\"",
            "/nowhere",
        ),
    ] {
        host.listen(&format!("[otlp]\n{config}\n"), "");
        let told = host.story.motu(&["serve"]);
        assert_ne!(told.code, 0, "{config}: {told}");
        assert!(told.stderr.contains(word), "{config}: {told}");
    }
}
