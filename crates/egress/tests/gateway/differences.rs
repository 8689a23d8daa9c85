//! Requests that servers read in different ways, with real servers behind the gateway: nginx, Apache,
//! Go, Node.js and Python. `differences/cases.txt` has them.

use crate::world::{GOOD, World, wait};
use crate::{allow, rules, world};
use motu_egress::rules::{Allow, HttpRule, PortRange};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CASES: &str = include_str!("differences/cases.txt");
const SITE: &str = "good.example.org";
/// The port of the first server.
const FIRST: u16 = 8001;
/// Asked for at the end of a case whose connection goes on: its answer is the last one.
const LAST: &str = "GET /open/last HTTP/1.1\r\nHost: good.example.org\r\nConnection: close\r\n\r\n";

/// How long an answer may take. Only one that is missing takes as long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Cases that went wrong, after which no other is tried.
const ENOUGH: usize = 5;

/// A real server until this is dropped.
struct Server {
    name: &'static str,
    port: u16,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not killed: some have children to end.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Open(usize),
    Closed,
    Bites,
    Cut,
}

struct Case {
    wanted: Wanted,
    name: &'static str,
    text: &'static str,
}

fn cases() -> Vec<Case> {
    let lines = CASES.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.splitn(3, '\t');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
            let (wanted, name, text) = (word(), word(), word());
            let wanted = match wanted {
                "closed" => Wanted::Closed,
                "bites" => Wanted::Bites,
                "cut" => Wanted::Cut,
                open => Wanted::Open(open.strip_prefix("open ").unwrap().parse().unwrap()),
            };
            Case { wanted, name, text }
        })
        .collect()
}

/// The bytes of a case.
fn bytes(text: &str, port: u16) -> Vec<u8> {
    let text = text
        .replace("{h}", "Host: good.example.org\\r\\n")
        .replace("{port}", &port.to_string());
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'x', a, b, ..]) => {
                let digits = [*a, *b];
                let digits = str::from_utf8(&digits).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), 4)
            }
            (byte, _) => (*byte, 1),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    out
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/gateway/differences")
        .join(file)
}

/// What the servers serve, and the one that has to be built.
fn prepare(place: &Path) {
    // Apache's children are nobody, and the pages are for them to read.
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
    for directory in ["site/open", "none"] {
        std::fs::create_dir_all(place.join(directory)).unwrap();
    }
    std::fs::write(place.join("site/open/page"), "OPEN\n").unwrap();
    std::fs::write(place.join("site/open/last"), "LAST\n").unwrap();
    let built = motu_needs::command("go")
        .args(["build", "-o"])
        .args([place.join("go"), here("server.go")])
        .env("CGO_ENABLED", "0")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
}

/// The command of a server at this port.
fn command(name: &str, place: &Path, port: u16) -> Command {
    let address = GOOD.to_string();
    let configured = |file: &str| {
        let text = std::fs::read_to_string(here(file)).unwrap();
        let text = text
            .replace("DIR", place.to_str().unwrap())
            .replace("ADDRESS", &address)
            .replace("PORT", &port.to_string());
        std::fs::write(place.join(file), text).unwrap();
        place.join(file)
    };
    let mut command = match name {
        "nginx" => motu_needs::command("nginx"),
        "apache" => motu_needs::command("apache2"),
        "go" => Command::new(place.join("go")),
        "node" => motu_needs::command("node"),
        _ => motu_needs::command("python3"),
    };
    match name {
        "nginx" => command.arg("-c").arg(configured("nginx.conf")),
        "apache" => command
            .args(["-D", "FOREGROUND", "-f"])
            .arg(configured("apache.conf")),
        "go" => command.arg(format!("{address}:{port}")),
        "node" => command
            .arg(here("server.js"))
            .args([address, port.to_string()]),
        _ => command
            .arg(here("server.py"))
            .args([address, port.to_string()]),
    };
    command
}

/// Every server, in the internet of the test.
fn serve(world: &World) -> Vec<Server> {
    let place = world.directory.path();
    prepare(place);
    let names = ["nginx", "apache", "go", "node", "python"];
    let start = |(name, port)| {
        let mut command = command(name, place, port);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // They complain of what they are told here.
        command.stderr(Stdio::null());
        let child = world.internet.inside(|| command.spawn().unwrap());
        Server { name, port, child }
    };
    let servers: Vec<Server> = names.into_iter().zip(FIRST..).map(start).collect();
    for server in &servers {
        let up = || direct(world, server.port);
        assert!(wait(up).is_some(), "{} does not come up", server.name);
    }
    servers
}

/// A connection that no gateway looks into.
fn direct(world: &World, port: u16) -> Option<TcpStream> {
    let stream = world
        .internet
        .inside(|| TcpStream::connect((GOOD, port)).ok())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(stream)
}

/// Sends bytes and reads until the connection ends, or the answer of `LAST` came.
fn answers(mut stream: TcpStream, bytes: &[u8]) -> String {
    // A gateway that refuses them may do so before all were written.
    let _ = stream.write_all(bytes);
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count) = stream.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
        if count == 0 || text.windows(5).any(|five| five == b"LAST\n") {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn what_servers_read_in_different_ways_reaches_none_of_them() {
    let only = Allow {
        ports: vec!["8001-8005".parse::<PortRange>().unwrap()],
        http: vec![HttpRule {
            methods: ["GET", "POST", "DELETE"].map(str::to_owned).to_vec(),
            path: "/open".to_owned(),
            ..HttpRule::default()
        }],
        ..allow(SITE)
    };
    let Some(world) = world(rules(vec![only])) else {
        return;
    };
    world.name(SITE, &[GOOD]);
    let servers = serve(&world);
    assert_eq!(world.resolve(SITE).addresses, [GOOD]);
    let mut wrong = Vec::new();
    for case in cases() {
        for server in &servers {
            let mut asked = bytes(case.text, server.port);
            if let Wanted::Open(_) = case.wanted {
                asked.extend(LAST.as_bytes());
            }
            let stream = world.connect(GOOD, server.port).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let text = answers(stream, &asked);
            let open = text.matches("OPEN").count();
            let fine = !text.contains("SECRET")
                && match case.wanted {
                    Wanted::Open(count) => open == count,
                    Wanted::Closed | Wanted::Bites => text.is_empty(),
                    Wanted::Cut => true,
                };
            if !fine {
                wrong.push(format!("{} at {}: {text:?}", case.name, server.name));
            }
        }
        // The same bytes are an attack: without the gateway they reach what is closed.
        let bites = |server: &Server| {
            let asked = [&bytes(case.text, server.port), LAST.as_bytes()].concat();
            direct(&world, server.port).is_some_and(|to| answers(to, &asked).contains("SECRET"))
        };
        if case.wanted == Wanted::Bites && !servers.iter().any(bites) {
            wrong.push(format!("{} reaches nothing that is closed", case.name));
        }
        if wrong.len() >= ENOUGH {
            break;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
