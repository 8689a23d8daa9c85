//! An ordinary user of a host with an internet.

use super::{POLICY, World};
use crate::story::Told;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// A user id that nobody on the host has.
const ORDINARY: u32 = 64_124;

/// A user with only a directory and a copy of the program: the program itself may be in a place
/// they cannot read.
#[derive(Debug)]
pub struct User {
    pub world: World,
    pub own: PathBuf,
}

impl User {
    pub fn new() -> Option<User> {
        let world = World::new("container")?;
        let place = world.story.path();
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
        let own = place.join("own");
        std::fs::create_dir_all(own.join("state/policies")).unwrap();
        std::fs::copy(crate::program(), own.join("motu")).unwrap();
        std::fs::write(own.join("state/policies/test.toml"), POLICY).unwrap();
        for path in ["", "state", "state/policies", "state/policies/test.toml"] {
            chown(own.join(path), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(own.join("state"), closed).unwrap();
        // Subordinate ids, as hosts assign them to every new user.
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

    pub fn motu(&self, args: &[&str]) -> Told {
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

    /// Fetches a page. The static program has no resolver, so the name is looked up first.
    pub fn fetch(&self, id: &str, name: &str, address: &str) -> Told {
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

/// The root of the busybox environment that all tests share.
fn busybox(home: &Path) -> Option<PathBuf> {
    let environments = home.join("environments");
    let Ok(text) = std::fs::read(environments.join("names/busybox.json")) else {
        motu_needs::skip("network: busybox is not pulled into target/test-home");
        return None;
    };
    let named: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let digest = named["digest"].as_str().unwrap().replace(':', "-");
    Some(environments.join("blobs").join(digest).join("root"))
}
