//! Many callers of one daemon at once: REST, gRPC and WebSockets mixed, and connections that only
//! wait. Every answer is looked at, and nothing is left when they have gone.

mod clients;

use clients::Client;
use motu_needs::skip;
use motu_testkit::host::{Ask, Host};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CLIENTS: usize = 200;
const IDLE: usize = 10_000;
/// What the daemon may take for one connection on which nothing happens, unoptimised.
const IDLE_KIB: u64 = 24;
/// The longest wait for anything, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The process of a daemon, as the kernel shows it.
struct Process(u64);

impl Process {
    fn of(host: &Host) -> Process {
        let told = host.story.motu(&["version", "--json"]);
        let version: Value = serde_json::from_str(&told.stdout).unwrap();
        Process(version["daemon"]["pid"].as_u64().unwrap())
    }

    fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0))
            .unwrap()
            .count()
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    }
}

/// Waits until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What runs in a sandbox, the command that looks included.
fn processes(host: &Host, key: &str) -> usize {
    let look = json!({"command": ["sh", "-c", "ls -d /proc/[0-9]*"]});
    let seen = host.call(key, Ask::post("/v1/sandboxes/box/exec", look));
    assert_eq!(seen.json["exit_code"], 0, "{seen}");
    seen.json["stdout"].as_str().unwrap().lines().count()
}

#[test]
fn two_hundred_clients_get_their_own_answers_and_leave_nothing() {
    let host = Host::new("");
    // Each project has a sandbox of the same name, and must never see the other's.
    let keys = ["acme", "other"].map(|project| host.key(&["--project", project]));
    for key in &keys {
        let made = json!({"environment": "busybox", "sandbox_id": "box", "ttl_seconds": 3600});
        let made = host.call(key, Ask::post("/v1/sandboxes", made));
        assert_eq!(made.status, 201, "{made}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let visit = |clients: usize| {
        let all = (0..clients).map(|number| Client {
            address: host.address,
            project: number % keys.len(),
            key: keys[number % keys.len()].clone(),
            number,
        });
        let all: Vec<_> = all.map(|client| runtime.spawn(client.work())).collect();
        for one in all {
            runtime.block_on(one).unwrap();
        }
    };
    // What the first of each kind opens stays open: links to the machines, the log, the store.
    visit(12);
    let daemon = Process::of(&host);
    let mut files = 0;
    until("the daemon comes to rest", || {
        let before = std::mem::replace(&mut files, daemon.files());
        before == files
    });
    let running = keys.each_ref().map(|key| processes(&host, key));
    let begin = Instant::now();
    visit(CLIENTS);
    println!("{CLIENTS} clients were served in {:?}", begin.elapsed());
    until("files of the daemon stay open", || daemon.files() <= files);
    for (key, before) in keys.iter().zip(running) {
        until("processes stay", || processes(&host, key) == before);
        let left = host.call(key, Ask::get("/v1/sandboxes/box/processes"));
        let left = left.json["processes"].as_array().unwrap().clone();
        assert!(left.iter().all(|one| !one["exited"].is_null()), "{left:?}");
    }
}

/// Lets this process open as many files as it may; whether that is enough.
fn open_more_files(needed: usize) -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let more = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, more).unwrap();
    maximum.is_none_or(|most| most > needed as u64)
}

#[test]
fn ten_thousand_idle_connections_keep_nobody_waiting() {
    // The daemon keeps 4096 for what is asked of it.
    if !open_more_files(IDLE + 5_000) {
        skip("fewer than 15 000 files may be open here: raise the hard limit (ulimit -Hn)");
        return;
    }
    let host = Host::configured("", "connections = 14000\nhead_seconds = 600\n");
    let key = host.key(&["--scope", "*,metrics"]);
    let daemon = Process::of(&host);
    let connections = || -> usize {
        let told = host.call(&key, Ask::get("/metrics"));
        let line = told
            .text
            .lines()
            .find(|line| line.starts_with("motu_connections "));
        let number = line.and_then(|line| line.split(' ').nth(1));
        number.unwrap_or_else(|| panic!("{told}")).parse().unwrap()
    };
    // The one that asks; others may be on their way out.
    until("others stay", || connections() == 1);
    let (files, memory) = (daemon.files(), daemon.resident_kib());
    let begin = Instant::now();
    // Whoever has shown a good key stays; others have so much time.
    let request =
        format!("HEAD /v1/version HTTP/1.1\r\nHost: motu\r\nAuthorization: Bearer {key}\r\n\r\n");
    let ask = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0; 1024];
            let length = stream.read(&mut byte).unwrap();
            assert_ne!(length, 0, "it was closed");
            head.extend_from_slice(&byte[..length]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 OK"));
    };
    let mut idle: Vec<TcpStream> = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut stream = TcpStream::connect(host.address).unwrap();
        ask(&mut stream);
        idle.push(stream);
    }
    println!("{IDLE} connections were opened in {:?}", begin.elapsed());
    until("not all of them are taken in", || connections() > IDLE);
    println!("and taken in after {:?}", begin.elapsed());
    // What the burst took besides is given back once nobody asks.
    let each = || daemon.resident_kib().saturating_sub(memory) / IDLE as u64;
    println!("{} KiB for each idle connection", each());
    until("an idle connection takes too much", || each() <= IDLE_KIB);
    let begin = Instant::now();
    for _ in 0..20 {
        assert_eq!(host.call(&key, Ask::get("/v1/version")).status, 200);
    }
    let took = begin.elapsed() / 20;
    println!("a call beside them takes {took:?}, curl's start included");
    assert!(took < Duration::from_secs(1), "{took:?}");
    // Whoever has waited is served, too.
    for stream in idle.iter_mut().rev().take(100) {
        ask(stream);
    }
    drop(idle);
    let begin = Instant::now();
    until("those who left still count", || connections() == 1);
    println!("they were let go of in {:?}", begin.elapsed());
    until("files of the daemon stay open", || daemon.files() <= files);
}
