//! What the tests stand on: a state directory with a cache all tests share, a
//! small root, and a client of the guest.

use bytes::Bytes;
use motu_core::config::QemuConfig;
use motu_core::runtime::{Ask, Kept, Machine, MachineLimits, MachineSpec};
use motu_core::{Accel, Runtime, SandboxId};
use motu_link::frame::CHANNEL_OUT;
use motu_link::message::{Note, Outcome, Ping, Request, Said, Start, Verb};
use motu_link::{Event, Link, Stream};
use motu_qemu::{Qemu, Settings};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Memory of most machines here; tests that damage templates use a size of their own.
pub const MEM_MIB: u64 = 256;

pub struct World {
    pub runtime: Qemu,
    pub home: PathBuf,
    root: PathBuf,
    mem_mib: u64,
    machines: Mutex<Vec<PathBuf>>,
}

impl World {
    pub fn new() -> World {
        World::with(MEM_MIB, accel())
    }

    pub fn with(mem_mib: u64, accel: Accel) -> World {
        World::with_spares(mem_mib, accel, 0)
    }

    pub fn with_spares(mem_mib: u64, accel: Accel, spares: usize) -> World {
        // Shared with the conformance suite: one kernel, one boot for each kind of machine.
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/test-home/qemu");
        std::fs::create_dir_all(&home).unwrap();
        let root = busybox_root(&home);
        World::open(home, root, (mem_mib, accel, spares))
    }

    /// One whose cache has what the shared one has, and is its own.
    pub fn apart(home: &Path) -> World {
        let shared = World::new();
        link_tree(&shared.home.join("cache"), &home.join("cache"));
        let root = shared.root.clone();
        World::open(home.to_path_buf(), root, (MEM_MIB, accel(), 1))
    }

    /// One apart whose machines are of another QEMU, of a size of their own.
    pub fn of_program(home: &Path, program: &Path, mem_mib: u64) -> World {
        let shared = World::new();
        link_tree(
            &shared.home.join("cache/kernels"),
            &home.join("cache/kernels"),
        );
        let config = QemuConfig {
            program: Some(program.to_path_buf()),
            ..QemuConfig::default()
        };
        World::of_config(home, config, mem_mib)
    }

    /// One apart with nothing in its cache.
    pub fn of_config(home: &Path, config: QemuConfig, mem_mib: u64) -> World {
        let root = World::new().root.clone();
        std::fs::create_dir_all(home.join("cache")).unwrap();
        World::with_config(home.to_path_buf(), root, (mem_mib, accel(), 0), config)
    }

    fn open(home: PathBuf, root: PathBuf, shape: (u64, Accel, usize)) -> World {
        // Another QEMU than the host's own, to see whether machines work with it.
        let config = QemuConfig {
            program: std::env::var_os("MOTU_TEST_QEMU").map(PathBuf::from),
            ..QemuConfig::default()
        };
        World::with_config(home, root, shape, config)
    }

    fn with_config(
        home: PathBuf,
        root: PathBuf,
        (mem_mib, accel, spares): (u64, Accel, usize),
        config: QemuConfig,
    ) -> World {
        let program = guest_program();
        let guest = std::fs::read(&program)
            .unwrap_or_else(|error| panic!("{}: {error}; set MOTU_GUEST_BIN", program.display()));
        let runtime = Qemu::new(Settings {
            guest: guest.into(),
            home: home.clone(),
            accel,
            spares,
            config,
        })
        .unwrap();
        World {
            runtime,
            home,
            root,
            mem_mib,
            machines: Mutex::default(),
        }
    }

    /// Leaves the machines of this world to another one.
    pub fn keep_machines(&self) {
        self.machines.lock().unwrap().clear();
    }

