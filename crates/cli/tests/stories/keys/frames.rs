//! Callers that speak HTTP/2 wrong, on purpose. Each is let go, everybody else is served at once, and
//! the daemon keeps nothing of it.

use motu_testkit::host::{Ask, Host};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `GET http:///healthz` of the host `x`, in HPACK.
const ASK: &[u8] = b"\x82\x86\x01\x01x\x04\x08/healthz";

/// How much the daemon may grow by an attack, in KiB. A flood sends many times as much.
const GROWTH_KIB: u64 = 24 * 1024;
/// How long another caller may wait, on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long a caller that speaks wrong may be put up with.
const PATIENCE: Duration = Duration::from_secs(30);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A connection whose preface is sent.
fn begun(host: &Host) -> TcpStream {
    let mut stream = TcpStream::connect(host.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(PREFACE).unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    stream
}

/// The pid of the daemon.
fn pid(host: &Host) -> u64 {
    let told = host.story.motu(&["version", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let pid = [&told["daemon"]["pid"], &told["pid"]];
    pid.iter().find_map(|pid| pid.as_u64()).unwrap()
}

/// Memory of the daemon that is in RAM.
fn resident_kib(pid: u64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// Another caller gets its answer.
fn assert_serves(host: &Host, when: &str) {
    let begin = Instant::now();
    let answer = host.ask_at(
        &format!("http://{}", host.address),
        &["--http2-prior-knowledge"],
        Ask::get("/healthz"),
    );
    assert_eq!(answer.status, 200, "{when}: {answer}");
    assert!(begin.elapsed() < AT_ONCE, "{when}: {:?}", begin.elapsed());
}

/// Sends something to a daemon that goes on serving others, meanwhile and after, and that lets this
/// caller go.
fn attack(bytes: impl FnOnce(&mut TcpStream) -> std::io::Result<()>) {
    let host = Host::configured("", "");
    let pid = pid(&host);
    // The first request of all costs memory that is not the attack's.
    assert_serves(&host, "before");
    let before = resident_kib(pid);
    let mut stream = begun(&host);
    // It may be cut off before it has sent everything.
    let _ = bytes(&mut stream);
    assert_serves(&host, "meanwhile");
    let begin = Instant::now();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(begin.elapsed() < PATIENCE, "it was not let go");
    assert_serves(&host, "after");
    let grown = resident_kib(pid).saturating_sub(before);
    assert!(grown < GROWTH_KIB, "the daemon grew by {grown} KiB");
}

#[test]
fn a_frame_that_is_too_long_ends_its_connection() {
    attack(|stream| {
        stream.write_all(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1])?;
        stream.write_all(&vec![0; 16 << 20])
    });
}

#[test]
fn headers_of_no_stream_end_their_connection() {
    attack(|stream| {
        let headers = frame(HEADERS, END_STREAM | END_HEADERS, 0, ASK);
        stream.write_all(&headers)
    });
}

#[test]
fn headers_without_an_end_end_their_connection() {
    attack(|stream| {
        stream.write_all(&frame(HEADERS, END_STREAM, 1, ASK))?;
        // A header that is not to be remembered, over and over.
        let field = [&b"\x00\x01a\x64"[..], &[b'b'; 100]].concat();
        let more = frame(CONTINUATION, 0, 1, &field.repeat(150));
        for _ in 0..8192 {
            stream.write_all(&more)?;
        }
        Ok(())
    });
}

#[test]
fn requests_that_are_taken_back_at_once_end_their_connection() {
    attack(|stream| {
        for number in 0..200_000 {
            let id = 2 * number + 1;
            let mut pair = frame(HEADERS, END_STREAM | END_HEADERS, id, ASK);
            pair.extend(frame(RST_STREAM, 0, id, &8u32.to_be_bytes()));
            stream.write_all(&pair)?;
        }
        Ok(())
    });
}

#[test]
fn settings_of_a_wrong_length_end_their_connection() {
    attack(|stream| stream.write_all(&frame(SETTINGS, 0, 0, &[0; 5])));
}

#[test]
fn noise_after_the_preface_ends_its_connection() {
    attack(|stream| {
        // The same noise every time.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..1 << 20).map(|_| next()).collect();
        stream.write_all(&noise)
    });
}
