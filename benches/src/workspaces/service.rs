//! Services: how soon readiness is detected, and the throughput of a published port.

use super::{Fallible, Workspace};
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Bytes per connection.
const BYTES: u64 = 1 << 30;
/// Delays before a service listens, chosen not to coincide with the intervals between probes.
const SLOW_MS: [u32; 6] = [0, 70, 190, 330, 610, 1130];

/// Waits, listens, prints the time, and sends each connection the same number of bytes.
const SERVER: &str = "
import socket, sys, time
time.sleep(int(sys.argv[2]) / 1000)
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print(server.getsockname()[1], time.time_ns(), flush=True)
block = bytes(1 << 18)
while True:
    peer, _ = server.accept()
    try:
        for _ in range(int(sys.argv[3]) // len(block)):
            peer.sendall(block)
    except OSError:
        pass
    peer.close()
";

pub fn measure(bench: &mut Bench) -> Outcome {
    let policy = ["--network-policy", "egress+published-ports"];
    let workspace = Workspace::create(&bench.motu, ENVIRONMENT, "container", &policy)?;
    let late = SLOW_MS
        .iter()
        .map(|slow| ready_after(&workspace, *slow))
        .collect::<Fallible<Vec<Duration>>>()?;
    let late = Timings::from(late);
    bench.report.at_most(
        "service ready, after it listens (p50)",
        late.p50(),
        50.0,
        "ms",
    );
    bench
        .report
        .note("  the slowest", format!("{:.1} ms", late.quantile(1.0)));
    let published = published(&workspace)?;
    let host = Host::start()?;
    let floor = Timings::of(3, || drain(host.port))?.speed(BYTES);
    bench.report.note(
        "the same server on the host's own loopback",
        format!("{floor:.0} MB/s"),
    );
    bench
        .report
        .at_least("out of a published port", published, 300.0, "MB/s");
    bench
        .report
        .note("  ratio to it", format!("{:.2} x", published / floor));
    workspace.delete()
}

/// The time from a service's listen to its readiness in motu.
fn ready_after(workspace: &Workspace<'_>, slow: u32) -> Fallible<Duration> {
    let (name, slow) = (format!("slow-{slow}"), slow.to_string());
    let command = ["--", "python3", "-c", SERVER, "8000", &slow, "0"];
    let mut start = vec!["service", "start", "", &name, "--ready-tcp", "8000"];
    start.extend(command);
    let status = workspace.ask(&start)?;
    let ready: jiff::Timestamp = status["ready_at"].as_str().ok_or("no ready_at")?.parse()?;
    let logs = workspace.ask(&["service", "logs", "", &name])?;
    let listened: i128 = logs["stdout"]
        .as_str()
        .and_then(|text| text.split_whitespace().nth(1))
        .ok_or("the service did not say when it listened")?
        .parse()?;
    workspace.ask(&["service", "stop", "", &name])?;
    let late = (ready.as_nanosecond() - listened).max(0);
    Ok(Duration::from_nanos(u64::try_from(late)?))
}

/// The throughput of a published port in MB/s.
fn published(workspace: &Workspace<'_>) -> Fallible<f64> {
    let bytes = BYTES.to_string();
    let mut start = vec!["service", "start", "", "sender", "--ready-tcp", "8000"];
    start.extend(["--publish", "8000", "--"]);
    start.extend(["python3", "-c", SERVER, "8000", "0", &bytes]);
    let status = workspace.ask(&start)?;
    let port = status["published_ports"][0]["host_port"]
        .as_u64()
        .ok_or("no published port")?;
    let port = u16::try_from(port)?;
    let timings = Timings::of(3, || drain(port))?;
    workspace.ask(&["service", "stop", "", "sender"])?;
    Ok(timings.speed(BYTES))
}

/// Reads a connection to its end.
fn drain(port: u16) -> Fallible<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let (mut block, mut all) = (vec![0; 1 << 18], 0);
    loop {
        match stream.read(&mut block)? {
            0 if all == BYTES => return Ok(()),
            0 => return Err(format!("only {all} bytes came").into()),
            count => all += count as u64,
        }
    }
}

/// The lower bound: the server on the host, killed on drop.
struct Host {
    child: Child,
    port: u16,
}

impl Host {
    fn start() -> Fallible<Host> {
        let mut child = Command::new("python3")
            .args(["-c", SERVER, "0", "0", &BYTES.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        let mut host = Host { child, port: 0 };
        BufReader::new(output).read_line(&mut line)?;
        host.port = line.split(' ').next().unwrap_or_default().parse()?;
        Ok(host)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