    pub fn spec(&self) -> MachineSpec {
        let id = SandboxId::generate();
        let dir = self.home.join("machines").join(id.as_str());
        std::fs::create_dir_all(&dir).unwrap();
        self.machines.lock().unwrap().push(dir.clone());
        MachineSpec {
            hostname: id.to_string(),
            id,
            dir,
            environment: "test".into(),
            root: self.root.clone(),
            wants_sudo: false,
            limits: MachineLimits {
                vcpu_count: ask(1),
                mem_mib: ask(self.mem_mib),
                disk_mib: ask(256),
                pids_max: ask(1024),
                nofile: ask(4096),
                io_mbps: Ask::NONE,
                iops: Ask::NONE,
            },
            accel: Accel::Auto,
            kept: None,
            network: None,
        }
    }

    /// A machine whose disks are kept in a directory of the test.
    pub fn kept_spec(&self, kept: &Path, baseline: &Path) -> MachineSpec {
        std::fs::create_dir_all(kept).unwrap();
        MachineSpec {
            kept: Some(Kept {
                dir: kept.to_path_buf(),
                baseline: baseline.to_path_buf(),
            }),
            ..self.spec()
        }
    }

    pub async fn start(&self, spec: &MachineSpec) -> (Machine, Guest) {
        let machine = self.runtime.create(spec).await.unwrap();
        let guest = self.connect(&machine).await;
        (machine, guest)
    }

    pub async fn create(&self) -> (Machine, Guest) {
        let machine = self.runtime.create(&self.spec()).await.unwrap();
        let guest = self.connect(&machine).await;
        (machine, guest)
    }

    pub async fn connect(&self, machine: &Machine) -> Guest {
        let connection = self.runtime.connect(machine).await.unwrap();
        let mut both = tokio::io::join(connection.read, connection.write);
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).unwrap();
        let greeting = motu_link::hello::host(&mut both, nonce);
        let greeted = tokio::time::timeout(std::time::Duration::from_secs(60), greeting).await;
        greeted.expect("the guest greets").unwrap();
        let (read, write) = both.into_inner();
        Guest {
            link: Link::start(read, write, false).0,
        }
    }

    /// Template directories made so far.
    pub fn templates(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.join("cache/templates")).unwrap();
        entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.join("manifest.json").exists())
            .collect()
    }
}

/// What machines run on here.
pub fn accel() -> Accel {
    motu_needs::accelerator().parse().unwrap()
}

