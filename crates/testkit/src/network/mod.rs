//! An internet for one test: a namespace for the daemon, one for the servers, and a virtual cable.

pub mod user;

use crate::story::{Story, Told};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The servers' addresses in the daemon's namespace: they look public, but are local to the test.
pub const SERVERS: &str = "11.22.33.44";
const SERVERS6: &str = "2600:22:33::44";
const DAEMON: &str = "11.22.33.1";
const DAEMON6: &str = "2600:22:33::1";

/// Names of this internet. Some resolve to addresses that no policy may open.
const NAMES: [(&str, &str); 10] = [
    ("good.example", SERVERS),
    ("other.example", SERVERS),
    ("inside.example", "10.9.8.7"),
    ("here.example", "127.0.0.1"),
    ("cloud.example", "169.254.169.254"),
    ("daemon.example", DAEMON),
    ("time.example", SERVERS),
    ("six.example", SERVERS6),
    ("both.example", "11.22.33.44,2600:22:33::44"),
    (
        "tricks.example",
        "fd00:ec2::254,::1,fe80::1,::ffff:169.254.169.254,2600:22:33::1,fd01::1",
    ),
];

/// The policy of most tests.
pub const POLICY: &str = r#"
version = 1
description = "of a test"

[[allow]]
capability = "good"
hosts = ["good.example", "inside.example", "here.example", "cloud.example", "daemon.example"]
ports = [80, 443]

[[allow]]
capability = "six"
hosts = ["six.example", "both.example", "tricks.example"]
ports = [80]
ipv6 = true

[[allow]]
capability = "time"
hosts = ["time.example"]
protocol = "udp"
ports = [123]

[[allow]]
capability = "echo"
hosts = ["11.22.33.44"]
protocol = "icmp"
"#;

#[derive(Debug)]
pub struct World {
    pub story: Story,
    /// Environment variables of the daemon.
    pub variables: Vec<(&'static str, String)>,
    /// Each holds a namespace open until its standard input is closed.
    daemon: Child,
    servers: Child,
    internet: Child,
}

impl World {
    /// A world with debian:12 and a policy `test`; skips if that is not possible here.
    pub fn new(runtime: &str) -> Option<World> {
        Self::with(runtime, POLICY, internet)
    }

    /// The same with another policy of that name, and other servers.
    pub fn with(
        runtime: &str,
        policy: &str,
        serve: impl FnOnce(&Child, &Path) -> Child,
    ) -> Option<World> {
        if !rustix::process::geteuid().is_root() {
            motu_needs::skip("network: only root makes namespaces for a test");
            return None;
        }
        let story = match runtime {
            "docker" => Story::with_debian_for(runtime),
            _ => Story::with_debian(runtime),
        }?;
        std::fs::create_dir(story.home().join("policies")).unwrap();
        std::fs::write(story.home().join("policies/test.toml"), policy).unwrap();
        if runtime == "qemu" {
            // The kernel is fetched from the host's package sources, which this internet does not
            // have.
            let warm = story.motu(&["run", "debian:12", "--timeout-seconds", "300", "--", "true"]);
            assert_eq!(warm.code, 0, "{warm}");
            assert_eq!(story.motu(&["serve", "--stop"]).code, 0);
        }
        let resolver = story.path().join("resolv.conf");
        std::fs::write(&resolver, format!("nameserver {SERVERS}\n")).unwrap();
        let bind = format!(
            "mount --bind {} /etc/resolv.conf; echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range",
            resolver.display()
        );
        let (daemon, servers) = (hold(&bind), hold("true"));
        wire(&daemon, &servers);
        let internet = serve(&servers, story.path());
        Some(World {
            story,
            variables: Vec::new(),
            daemon,
            servers,
            internet,
        })
    }

    /// `motu` in the daemon's namespace.
    pub fn command(&self, args: &[&str]) -> Command {
        let own = self.story.command(args);
        let mut command = inside(&self.daemon);
        command.arg(own.get_program()).args(own.get_args());
        command.env_clear().stdin(Stdio::null());
        for (name, value) in own.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.story.path());
        command
    }

    pub fn motu(&self, args: &[&str]) -> Told {
        self.story.told(self.command(args))
    }

    /// Adds a line to a file of the host, visible in the daemon's namespace only.
    pub fn add_line(&self, file: &str, line: &str) {
        let own = self.story.path().join(file.replace('/', "-"));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        std::fs::write(&own, format!("{text}{line}\n")).unwrap();
        let mount = inside(&self.daemon)
            .args(["mount", "--bind"])
            .arg(&own)
            .arg(file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&mount.stderr);
        assert!(mount.status.success(), "{file}: {said}");
    }

    /// A program in the daemon's namespace, as a user without privileges.
    pub fn as_ordinary_user(&self, user: u32) -> Command {
        let mut command = inside(&self.daemon);
        command
            .arg(motu_needs::command("setpriv").get_program())
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .arg("--clear-groups")
            .stdin(Stdio::null());
        command
    }

