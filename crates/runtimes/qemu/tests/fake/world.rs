//! A state directory whose QEMU is the fake, and whose kernel is nothing.

use motu_core::config::QemuConfig;
use motu_core::runtime::{Ask, Machine, MachineLimits, MachineSpec};
use motu_core::{Accel, SandboxId};
use motu_qemu::{Qemu, Settings};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a kernel must have; this one has it built in.
const MODULES: [&str; 6] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "ext4",
    "overlay",
];

pub struct World {
    pub runtime: Qemu,
    /// After the runtime, whose machines made ahead end with it, and before their records.
    _groups: Groups,
    scratch: tempfile::TempDir,
    spares: usize,
    machines: Mutex<Vec<PathBuf>>,
}

impl World {
    /// One whose QEMU knows these conversations.
    pub fn new(conversations: &[&str]) -> World {
        World::made(conversations, 0)
    }

    pub fn with_spares(conversations: &[&str]) -> World {
        World::made(conversations, 1)
    }

    fn made(conversations: &[&str], spares: usize) -> World {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // QEMU is a user of its own, who has to get here.
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let place = scratch.path();
        for dir in ["fake/bin", "fake/share", "kernel/1", "home/cache"] {
            std::fs::create_dir_all(place.join(dir)).unwrap();
        }
        std::fs::copy(program(), place.join("fake/bin/qemu-system-x86_64")).unwrap();
        std::fs::write(place.join("fake/share/qboot.rom"), "").unwrap();
        std::fs::write(place.join("kernel/vmlinuz"), "a kernel").unwrap();
        let built_in = MODULES.map(|name| format!("kernel/{name}.ko\n")).concat();
        std::fs::write(place.join("kernel/1/modules.builtin"), built_in).unwrap();
        let root = root(place);
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/true"), "").unwrap();
        let world = World {
            runtime: runtime(place, spares),
            _groups: Groups(place.join("home")),
            scratch,
            spares,
            machines: Mutex::default(),
        };
        world.knows(conversations);
        world
    }

    pub fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    fn fake(&self) -> PathBuf {
        self.scratch.path().join("fake")
    }

    /// From now on its QEMU knows these conversations, as they were recorded, and no others.
    pub fn knows(&self, names: &[&str]) {
        let to = self.fake().join("conversations");
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir(&to).unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
        for name in names {
            let name = format!("{name}.qmp");
            std::fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }

    /// Makes another conversation of one.
    pub fn alters(&self, name: &str, how: impl FnOnce(&str) -> String) {
        let file = self.fake().join(format!("conversations/{name}.qmp"));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, how(&text)).unwrap();
    }

    /// What its QEMU says when it is to do this, or puts into what it does.
    pub fn says(&self, when: &str, said: &str) {
        std::fs::write(self.fake().join(when), said).unwrap();
    }

    pub fn forgets(&self, when: &str) {
        std::fs::remove_file(self.fake().join(when)).unwrap();
    }

    /// Nothing of before is remembered but what is on the disk.
    pub fn is_started_anew(&mut self) {
        self.runtime = runtime(self.scratch.path(), self.spares);
    }

    pub fn templates(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home().join("cache/templates")).unwrap();
        let dirs = entries.flatten().map(|entry| entry.path());
        dirs.filter(|path| path.join("manifest.json").exists())
            .collect()
    }

    pub fn spec(&self) -> MachineSpec {
        let id = SandboxId::generate();
        let dir = self.home().join("machines").join(id.as_str());
        std::fs::create_dir_all(&dir).unwrap();
        self.machines.lock().unwrap().push(dir.clone());
        let ask = |value| Ask {
            value,
            explicit: false,
        };
        MachineSpec {
            hostname: id.to_string(),
            id,
            dir,
            environment: "fake".into(),
            root: root(self.scratch.path()),
            wants_sudo: false,
            limits: MachineLimits {
                vcpu_count: ask(1),
                mem_mib: ask(128),
                disk_mib: ask(16),
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

    pub fn is_alive(&self, machine: &Machine) -> bool {
        pid_in(&machine.dir).is_some()
    }
}

/// Ends what a test has left.
impl Drop for World {
    fn drop(&mut self) {
        for pid in self
            .machines
            .lock()
            .unwrap()
            .iter()
            .filter_map(|dir| pid_in(dir))
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The control groups of what a test has left, which the next daemon would remove.
struct Groups(PathBuf);

impl Drop for Groups {
    fn drop(&mut self) {
        let mut places = vec![self.0.clone()];
        while let Some(place) = places.pop() {
            for group in groups_in(&place) {
                let end = Instant::now() + Duration::from_secs(5);
                // The last process takes a moment to leave.
                while group.exists() && Instant::now() < end {
                    let _ = std::fs::remove_dir(&group);
                    std::thread::yield_now();
                }
                if let Some(all) = group.parent() {
                    let _ = std::fs::remove_dir(all);
                }
            }
            let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            places.extend(below.map(|entry| entry.path()));
        }
    }
}

fn groups_in(dir: &Path) -> Vec<PathBuf> {
    let text = std::fs::read(dir.join("machine.json")).unwrap_or_default();
    let record: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let groups = record["cgroups"].as_array().into_iter().flatten();
    groups
        .filter_map(|group| group.as_str().map(PathBuf::from))
        .collect()
}

fn runtime(place: &Path, spares: usize) -> Qemu {
    // Of a guest only its architecture is looked at: nothing runs it.
    let mut own = std::fs::read("/proc/self/exe").unwrap();
    own.truncate(64);
    let settings = Settings {
        guest: own.into(),
        home: place.join("home"),
        accel: Accel::Tcg,
        spares,
        config: QemuConfig {
            program: Some(place.join("fake/bin/qemu-system-x86_64")),
            kernel: Some(place.join("kernel/vmlinuz")),
            modules: Some(place.join("kernel")),
            ..QemuConfig::default()
        },
    };
    Qemu::new(settings).unwrap()
}

/// A small environment, named by a digest as stored ones are.
fn root(place: &Path) -> PathBuf {
    place.join(format!("sha256-{}/root", "fa".repeat(32)))
}

/// The example, which is built with the tests.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.ancestors().nth(2).unwrap().join("examples/fake-qemu");
    assert!(beside.exists(), "{} is not built", beside.display());
    beside
}

/// The process of a machine's directory, if it runs.
fn pid_in(dir: &Path) -> Option<rustix::process::Pid> {
    let text = std::fs::read(dir.join("machine.json")).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let pid = record["process"]["pid"].as_i64()? as i32;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.get(stat.rfind(')')? + 2..)?.chars().next()?;
    (state != 'Z').then(|| rustix::process::Pid::from_raw(pid))?
}
