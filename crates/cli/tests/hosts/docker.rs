//! Engines in common setups: named by a context or a variable, or rootless.

use motu_testkit::engine::{Engine, Kind};
use motu_testkit::story::{Story, Told};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an engine may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);
/// A user id that nobody on the host has.
const ORDINARY: u32 = 64_132;

/// The doctor's line about the engine it found.
fn engine_line(doctor: &Told) -> String {
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let mut runtimes = doctor["runtimes"].as_array().unwrap().iter();
    let docker = runtimes.find(|one| one["name"] == "docker").unwrap();
    let mut checks = docker["checks"].as_array().unwrap().iter();
    let engine = checks.find(|check| check["name"] == "engine").unwrap();
    engine["detail"].as_str().unwrap().to_string()
}

#[test]
fn an_engine_is_found_by_context_and_by_variable() {
    let engine = match Engine::start(Kind::Docker) {
        Ok(engine) => engine,
        Err(reason) => return motu_needs::skip(&reason),
    };
    let socket = format!("unix://{}", engine.socket().display());
    let story = Story::new();
    // A daemon has the variables it was started with, so each set of variables needs a new daemon.
    let doctor = |variables: &[(&str, &str)]| {
        let mut command = story.command(&["doctor", "--json"]);
        command.envs(variables.iter().copied());
        let told = story.told(command);
        assert_eq!(story.motu(&["serve", "--stop"]).code, 0);
        engine_line(&told)
    };
    let by_variable = doctor(&[("DOCKER_HOST", &socket)]);
    assert!(
        by_variable.contains("found by DOCKER_HOST"),
        "{by_variable}"
    );
    assert!(by_variable.starts_with("Docker "), "{by_variable}");
    let docker = |words: &[&str]| {
        let mut command = motu_needs::command("docker");
        command.args(words).env("HOME", story.path());
        let told = story.told(command);
        assert_eq!(told.code, 0, "{told}");
    };
    let address = format!("host={socket}");
    docker(&["context", "create", "mine", "--docker", &address]);
    docker(&[
        "context",
        "create",
        "far",
        "--docker",
        "host=tcp://192.0.2.1:2375",
    ]);
    let by_name = doctor(&[("DOCKER_CONTEXT", "mine")]);
    assert!(by_name.contains("found by the docker context"), "{by_name}");
    docker(&["context", "use", "mine"]);
    let in_use = doctor(&[]);
    assert!(in_use.starts_with("Docker "), "{in_use}");
    assert!(in_use.contains("found by the docker context"), "{in_use}");
    // A remote engine is refused, and no other engine is used instead.
    let far = doctor(&[("DOCKER_CONTEXT", "far")]);
    assert!(far.contains("tcp://192.0.2.1:2375"), "{far}");
}

/// A user with a range of subordinate ids and a rootless Podman, in a mount namespace whose passwd
/// file has them.
struct User {
    story: Story,
    namespace: Child,
    podman: Option<Child>,
}

