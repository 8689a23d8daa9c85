//! A caller that is gone without an end of its connection, which is noticed all the same.

use motu_needs::skip;
use motu_testkit::host::{Ask, Host};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Asks for a command, and at a word on its input lets go of the connection without a packet
/// (`TCP_REPAIR`). The kernel's first question is then answered by a reset, which a host without
/// power would not send: the daemon would hear of that one later, after `UNACKNOWLEDGED`.
const CALLER: &str = r#"
import socket, sys
host, port, path, key = sys.argv[1:]
body = b'{"command": ["sleep", "1000"]}'
caller = socket.create_connection((host, int(port)))
head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
caller.sendall(head.encode() + body)
print("asked", flush=True)
sys.stdin.readline()
TCP_REPAIR = 19
caller.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
caller.close()
print("gone", flush=True)
"#;

/// Half a minute of silence, then the probes of the kernel, and room for a busy machine.
const NOTICED: Duration = Duration::from_secs(120);

fn caller(host: &Host, path: &str, key: &str) -> Child {
    let (address, port) = (
        host.address.ip().to_string(),
        host.address.port().to_string(),
    );
    Command::new("python3")
        .args(["-c", CALLER, &address, &port, path, key])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn the_command_of_a_caller_who_vanished_ends() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root lets go of a connection without a packet");
    }
    let host = Host::new("");
    let key = host.key(&[]);
    let made = host.call(
        &key,
        Ask::post("/v1/sandboxes", json!({"environment": "busybox"})),
    );
    let id = made.json["sandbox_id"].as_str().unwrap();
    let mut caller = caller(&host, &format!("/v1/sandboxes/{id}/exec"), &key);
    let mut lines = BufReader::new(caller.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "asked");
    let sleeps = || {
        let told = host.story.motu(&["exec", id, "--", "pidof", "sleep"]);
        told.code == 0
    };
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed() < NOTICED, "{what}");
            // Nothing tells of processes inside: look again.
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    until("the command runs", &sleeps);
    writeln!(caller.stdin.take().unwrap(), "go").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "gone");
    assert!(caller.wait().unwrap().success());
    until("the command ends", &|| !sleeps());
}
