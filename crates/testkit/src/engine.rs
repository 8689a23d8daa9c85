//! A container engine of a test.

use motu_needs::command;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long an engine may take to start and stop on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Docker,
    Podman,
}

/// An engine with its data, state and socket in one directory.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
    dir: TempDir,
    process: Child,
}

impl Engine {
    /// Starts one; an error with the reason if that is not possible here.
    pub fn start(kind: Kind) -> Result<Engine, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(format!("{kind:?}: an engine of the test's own needs root"));
        }
        let dir = tempfile::Builder::new()
            .prefix("engine-")
            .tempdir()
            .map_err(|error| error.to_string())?;
        let process = spawn(kind, &dir)?;
        let engine = Engine { kind, dir, process };
        engine.answers()?;
        Ok(engine)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn answers(&self) -> Result<(), String> {
        let begun = Instant::now();
        while self.get("/_ping") != "OK" {
            if begun.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.dir.path().join("log"));
                return Err(format!("{:?} did not come up: {log:?}", self.kind));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn get(&self, path: &str) -> String {
        let output = command("curl")
            .args(["--silent", "--max-time", "20", "--unix-socket"])
            .arg(self.socket())
            .arg(format!("http://engine{path}"))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// Every container there is, as the engine lists them.
    pub fn containers(&self) -> String {
        self.get("/containers/json?all=1")
    }

    /// How many images a state directory has.
    pub fn images_of(&self, identity: &str) -> usize {
        self.get("/images/json")
            .matches(&format!("localhost/motu-{}/", identity.trim()))
            .count()
    }

    /// Kills only the engine process.
    pub fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    /// Starts it again with its data.
    pub fn again(&mut self) -> Result<(), String> {
        // Its helper ends after it, and holds what the next one needs.
        let begun = Instant::now();
        while self.started("containerd\0").next().is_some() {
            if begun.elapsed() > PATIENCE {
                return Err("what the engine started does not end".to_string());
            }
            std::thread::sleep(LOOK);
        }
        // A reparented helper may stay a zombie, and an engine takes a zombie with the recorded pid
        // for a running one.
        for stale in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(self.dir.path().join(stale));
        }
        self.process = spawn(self.kind, &self.dir)?;
        self.answers()
    }

    /// Processes of the engine, by the start of their command line, which contains our directory.
    fn started<'a>(&self, begins: &'a str) -> impl Iterator<Item = i32> + use<'a> {
        let ours = self.dir.path().to_string_lossy().into_owned();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(move |pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.starts_with(begins) && line.contains(&ours)
        })
    }
}

fn spawn(kind: Kind, dir: &TempDir) -> Result<Child, String> {
    let at = |name: &str| dir.path().join(name);
    let mut log = std::fs::File::options();
    let log = log.create(true).append(true).open(at("log"));
    let log = log.map_err(|error| error.to_string())?;
    let socket = format!("unix://{}", at("sock").display());
    let mut engine: Command;
    match kind {
        Kind::Docker => {
            let runtimes = serde_json::json!({ "runtimes": { "runsc": {
                "path": motu_needs::find("runsc"),
                "runtimeArgs": ["--host-uds=create", "--network=none"],
            }}});
            let settings = std::fs::write(at("daemon.json"), runtimes.to_string());
            settings.map_err(|error| error.to_string())?;
            engine = command("dockerd");
            engine
                .arg("--config-file")
                .arg(at("daemon.json"))
                .arg("--data-root")
                .arg(at("data"))
                .arg("--exec-root")
                .arg(at("exec"))
                .arg("--pidfile")
                .arg(at("pid"))
                .args(["--host", &socket])
                .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
                .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
                .args(["--cgroup-parent", &group(dir)]);
        }
        Kind::Podman => {
            engine = command("podman");
            engine
                .arg("--root")
                .arg(at("data"))
                .arg("--runroot")
                .arg(at("run"))
                .arg("--tmpdir")
                .arg(at("tmp"))
                // The default crun refuses hosts with both cgroup versions.
                .arg("--runtime")
                .arg(motu_needs::find("runc"))
                .args(["--cgroup-manager=cgroupfs", "--events-backend=file"])
                .args(["system", "service", "--time=0", &socket]);
        }
    }
    engine
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(|error| error.to_string())?)
        .stderr(log)
        .spawn()
        .map_err(|error| format!("{kind:?}: {error}"))
}

/// The parent cgroup of an engine's containers.
fn group(dir: &TempDir) -> String {
    let name = dir.path().file_name().unwrap_or_default();
    format!("/{}", name.to_string_lossy())
}

impl Drop for Engine {
    /// Removes everything of an engine: processes, mounts, cgroups, files.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        // On SIGTERM it unmounts its own mounts.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let begun = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.process.kill();
                break;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.process.wait();
        // A killed engine may leave container monitors (conmon).
        for pid in self.started("/usr/bin/co") {
            let pid = rustix::process::Pid::from_raw(pid);
            let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        }
        let ours = self.dir.path().to_string_lossy().into_owned();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| place.starts_with(&ours)) {
            let _ = command("umount").args(["--lazy", place]).status();
        }
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten();
        let tops = hierarchies.flatten().map(|entry| entry.path());
        for top in tops.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let _ = std::fs::remove_dir(top.join(group(&self.dir).trim_start_matches('/')));
            // Podman's own groups, which it makes again; one in use stays.
            for group in ["libpod_parent/conmon", "libpod_parent"] {
                let _ = std::fs::remove_dir(top.join(group));
            }
        }
    }
}
