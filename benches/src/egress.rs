//! The network gateway of a sandbox compared with slirp4netns and pasta: the throughput of one
//! outgoing stream, and the latency of connections.
//!
//! ```text
//!   sandbox ──gateway, slirp4netns or pasta (in "host")──veth── "internet": a server
//! ```
//!
//! All three are network namespaces of this run; no traffic leaves them.

use crate::report::Report;
use crate::rivals::{present, quiet};
use crate::stats::Timings;
use crate::{Bench, Outcome};
use motu_egress::gateway::control::{self, Answer, Request};
use motu_egress::gateway::{Begin, Frames, spawn};
use motu_egress::rules::Rules;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// The argument that makes this program run as the gateway.
pub const GATEWAY: &str = "__egress";

const BYTES: u64 = 1 << 30;
const CONNECTS: usize = 500;
const SERVER: ([u8; 4], u16) = ([11, 22, 33, 44], 9);
/// How long a rival may take to set up its device.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn measure(bench: &mut Bench) -> Outcome {
    figures(&mut bench.report)
}

/// Measures and reports; needs no daemon.
pub fn figures(report: &mut Report) -> Outcome {
    report.group("network out of a sandbox (one stream of 1 GiB; connections one after the other)");
    if !rustix::process::geteuid().is_root() {
        report.note("left out", "takes root".to_owned());
        return Ok(());
    }
    let host = Net::new()?;
    let internet = Net::new()?;
    let there = internet.pid;
    host.ip("link set lo up")?;
    host.ip(&format!("link add h0 type veth peer name i0 netns {there}"))?;
    host.ip("addr add 11.0.0.1/24 dev h0")?;
    host.ip("link set h0 up")?;
    internet.ip("link set lo up")?;
    internet.ip("addr add 11.0.0.2/24 dev i0")?;
    internet.ip("link set i0 up")?;
    internet.ip("addr add 11.22.33.44/32 dev lo")?;
    host.ip("route add default via 11.0.0.2")?;
    let listener = internet.inside(|| TcpListener::bind(SocketAddr::from(SERVER)))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || sink(stream));
        }
    });
    let direct = Figures::of(&host)?;
    direct.note(report, "without anything between");
    let ours = motu(report, &host)?;
    ours.note(report, "motu");
    let rivals: Vec<f64> = [slirp(report, &host), pasta(report, &host)]
        .into_iter()
        .flatten()
        .collect();
    report.at_least("motu: one stream", ours.speed * 8.0 / 1e3, 1.5, "Gbit/s");
    if let Some(better) = rivals.into_iter().reduce(f64::max) {
        report.at_least("motu: to the better rival", ours.speed / better, 0.6, "x");
    }
    report.at_most(
        "motu: added to a connection, p50",
        ours.connect - direct.connect,
        1.0,
        "ms",
    );
    Ok(())
}

/// Reads until the end and sends one byte.
fn sink(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 20];
    while matches!(stream.read(&mut buffer), Ok(count) if count > 0) {}
    let _ = stream.write_all(&[0]);
}

/// Results for one kind of network.
struct Figures {
    /// MB/s.
    speed: f64,
    /// Median time to open a connection, in milliseconds.
    connect: f64,
}

impl Figures {
    fn of(from: &Net) -> Fallible<Self> {
        let stream = from.inside(|| {
            Timings::of(5, || -> io::Result<()> {
                let mut stream = TcpStream::connect(SocketAddr::from(SERVER))?;
                let block = vec![7; 1 << 20];
                for _ in 0..BYTES / block.len() as u64 {
                    stream.write_all(&block)?;
                }
                stream.shutdown(std::net::Shutdown::Write)?;
                stream.read_exact(&mut [0])
            })
        })?;
        let connect = from.inside(|| {
            Timings::of(CONNECTS, || {
                TcpStream::connect(SocketAddr::from(SERVER)).map(drop)
            })
        })?;
        Ok(Self {
            speed: stream.speed(BYTES),
            connect: connect.p50(),
        })
    }

    fn note(&self, report: &Report, who: &str) {
        let speed = self.speed * 8.0 / 1e3;
        report.note(&format!("{who}: one stream"), format!("{speed:.2} Gbit/s"));
        report.note(
            &format!("{who}: a connection, p50"),
            format!("{:.3} ms", self.connect),
        );
    }
}

