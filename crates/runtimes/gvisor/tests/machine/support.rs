//! The test setup: a state directory, a root, and a client of the guest.
//!
//! The tests need root and the static guest program, and say so if they are missing.

use bytes::Bytes;
use motu_core::runtime::{Ask, Machine, MachineLimits, MachineSpec};
use motu_core::{Runtime, SandboxId};
use motu_gvisor::{Gvisor, Settings};
use motu_link::message::{Note, Outcome, Ping, Request, Said, Start, Verb};
use motu_link::{Event, Link};
use prost::Message;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The size of disk in tests.
pub const DISK_MIB: u64 = 64;
/// The memory of machines in tests.
pub const MEM_MIB: u64 = 128;
/// How long a script may take. In an emulated host a program of gVisor fills 2 to 5 MB of memory in a second, and it takes
/// more than a minute until it has filled what it may have.
const PATIENCE_MS: u64 = 300_000;

/// A state directory with a runtime in it.
pub struct World {
    pub runtime: Gvisor,
    pub home: Home,
    root: PathBuf,
}

/// A directory that removes its machines when dropped, even after a failed test.
pub struct Home(Option<tempfile::TempDir>);

impl Home {
    pub fn new() -> Home {
        Home::below(Path::new("/var/tmp"))
    }

    pub fn below(dir: &Path) -> Home {
        Home(Some(tempfile::tempdir_in(dir).unwrap()))
    }

