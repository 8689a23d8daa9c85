//! A network for the sandboxes of an ordinary user: nothing of it was ever root.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[expect(dead_code, reason = "other files tell stories in more ways")]
mod story;
#[path = "network/world.rs"]
#[expect(dead_code, reason = "other files look at more of it")]
mod world;

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use story::Told;
use world::{SERVERS, World};

/// A user of the host that nobody is.
const ORDINARY: u32 = 64_124;

/// Somebody who was given nothing but a directory, and a copy of the program: the program itself may
/// lie where they cannot go.
struct User {
    world: World,
    own: PathBuf,
}

impl User {
    fn new() -> Option<User> {
        let world = World::new("container")?;
        let place = world.story.path();
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
        let own = place.join("own");
        std::fs::create_dir_all(own.join("state/policies")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_motu"), own.join("motu")).unwrap();
        std::fs::write(own.join("state/policies/test.toml"), world::POLICY).unwrap();
        for path in ["", "state", "state/policies", "state/policies/test.toml"] {
            chown(own.join(path), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(own.join("state"), closed).unwrap();
        // Ids for those inside, as a host gives them to everybody who is added to it.
        let known = format!("someone:x:{ORDINARY}:{ORDINARY}::{}:/bin/sh", own.display());
        world.add_line("/etc/passwd", &known);
        for file in ["/etc/subuid", "/etc/subgid"] {
            world.add_line(file, "someone:1400000000:65536");
        }
        let archive = own.join("busybox.tar");
        let packed = motu_needs::command("tar")
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(busybox(&world.story.home())?)
            .arg(".")
            .status();
        assert!(packed.unwrap().success());
        Some(User { world, own })
    }

    fn motu(&self, args: &[&str]) -> Told {
        let mut command = self.world.as_ordinary_user(ORDINARY);
        command
            .arg(self.own.join("motu"))
            .args(args)
            .current_dir(&self.own)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.own)
            .env("MOTU_HOME", self.own.join("state"));
        self.world.story.told(command)
    }

    /// A page of a host. A static program has no resolver of its own: the name is asked for first.
    fn fetch(&self, id: &str, name: &str, address: &str) -> Told {
        let script = format!(
            "nslookup {name} >&2; \
             printf 'GET / HTTP/1.0\\r\\nHost: {name}\\r\\n\\r\\n' | nc -w 20 {address} 80 | grep ^page"
        );
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
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.motu(&["rm", "rootless"]).code;
        let _ = self.motu(&["serve", "--stop"]).code;
    }
}

/// The root of an environment that everybody's tests have.
fn busybox(home: &Path) -> Option<PathBuf> {
    let environments = home.join("environments");
    let Ok(text) = std::fs::read(environments.join("names/busybox.json")) else {
        motu_conformance::skip("network: busybox is not pulled into target/test-home");
        return None;
    };
    let named: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let digest = named["digest"].as_str().unwrap().replace(':', "-");
    Some(environments.join("blobs").join(digest).join("root"))
}

#[test]
fn an_ordinary_users_sandbox_reaches_what_its_policy_names() {
    let Some(user) = User::new() else {
        return;
    };
    let image = format!("tar:{}", user.own.join("busybox.tar").display());
    let made = [
        "create",
        &image,
        "--runtime",
        "container",
        "--policy",
        "test",
        "--id",
        "rootless",
    ];
    let made = user.motu(&made);
    assert_eq!(made.code, 0, "{made}");
    let good = user.fetch("rootless", "good.example", SERVERS);
    assert_eq!(
        (good.code, &*good.stdout),
        (0, "page of good.example\n"),
        "{good}"
    );
    // Neither another name of the same server, nor its address, nor the daemon's own host, nor what
    // no policy opens.
    for (name, address) in [
        ("other.example", SERVERS),
        (SERVERS, SERVERS),
        ("daemon.example", "11.22.33.1"),
        ("here.example", "127.0.0.1"),
        ("cloud.example", "169.254.169.254"),
    ] {
        let closed = user.fetch("rootless", name, address);
        assert_ne!(closed.code, 0, "{name}: {closed}");
    }
    let log = user.motu(&["policy", "log", "rootless"]).stdout;
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let said = |name: &str, allowed: bool| {
        let of = |line: &&serde_json::Value| line["name"] == name && line["allowed"] == allowed;
        assert!(lines.iter().any(|line| of(&line)), "{name}: {log}");
    };
    said("good.example", true);
    said("other.example", false);
    // A daemon that was killed finds the network as it was.
    let listed = user.motu(&["version", "--json"]).stdout;
    let said: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let pid = said["daemon"]["pid"]
        .as_i64()
        .or(said["pid"].as_i64())
        .unwrap();
    let process = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let again = user.fetch("rootless", "good.example", SERVERS);
    assert_eq!(again.code, 0, "{again}");
    let open = user.motu(&["policy", "set", "rootless", "none"]);
    assert_eq!(open.code, 0, "{open}");
    let closed = user.fetch("rootless", "good.example", SERVERS);
    assert_ne!(closed.code, 0, "{closed}");
}
