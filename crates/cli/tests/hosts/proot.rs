//! Machines of the proot runtime in common use: chosen by name, with a warning, as an ordinary
//! user.

use motu_testkit::story::{Story, Told};
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

/// A user id that nobody on the host has.
const ORDINARY: u32 = 64_131;
const ASKED: [&str; 3] = ["--runtime", "proot", "--allow-host-compat"];

fn with_busybox() -> Option<Story> {
    let story = Story::new();
    if !story.has_busybox() {
        motu_needs::skip("proot: busybox is not pulled into target/test-home");
        return None;
    }
    Some(story)
}

fn json(told: &Told) -> serde_json::Value {
    serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn report<'a>(doctor: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let mut reports = doctor["runtimes"].as_array().unwrap().iter();
    reports.find(|report| report["name"] == name).unwrap()
}

#[test]
fn it_is_had_by_name_and_says_what_it_is() {
    let Some(story) = with_busybox() else { return };
    let doctor = json(&story.motu(&["doctor", "--json"]));
    let known = report(&doctor, "proot");
    assert_eq!(
        (&known["works"], &known["isolation"]),
        (&true.into(), &"none".into())
    );
    assert_ne!(doctor["auto"], "proot");
    let refused = story.motu(&["run", "busybox", "--runtime", "proot", "--", "true"]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("--allow-host-compat"), "{refused}");
    let create = [&["create", "busybox"][..], &ASKED, &["--id", "below"]].concat();
    let made = story.motu(&create);
    assert_eq!(made.code, 0, "{made}");
    assert!(made.stderr.contains("not isolated: proot"), "{made}");
    let listed = story.motu(&["ps", "--json"]);
    let listed = json(&listed);
    let one = listed
        .as_array()
        .map_or(&listed["sandboxes"][0], |all| &all[0]);
    assert_eq!(
        (&one["runtime"], &one["isolation"]),
        (&"proot".into(), &"none".into())
    );
    let said = story.motu(&[
        "exec",
        "below",
        "--",
        "sh",
        "-c",
        "id -u; test ! -e /usr/lib/os-release",
    ]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "0\n"), "{said}");
    let gone = story.motu(&["rm", "below"]);
    assert_eq!(gone.code, 0, "{gone}");
}

#[test]
fn a_host_without_proot_is_told_how_to_get_it() {
    let story = Story::new();
    let empty = story.path().join("no-programs");
    std::fs::create_dir(&empty).unwrap();
    let told = |args: &[&str]| {
        let mut command = story.command(args);
        command.env("PATH", &empty);
        story.told(command)
    };
    let doctor = json(&told(&["doctor", "--json"]));
    let known = report(&doctor, "proot");
    assert_eq!(known["works"], false);
    assert_eq!(known["fix"], "apt-get install proot");
    let refused = told(&[&["run", "busybox"][..], &ASKED, &["--", "true"]].concat());
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("there is no proot"), "{refused}");
}

/// A user with a directory and a copy of the program, and no subordinate ids.
struct User {
    story: Story,
    own: PathBuf,
}

impl User {
    fn new() -> Option<User> {
        let story = with_busybox()?;
        let ended = story.motu(&["serve", "--stop"]);
        assert_eq!(ended.code, 0, "{ended}");
        let place = story.path();
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
        let own = place.join("own");
        std::fs::create_dir_all(own.join("state")).unwrap();
        std::fs::copy(motu_testkit::program(), own.join("motu")).unwrap();
        let copied = motu_needs::command("cp")
            .arg("-a")
            .arg(story.home().join("environments"))
            .arg(own.join("state"))
            .status();
        assert!(copied.unwrap().success());
        give(&own);
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(own.join("state"), closed).unwrap();
        Some(User { story, own })
    }

    fn motu(&self, args: &[&str]) -> Told {
        let mut command = motu_needs::command("setpriv");
        command
            .args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")])
            .args(["--clear-groups", "--bounding-set=-all", "--no-new-privs"])
            .arg(self.own.join("motu"))
            .args(args)
            .current_dir(&self.own)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.own)
            .env("MOTU_HOME", self.own.join("state"))
            .stdin(std::process::Stdio::null());
        self.story.told(command)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.motu(&["rm", "below"]);
        let _ = self.motu(&["serve", "--stop"]);
    }
}

/// Makes the user the owner of everything in a tree.
fn give(path: &Path) {
    lchown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

#[test]
fn an_ordinary_user_without_any_rights_has_machines() {
    let Some(user) = User::new() else { return };
    let create = [&["create", "busybox"][..], &ASKED, &["--id", "below"]].concat();
    let made = user.motu(&create);
    assert_eq!(made.code, 0, "{made}");
    let script = "id -u; echo x > /etc/new && chown 7:7 /etc/new && cat /etc/new; \
                  mkdir -p /root/closed/in && chmod 0 /root/closed; \
                  cat /proc/self/loginuid > /dev/null; tty > /dev/null; true";
    let said = user.motu(&["exec", "below", "--", "sh", "-c", script]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "0\nx\n"), "{said}");
    let machine = user.own.join("state/machines/proot/below");
    assert!(machine.join("root/etc/new").exists());
    // Directories without permissions for their owner are removed too.
    let gone = user.motu(&["rm", "below"]);
    assert_eq!(gone.code, 0, "{gone}");
    assert!(!machine.exists());
}