    pub fn path(&self) -> &Path {
        self.0.as_ref().unwrap().path()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let machines = std::fs::read_dir(self.path().join("machines"));
        for machine in machines.into_iter().flatten().flatten() {
            for process in ["process", "gofer"] {
                kill_leftover(&machine.path(), process);
            }
        }
        let path = self.0.take().unwrap().keep();
        // A disk may still be in preparation in the background.
        for _ in 0..200 {
            if std::fs::remove_dir_all(&path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Kills a machine that a failed test has left, if its process is still that machine.
fn kill_leftover(dir: &Path, process: &str) {
    let text = std::fs::read_to_string(dir.join("machine.json")).unwrap_or_default();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let process = &record[process];
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process["pid"]));
    let ours = stat.is_ok_and(|text| {
        let started = process["start_time"].to_string();
        text.split_whitespace().nth(21) == Some(&*started)
    });
    let pid = process["pid"].as_i64().filter(|_| ours);
    if let Some(pid) = pid.and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Spoken {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn guest_program() -> PathBuf {
    if let Some(path) = std::env::var_os("MOTU_GUEST_BIN") {
        return path.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    workspace.join("target/guest/x86_64-unknown-linux-gnu/guest/motu-guest")
}

impl World {
    pub fn new() -> World {
        World::at(Home::new(), None)
    }

    pub fn at(home: Home, root: Option<PathBuf>) -> World {
        let program = guest_program();
        let guest = std::fs::read(&program).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; build the static guest first (see `make guest`) or set MOTU_GUEST_BIN",
                program.display()
            )
        });
        let root = root.unwrap_or_else(|| busybox_root(home.path()));
        let runtime = Gvisor::new(Settings {
            guest: guest.into(),
            home: home.path().to_path_buf(),
            usual_disk_mib: DISK_MIB,
            program: None,
        });
        World {
            runtime,
            home,
            root,
        }
    }

    pub fn spec(&self) -> MachineSpec {
        let id = SandboxId::generate();
        let dir = self.home.path().join("machines").join(id.as_str());
        std::fs::create_dir_all(&dir).unwrap();
        MachineSpec {
            hostname: id.to_string(),
            id,
            dir,
            environment: "test".into(),
            root: self.root.clone(),
            wants_sudo: false,
            limits: MachineLimits {
                vcpu_count: ask(1),
                mem_mib: ask(MEM_MIB),
                disk_mib: ask(DISK_MIB),
                pids_max: ask(64),
                nofile: ask(256),
                io_mbps: Ask::NONE,
                iops: Ask::NONE,
            },
            accel: motu_core::Accel::Auto,
            kept: None,
            network: None,
        }
    }

    pub async fn create(&self) -> (Machine, Guest) {
        self.create_from(&self.spec()).await
    }

    pub async fn create_from(&self, spec: &MachineSpec) -> (Machine, Guest) {
        let machine = self.runtime.create(spec).await.unwrap();
        let guest = self.connect(&machine).await;
        (machine, guest)
    }

    pub async fn connect(&self, machine: &Machine) -> Guest {
        Guest::new(self.runtime.connect(machine).await.unwrap()).await
    }
}

/// An explicit limit.
pub fn ask(value: u64) -> Ask {
    Ask {
        value,
        explicit: true,
    }
}

/// A root with one static program, and a user besides root.
pub fn busybox_root(home: &Path) -> PathBuf {
    let root = home.join("root");
    for dir in [
        "bin",
        "etc",
        "proc",
        "sys",
        "dev",
        "tmp",
        "run",
        "root",
        "workspace",
    ] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    let busybox = motu_needs::find("busybox");
    std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
    let list = motu_needs::command("busybox")
        .arg("--list")
        .output()
        .unwrap();
    for applet in String::from_utf8_lossy(&list.stdout).lines() {
        let _ = std::os::unix::fs::symlink("busybox", root.join("bin").join(applet));
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/workspace:/bin/sh\n",
    )
    .unwrap();
    std::fs::write(
        root.join("etc/group"),
        "root:x:0:\ntty:x:5:\nuser:x:1000:\n",
    )
    .unwrap();
    std::os::unix::fs::chown(root.join("workspace"), Some(1000), Some(1000)).ok();
    let sticky = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(root.join("tmp"), sticky).unwrap();
    root
}

/// A connection to a guest.
pub struct Guest {
    link: Link,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl Guest {
    pub async fn new(connection: motu_core::runtime::Connection) -> Guest {
        let mut io = tokio::io::join(connection.read, connection.write);
        motu_link::hello::host(&mut io, [7; 16]).await.unwrap();
        let (read, write) = io.into_inner();
        let (link, _incoming) = Link::start(read, write, false);
        Guest { link }
    }

    pub async fn ping(&self) {
        let stream = self.link.open(request(Verb::Ping(Ping::default()))).await;
        let (_, _, outcome) = drain(stream.unwrap()).await;
        assert_eq!(outcome.kind, 0, "{}", outcome.message);
    }

    /// Runs a shell script as a user and collects everything.
    pub async fn sh(&self, user: &str, script: &str) -> Spoken {
        let start = Start {
            argv: vec![Bytes::copy_from_slice(script.as_bytes())],
            shell: true,
            user: user.to_string(),
            cwd: Bytes::from_static(b"/"),
            follow: true,
            timeout_ms: PATIENCE_MS,
            ..Start::default()
        };
        let stream = self.link.open(request(Verb::Start(start))).await.unwrap();
        let (data, notes, outcome) = drain(stream).await;
        assert_eq!(outcome.kind, 0, "{}", outcome.message);
        let code = notes
            .iter()
            .find_map(|said| match said {
                Said::Exited(exited) => Some(exited.code),
                _ => None,
            })
            .expect("a followed process says how it ended");
        let text = |channel: u8| {
            let bytes: Vec<u8> = data
                .iter()
                .filter(|(c, _)| *c == channel)
                .flat_map(|(_, bytes)| bytes.to_vec())
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Spoken {
            code,
            out: text(1),
            err: text(2),
        }
    }

    /// Starts a script in the background.
    pub async fn start(&self, user: &str, script: &str) {
        let start = Start {
            argv: vec![Bytes::copy_from_slice(script.as_bytes())],
            shell: true,
            user: user.to_string(),
            cwd: Bytes::from_static(b"/"),
            ..Start::default()
        };
        let stream = self.link.open(request(Verb::Start(start))).await.unwrap();
        let (_, _, outcome) = drain(stream).await;
        assert_eq!(outcome.kind, 0, "{}", outcome.message);
    }
}

fn request(verb: Verb) -> Bytes {
    Request { verb: Some(verb) }.encode_to_vec().into()
}

async fn drain(mut stream: motu_link::Stream) -> (Vec<(u8, Bytes)>, Vec<Said>, Outcome) {
    let (mut data, mut notes) = (Vec::new(), Vec::new());
    loop {
        match stream.rx.recv().await.unwrap() {
            Event::Data { channel, bytes } => data.push((channel, bytes)),
            Event::Message(bytes) => notes.extend(Note::decode(bytes).unwrap().said),
            Event::Eof => {}
            Event::End(bytes) => return (data, notes, Outcome::decode(bytes).unwrap()),
            Event::Reset => panic!("the guest reset the stream"),
        }
    }
}

/// Waits until something is true, for at most `seconds`.
pub async fn eventually(seconds: u64, what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !is() {
        assert!(Instant::now() < end, "not in {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