fn motu(report: &mut Report, host: &Net) -> Fallible<Figures> {
    let sandbox = Net::new()?;
    let directory = tempfile::TempDir::with_prefix("bench-egress-")?;
    let socket = directory.path().join("control");
    let start = Begin {
        frames: Frames::Namespace {
            net: sandbox.namespace()?,
            user: None,
        },
        rules: Rules::public(),
        border: None,
        decisions: tempfile::tempfile()?.into(),
        control: UnixListener::bind(&socket)?.into(),
        user: Some((65_534, 65_534)),
        resolvers: Vec::new(),
        proxy: None,
    };
    let program = std::env::current_exe()?;
    let leash = sandbox.leash()?;
    host.inside(|| spawn(&program, &[GATEWAY], start, &leash))?;
    let resident = || -> Fallible<f64> {
        match control::ask(&UnixStream::connect(&socket)?, &Request::Status)? {
            Answer::Status(status) => Ok(status.resident_bytes as f64 / 1e6),
            other => Err(format!("{other:?}").into()),
        }
    };
    let idle = resident()?;
    let figures = Figures::of(&sandbox)?;
    report.at_most("motu: resident, before the first frame", idle, 8.0, "MB");
    report.note(
        "motu: resident, after all of it",
        format!("{:.1} MB", resident()?),
    );
    Ok(figures)
}

fn slirp(report: &Report, host: &Net) -> Option<f64> {
    rival(report, "slirp4netns", || {
        let sandbox = Net::new()?;
        let mut command = Command::new("slirp4netns");
        command.args(["--configure", "--mtu=65520"]);
        command.args([&sandbox.pid.to_string(), "tap0"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok((
            host.inside(|| command.spawn()).map(Ended).map(Some)?,
            sandbox,
        ))
    })
}

/// pasta runs as an ordinary user and creates the namespace itself. /dev/net/tun may be closed to
/// ordinary users, so it gets a device node of its own.
const PASTA: &str = "mknod $0/tun c 10 200 && chmod 666 $0/tun && mount --bind $0/tun /dev/net/tun && \
    exec setpriv --reuid 65534 --regid 65534 --clear-groups pasta --foreground --config-net cat";

fn pasta(report: &Report, host: &Net) -> Option<f64> {
    let directory = tempfile::TempDir::with_prefix("bench-pasta-").ok()?;
    rival(report, "pasta", || {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", PASTA])
            .arg(directory.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = host.inside(|| command.spawn())?;
        let mut sandbox = Net { pid: 0, child };
        let list = format!("/proc/{0}/task/{0}/children", sandbox.child.id());
        let begun = Instant::now();
        while sandbox.pid == 0 {
            let children = std::fs::read_to_string(&list).unwrap_or_default();
            // It starts other, short-lived processes too.
            let is_ours = |pid: &u32| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                name.is_ok_and(|name| name == "cat\n")
            };
            let mut pids = children.split(' ').filter_map(|pid| pid.parse().ok());
            sandbox.pid = pids.find(is_ours).unwrap_or_default();
            if begun.elapsed() > PATIENCE {
                return Err("it makes no namespace".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((None, sandbox))
    })
}

/// Measures a rival and returns its throughput. A rival that does not work here is reported and
/// skipped.
fn rival(
    report: &Report,
    name: &str,
    start: impl FnOnce() -> Fallible<(Option<Ended>, Net)>,
) -> Option<f64> {
    if !present(report, &[name]) {
        return None;
    }
    let measured = || -> Fallible<Figures> {
        let (_running, sandbox) = start()?;
        let begun = Instant::now();
        let server = SocketAddr::from(SERVER);
        let open = || TcpStream::connect_timeout(&server, PATIENCE);
        while sandbox.inside(open).is_err() {
            if begun.elapsed() > PATIENCE {
                return Err("no connection gets through".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Figures::of(&sandbox)
    };
    match measured() {
        Ok(figures) => {
            figures.note(report, name);
            Some(figures.speed)
        }
        Err(error) => {
            report.note(name, format!("left out: {error}"));
            None
        }
    }
}

/// A process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace, held by a process that waits for the end of its input.
struct Net {
    child: Child,
    /// A process inside it.
    pid: u32,
}

impl Net {
    fn new() -> Fallible<Self> {
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo up; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut up = [0; 3];
        let output = child.stdout.as_mut().ok_or("no output")?;
        output.read_exact(&mut up)?;
        let pid = child.id();
        Ok(Self { child, pid })
    }

    fn namespace(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/{}/ns/net", self.pid);
        std::fs::File::open(path).map(OwnedFd::from)
    }

    fn leash(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(
            Pid::from_child(&self.child),
            PidfdFlags::empty(),
        )?)
    }

    /// Runs a function on a thread in this namespace.
    fn inside<T: Send>(&self, run: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = self.namespace()?;
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network)?;
                run()
            });
            there
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("panicked")))
        })
    }

    fn ip(&self, words: &str) -> Outcome {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid));
        command.arg("ip").args(words.split(' '));
        quiet(command)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // The process exits when its input is closed.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