/// Ends machines a failed test has left.
impl Drop for World {
    fn drop(&mut self) {
        for dir in self.machines.lock().unwrap().iter() {
            if let Some(pid) = pid_in(dir) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// The QEMU of a machine's directory, if it runs.
pub fn pid_in(dir: &Path) -> Option<rustix::process::Pid> {
    let text = std::fs::read(dir.join("machine.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let pid = record["process"]["pid"].as_i64()? as i32;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let running = fields.next()? != "Z";
    let same = fields.nth(18)?.parse().ok() == record["process"]["start_time"].as_u64();
    (running && same).then(|| rustix::process::Pid::from_raw(pid))?
}

/// Proportional memory of a process in KiB.
pub fn pss_kib(pid: rustix::process::Pid) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub fn ask(value: u64) -> Ask {
    Ask {
        value,
        explicit: false,
    }
}

fn guest_program() -> PathBuf {
    std::env::var_os("MOTU_GUEST_BIN").map_or_else(
        || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../../target/guest/x86_64-unknown-linux-gnu/guest/motu-guest")
        },
        PathBuf::from,
    )
}

/// A root of one static program, named by a digest as stored environments are. `MOTU_TEST_BUSYBOX` names a program of the
/// guest's architecture, where that is not the host's.
fn busybox_root(home: &Path) -> PathBuf {
    let foreign = std::env::var_os("MOTU_TEST_BUSYBOX").map(PathBuf::from);
    let name = if foreign.is_some() { "a6" } else { "b0" };
    let blob = home.join(format!("sha256-{}", name.repeat(32)));
    let root = blob.join("root");
    if root.exists() {
        return root;
    }
    let staged = tempfile::tempdir_in(home).unwrap().keep();
    let tree = staged.join("root");
    for dir in ["bin", "etc", "tmp", "root", "workspace"] {
        std::fs::create_dir_all(tree.join(dir)).unwrap();
    }
    let busybox = foreign.unwrap_or_else(|| motu_needs::find("busybox"));
    std::fs::copy(busybox, tree.join("bin/busybox")).unwrap();
    let applets = motu_needs::command("busybox")
        .arg("--list")
        .output()
        .unwrap();
    for applet in String::from_utf8_lossy(&applets.stdout).lines() {
        let _ = std::os::unix::fs::symlink("busybox", tree.join("bin").join(applet));
    }
    let users = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/workspace:/bin/sh\n";
    std::fs::write(tree.join("etc/passwd"), users).unwrap();
    std::fs::write(
        tree.join("etc/group"),
        "root:x:0:\ntty:x:5:\nuser:x:1000:\n",
    )
    .unwrap();
    std::os::unix::fs::chown(tree.join("workspace"), Some(1000), Some(1000)).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(tree.join("tmp"), open).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&tree, open).unwrap();
    // Another test may have been faster.
    let _ = std::fs::rename(&staged, &blob);
    root
}

/// A conversation with a guest.
pub struct Guest {
    link: Link,
}

impl Guest {
    pub async fn ping(&self) {
        let stream = self.open(Verb::Ping(Ping::default())).await;
        let (_, _, outcome) = drain(stream).await;
        assert_eq!(outcome.kind, 0, "{}", outcome.message);
    }

    /// Runs a script as root and returns what it printed.
    pub async fn sh(&self, script: &str) -> String {
        self.sh_as("root", script).await
    }

    pub async fn sh_as(&self, user: &str, script: &str) -> String {
        let start = Start {
            follow: true,
            timeout_ms: 60_000,
            ..shell(user, script)
        };
        let (out, exited, outcome) = drain(self.open(Verb::Start(start)).await).await;
        assert_eq!(outcome.kind, 0, "{}", outcome.message);
        assert_eq!(exited, Some(0), "{script}: {out}");
        out.trim_end().to_string()
    }

    /// Starts a script and leaves it alone.
    pub async fn start(&self, script: &str) {
        let stream = self.open(Verb::Start(shell("root", script))).await;
        let (_, _, outcome) = drain(stream).await;
        assert_eq!(outcome.kind, 0, "{}", outcome.message);
    }

    async fn open(&self, verb: Verb) -> Stream {
        let request = Request { verb: Some(verb) }.encode_to_vec();
        self.link.open(request.into()).await.unwrap()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.link.close();
    }
}

fn shell(user: &str, script: &str) -> Start {
    Start {
        argv: vec![Bytes::copy_from_slice(script.as_bytes())],
        shell: true,
        user: user.to_string(),
        cwd: Bytes::from_static(b"/"),
        ..Start::default()
    }
}

async fn drain(mut stream: Stream) -> (String, Option<i32>, Outcome) {
    let (mut out, mut exited) = (Vec::new(), None);
    loop {
        match stream.rx.recv().await.unwrap() {
            Event::Data { channel, bytes } if channel == CHANNEL_OUT => out.extend(bytes),
            Event::Message(bytes) => {
                if let Some(Said::Exited(how)) = Note::decode(bytes).unwrap().said {
                    exited = Some(how.code);
                }
            }
            Event::End(bytes) => {
                let out = String::from_utf8_lossy(&out).into_owned();
                return (out, exited, Outcome::decode(bytes).unwrap());
            }
            Event::Reset => panic!("the guest reset the stream"),
            Event::Data { .. } | Event::Eof => {}
        }
    }
}

/// A second name for everything in a tree that others may change meanwhile.
fn link_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") || name == "spares" {
            continue;
        }
        let target = to.join(&name);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => link_tree(&entry.path(), &target),
            _ => drop(std::fs::hard_link(entry.path(), target)),
        }
    }
}