    /// A program in the daemon's namespace.
    pub fn at_daemon(&self, program: &str) -> Command {
        let mut command = inside(&self.daemon);
        command.arg(motu_needs::command(program).get_program());
        command
    }

    /// A program in the servers' namespace.
    pub fn at_servers(&self, program: &str) -> Command {
        let mut command = inside(&self.servers);
        command.arg(motu_needs::command(program).get_program());
        command
    }

    /// Runs `curl` in a machine.
    pub fn curl(&self, id: &str, arguments: &str) -> Told {
        let script = format!("curl -sS -k -m 20 {arguments}");
        self.motu(&[
            "exec",
            id,
            "--timeout-seconds",
            "60",
            "--",
            "sh",
            "-c",
            &script,
        ])
    }

    /// Runs a Python script in a machine.
    pub fn python(&self, id: &str, script: &str) -> Told {
        let python = ["--timeout-seconds", "120", "--", "python3", "-c", script];
        self.motu(&[&["exec", id][..], &python].concat())
    }

    /// Creates a machine with a policy.
    pub fn create(&self, policy: &str) -> String {
        self.create_from("debian:12", policy)
    }

    pub fn create_from(&self, environment: &str, policy: &str) -> String {
        let made = self.motu(&[
            "create",
            environment,
            "--policy",
            policy,
            "--ttl-seconds",
            "600",
        ]);
        assert_eq!(made.code, 0, "{made}");
        made.stdout.trim().to_string()
    }

    /// An environment with more programs. One built for another checkout can be used too.
    pub fn programs(&self, kind: &str) -> String {
        let root = crate::root();
        let made = Command::new(root.join("tools/programs"))
            .arg(kind)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let tar = String::from_utf8_lossy(&made.stdout).trim().to_string();
        let file = Path::new(&tar).file_name().unwrap().to_str().unwrap();
        let listed = self.motu(&["env", "list", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        let known = listed["environments"].as_array().into_iter().flatten();
        let mut known = known.filter_map(|one| one["name"].as_str());
        if let Some(name) = known.find(|name| name.ends_with(&format!("/{file}"))) {
            return name.to_string();
        }
        let name = format!("tar:{tar}");
        let pulled = self.motu(&["env", "pull", &name]);
        assert_eq!(pulled.code, 0, "{pulled}");
        name
    }

    /// The logged decisions about a machine.
    pub fn decisions(&self, id: &str) -> Vec<serde_json::Value> {
        let log = self.motu(&["policy", "log", id]);
        assert_eq!(log.code, 0, "{log}");
        let lines = log.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let listed = self.motu(&["ps", "--json"]);
        let all: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        for one in all["sandboxes"].as_array().into_iter().flatten() {
            let id = one["sandbox_id"].as_str().unwrap_or_default();
            let _ = self.command(&["rm", id]).output();
        }
        let _ = self.command(&["serve", "--stop"]).output();
        for child in [&mut self.internet, &mut self.servers, &mut self.daemon] {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// Starts a process in new namespaces, which exist when this returns.
fn hold(first: &str) -> Child {
    let script = format!(
        "set -e; mount --make-rprivate /; {first}; ip link set lo up; echo ready; exec cat"
    );
    let mut child = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_ready(&mut child);
    child
}

pub fn wait_for_ready(child: &mut Child) {
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // Later output is discarded; a full or closed pipe must not end the process.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
}

pub fn inside(holder: &Child) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--net", "--mount", "--target", &holder.id().to_string()]);
    command
}

fn wire(daemon: &Child, servers: &Child) {
    let peer = servers.id().to_string();
    let run = |holder: &Child, words: &str| {
        let done = inside(holder)
            .args(words.split_whitespace())
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{words}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    run(
        daemon,
        &format!("ip link add out type veth peer name in netns {peer}"),
    );
    run(daemon, &format!("ip addr add {DAEMON}/24 dev out"));
    run(daemon, &format!("ip addr add {DAEMON6}/64 dev out nodad"));
    run(daemon, "ip link set out up");
    run(daemon, &format!("ip route add default via {SERVERS}"));
    run(servers, &format!("ip addr add {SERVERS}/24 dev in"));
    run(servers, &format!("ip addr add {SERVERS6}/64 dev in nodad"));
    run(servers, "ip link set in up");
    run(daemon, &format!("ip -6 route add default via {SERVERS6}"));
}

fn internet(servers: &Child, place: &Path) -> Child {
    let certificate = place.join("certificate.pem");
    let certificate = certificate.to_str().unwrap();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=good.example",
            "-keyout",
            certificate,
            "-out",
            "-",
        ])
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut both = std::fs::read(certificate).unwrap();
    both.extend(made.stdout);
    std::fs::write(certificate, both).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/network/internet.py");
    let mut command = inside(servers);
    command
        .arg("python3")
        .arg(script)
        .args([SERVERS, SERVERS6, certificate]);
    command.args(NAMES.map(|(name, address)| format!("{name}={address}")));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_ready(&mut child);
    child
}
