//! An ordinary user of a host: an account with a range of ids and control groups of their own, as service managers hand
//! them out. The account exists in a mount namespace of the test alone.

use crate::story::{Story, Told};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A user id that nobody on the host has, and the first of the ids that are theirs.
const ORDINARY: u32 = 64_125;
const RANGE: &str = "someone:1420000000:65536";
/// Old control groups that a user can be given.
const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "freezer"];
/// Enters groups, then goes on as somebody else: `ENTRY … -- PROGRAM …`.
const ENTER: &str =
    r#"cd "$HOME"; while [ "$1" != -- ]; do echo 0 >"$1"; shift; done; shift; exec "$@""#;
const PATIENCE: Duration = Duration::from_secs(10);

/// The user.
#[derive(Debug)]
pub struct User {
    pub story: Story,
    namespace: Child,
    groups: Vec<PathBuf>,
    entries: Vec<PathBuf>,
}

impl User {
    pub fn new() -> Option<User> {
        if !rustix::process::geteuid().is_root() {
            motu_needs::skip("only root makes a user for a test");
            return None;
        }
        let story = Story::new();
        let place = story.path().to_path_buf();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["own", "own/state", "own/run"] {
            std::fs::create_dir(place.join(name)).unwrap();
            chown(place.join(name), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
        std::fs::create_dir(place.join("bin")).unwrap();
        // The program itself may be in a place the user cannot read.
        std::fs::copy(crate::program(), place.join("bin/motu")).unwrap();
        let namespace = account(&place);
        let (groups, entries) = delegated();
        Some(User {
            story,
            namespace,
            groups,
            entries,
        })
    }

    /// Takes the user's ids away: nobody has given them any. The files that do lie above those of
    /// the host, in the user's mount namespace.
    pub fn without_ids(self) -> User {
        let taken = motu_needs::command("nsenter")
            .arg(format!("--mount=/proc/{}/ns/mnt", self.namespace.id()))
            .args(["umount", "/etc/subuid", "/etc/subgid"])
            .status();
        assert!(taken.unwrap().success());
        self
    }

    pub fn own(&self) -> PathBuf {
        self.story.path().join("own")
    }

    pub fn state(&self) -> PathBuf {
        self.own().join("state")
    }

    /// Makes something of root's the user's.
    pub fn give(&self, path: &Path) {
        chown(path, Some(ORDINARY), Some(ORDINARY)).unwrap();
    }

    /// A program that runs as that user, in their groups, without the directories of administrators in its search path.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let own = self.own();
        let mut command = motu_needs::command("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.namespace.id()))
            .args(["sh", "-c", ENTER, "sh"])
            .args(&self.entries)
            .arg("--")
            .arg(motu_needs::find("setpriv"))
            .args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")])
            .arg("--clear-groups")
            .arg(program.as_ref())
            .current_dir(&own)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.bin().display()))
            .env("HOME", &own)
            .env("XDG_RUNTIME_DIR", own.join("run"))
            .env("MOTU_HOME", self.state())
            .env("COLUMNS", "100")
            .stdin(Stdio::null());
        command
    }

    fn bin(&self) -> PathBuf {
        self.story.path().join("bin")
    }

    pub fn motu(&self, args: &[&str]) -> Told {
        let mut command = self.command(self.bin().join("motu"));
        command.args(args);
        self.story.told(command)
    }

    /// Installs an environment that all tests share, as the user's own. `None` where there is none.
    pub fn installs(&self, environment: &str) -> Option<()> {
        let root = crate::environments();
        let file = |name: &str| format!("{}.json", name.replace(':', "%3A"));
        if !root.join("names").join(file(environment)).exists() {
            motu_needs::skip(&format!(
                "{environment} is not pulled into target/test-home"
            ));
            return None;
        }
        let shared = self.story.home().join("environments");
        if !shared.exists() {
            std::fs::create_dir_all(self.story.home()).unwrap();
            std::os::unix::fs::symlink(root, shared).unwrap();
        }
        let archive = self.story.path().join("environment.tar");
        let told = archive.to_str().unwrap();
        let exported = self.story.motu(&["env", "export", environment, "-o", told]);
        assert_eq!(exported.code, 0, "{exported}");
        std::fs::set_permissions(&archive, std::fs::Permissions::from_mode(0o644)).unwrap();
        // What is imported may not take the name of what is built: it gets that afterwards.
        let imported = self.motu(&["env", "import", told, "taken:1"]);
        assert_eq!(imported.code, 0, "{imported}");
        let names = self.state().join("environments/names");
        let text = std::fs::read_to_string(names.join(file("taken:1"))).unwrap();
        let named = names.join(file(environment));
        std::fs::write(&named, text.replace("taken:1", environment)).unwrap();
        self.give(&named);
        std::fs::remove_file(archive).unwrap();
        Some(())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for (list, field, remove) in [
            (
                &["workspace", "list", "--json"][..],
                "workspace_id",
                &["workspace", "delete"][..],
            ),
            (&["ps", "--json"], "sandbox_id", &["rm"]),
        ] {
            for id in crate::story::ids(&self.motu(list), field) {
                let _ = self.motu(&[remove, &[&id]].concat()).code;
            }
        }
        let _ = self.motu(&["serve", "--stop"]).code;
        // Whoever waits in the namespace leaves with its standard input.
        drop(self.namespace.stdin.take());
        let _ = self.namespace.wait();
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.groups
                .retain(|group| std::fs::remove_dir(group).is_err() && group.exists());
            if self.groups.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A mount namespace in which the user has an account and ids.
fn account(place: &Path) -> Child {
    let home = place.join("own");
    let known = format!(
        "someone:x:{ORDINARY}:{ORDINARY}::{}:/bin/sh",
        home.display()
    );
    let mut script = String::new();
    for (file, line) in [
        ("passwd", known.as_str()),
        ("subuid", RANGE),
        ("subgid", RANGE),
    ] {
        let host = Path::new("/etc").join(file);
        let text = std::fs::read_to_string(&host).unwrap_or_default();
        std::fs::write(place.join(file), format!("{text}{line}\n")).unwrap();
        let from = place.join(file);
        script += &format!("mount --bind {} {} && ", from.display(), host.display());
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
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    namespace
}

/// Groups that are the user's, the inner ones first, and the files by which processes enter them.
fn delegated() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let top = Path::new("/sys/fs/cgroup");
    let name = format!("motu-user-{}", std::process::id());
    let own = |group: &Path, files: &[&str]| {
        std::fs::create_dir(group).unwrap();
        chown(group, Some(ORDINARY), Some(ORDINARY)).unwrap();
        for file in files {
            chown(group.join(file), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
    };
    if top.join("cgroup.controllers").exists() {
        // Version 2: a group without processes, whose machines are beside the daemon's own.
        let files = ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
        let (group, daemon) = (top.join(&name), top.join(&name).join("daemon"));
        own(&group, &files);
        own(&daemon, &files);
        let entry = daemon.join("cgroup.procs");
        return (vec![daemon, group], vec![entry]);
    }
    let mut groups: Vec<PathBuf> = Vec::new();
    for controller in CONTROLLERS {
        let group = top.join(controller).join(&name);
        // One directory may be several controllers'.
        if top.join(controller).is_dir() && !group.exists() {
            own(&group, &["tasks", "cgroup.procs"]);
            groups.push(group);
        }
    }
    let entries = groups.iter().map(|group| group.join("tasks")).collect();
    (groups, entries)
}