impl User {
    fn new() -> Option<User> {
        if !rustix::process::geteuid().is_root() {
            motu_needs::skip("only root makes a user for a test");
            return None;
        }
        let story = Story::new();
        let place = story.path().to_path_buf();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["own", "own/run", "own/run/podman"] {
            std::fs::create_dir(place.join(name)).unwrap();
            chown(place.join(name), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        std::fs::copy(motu_testkit::program(), place.join("motu")).unwrap();
        let home = place.join("own");
        let known = format!(
            "someone:x:{ORDINARY}:{ORDINARY}::{}:/bin/sh",
            home.display()
        );
        let mut script = String::new();
        for (file, line) in [
            ("passwd", known.as_str()),
            ("subuid", "someone:1410000000:65536"),
            ("subgid", "someone:1410000000:65536"),
        ] {
            let host = Path::new("/etc").join(file);
            let text = std::fs::read_to_string(&host).unwrap_or_default();
            std::fs::write(place.join(file), format!("{text}{line}\n")).unwrap();
            let (from, to) = (place.join(file), host.display().to_string());
            script += &format!("mount --bind {} {to} && ", from.display());
        }
        script += "echo ready && exec cat";
        let mut namespace = motu_needs::command("unshare")
            .args(["--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = namespace.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(User {
            story,
            namespace,
            podman: None,
        })
    }

    fn own(&self) -> PathBuf {
        self.story.path().join("own")
    }

    /// A program that runs as that user, in that mount namespace.
    fn command(&self, program: &Path) -> Command {
        let own = self.own();
        let mut command = motu_needs::command("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.namespace.id()))
            .arg(motu_needs::command("setpriv").get_program())
            .args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")])
            .arg("--clear-groups")
            .arg(program)
            .current_dir(&own)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", &own)
            .env("XDG_RUNTIME_DIR", own.join("run"))
            .env("MOTU_HOME", own.join("state"))
            .stdin(Stdio::null());
        command
    }

    fn motu(&self, args: &[&str]) -> Told {
        let mut command = self.command(&self.story.path().join("motu"));
        command.args(args);
        self.story.told(command)
    }

    /// Starts Podman at the socket path where clients look for it.
    fn start_podman(&mut self) {
        let own = self.own();
        let log = std::fs::File::create(self.story.path().join("log")).unwrap();
        let podman = motu_needs::find("podman");
        let socket = own.join("run/podman/podman.sock");
        let mut command = self.command(&podman);
        command
            .arg("--runtime")
            .arg(motu_needs::find("runc"))
            .arg("--root")
            .arg(own.join("data"))
            .arg("--runroot")
            .arg(own.join("run/containers"))
            .arg("--tmpdir")
            .arg(own.join("run/tmp"))
            .args([
                "--storage-driver=vfs",
                "--cgroup-manager=cgroupfs",
                "--events-backend=file",
            ])
            .args(["system", "service", "--time=0"])
            .arg(format!("unix://{}", socket.display()))
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.podman = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while !socket.exists() {
            let log = std::fs::read_to_string(self.story.path().join("log"));
            assert!(
                begun.elapsed() < PATIENCE,
                "podman did not come up: {log:?}"
            );
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for User {
    /// Ends machines, then the daemon, then the engine with its processes, then the namespace.
    fn drop(&mut self) {
        let _ = self.motu(&["rm", "small"]);
        let _ = self.motu(&["serve", "--stop"]);
        if let Some(podman) = &mut self.podman {
            let pid = rustix::process::Pid::from_child(podman);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = podman.wait();
        }
        // Podman leaves a process that holds its user namespace open; its environment names our
        // directory.
        let ours = format!("XDG_RUNTIME_DIR={}/run", self.own().display());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let env = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_ours = env
                .split(|byte| *byte == 0)
                .any(|line| line == ours.as_bytes());
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid
                .filter(|_| is_ours)
                .and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        drop(self.namespace.stdin.take());
        let _ = self.namespace.wait();
    }
}

#[test]
fn an_ordinary_users_podman_is_found_and_says_what_it_cannot_limit() {
    let Some(mut user) = User::new() else { return };
    user.start_podman();
    let doctor = user.motu(&["doctor", "--json"]);
    let line = engine_line(&doctor);
    assert!(
        line.starts_with("Podman ") && line.contains("its usual place"),
        "{line}"
    );
    let pulled = user.motu(&["env", "pull", "busybox"]);
    assert_eq!(pulled.code, 0, "{pulled}");
    let create = [
        "create",
        "busybox",
        "--runtime",
        "docker",
        "--id",
        "small",
        "--json",
    ];
    let made = user.motu(&create);
    assert_eq!(made.code, 0, "{made}");
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(
        (&made["isolation"], &made["network"]),
        (&"container".into(), &"off".into())
    );
    let said = user.motu(&[
        "exec",
        "small",
        "--",
        "sh",
        "-c",
        "id -u; cat /proc/self/uid_map",
    ]);
    assert_eq!(said.code, 0, "{said}");
    let map: Vec<_> = said.stdout.split_whitespace().collect();
    assert_eq!(map[..4], ["0", "0", &ORDINARY.to_string(), "1"], "{said}");
    // Limits reported as enforced are enforced; others are refused if they are required.
    let memory = made["limits"].as_array().unwrap().iter();
    let mut memory = memory.filter(|limit| limit["name"] == "mem_mib");
    let enforced = memory.all(|limit| limit["enforced"] == true);
    let insisted = [
        "run",
        "busybox",
        "--runtime",
        "docker",
        "--mem-mib",
        "64",
        "--",
        "true",
    ];
    let insisted = user.motu(&insisted);
    assert_eq!(insisted.code == 0, enforced, "{insisted}");
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let runtimes = doctor["runtimes"].as_array().unwrap();
    let docker = runtimes.iter().find(|one| one["name"] == "docker").unwrap();
    let checks = docker["checks"].as_array().unwrap();
    let limits = checks
        .iter()
        .find(|check| check["name"] == "limits")
        .unwrap();
    assert_eq!(limits["health"] == "ok", enforced, "{limits}");
    let gone = user.motu(&["rm", "small"]);
    assert_eq!(gone.code, 0, "{gone}");
}
