//! Git over SSH without the key in the machine: a real OpenSSH server, real git and ssh in every
//! runtime, and the gateway's SSH agent between them. Everything runs in network namespaces of the
//! test.

use motu_testkit::network::{SERVERS, World};
use motu_testkit::story::Told;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const POLICY: &str = r#"
version = 1
description = "of a test"

[[allow]]
capability = "ssh"
hosts = ["good.example", "other.example"]
ports = [22, 2222]
opaque = true

[call]
images = ["IMAGE"]
secrets = ["deploy"]
max_timeout_seconds = 120
"#;
const CLOSED: &str = r#"
version = 1
description = "the host, but not SSH"

[[allow]]
capability = "web"
hosts = ["good.example"]
ports = [22, 443]
"#;
/// Batch mode: ssh must never prompt.
const SSH: &str = "ssh -o BatchMode=yes -o ConnectTimeout=60 -o StrictHostKeyChecking=no";
const PATIENCE: Duration = Duration::from_secs(120);

/// An SSH server and its log so far.
struct Server {
    child: Child,
    said: Arc<(Mutex<String>, Condvar)>,
}

impl Server {
    fn new(world: &World, host: &str, port: &str) -> Server {
        let mut command = world.at_servers("chroot");
        command
            .arg(root(world))
            .args(["/usr/sbin/sshd", "-D", "-e"]);
        for option in [
            &format!("HostKey=/etc/ssh/{host}"),
            &format!("ListenAddress={SERVERS}:{port}"),
            "AuthorizedKeysFile=/etc/ssh/authorized",
            "UsePAM=no",
            "StrictModes=no",
            "PasswordAuthentication=no",
            "LogLevel=VERBOSE",
            "PidFile=none",
        ] {
            command.args(["-o", option]);
        }
        let mut child = command
            .args(["-f", "/dev/null"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::<(Mutex<String>, Condvar)>::default();
        let (lines, shared) = (BufReader::new(child.stderr.take().unwrap()), said.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *shared.0.lock().unwrap() += &format!("{line}\n");
                shared.1.notify_all();
            }
        });
        let server = Server { child, said };
        server.wait_for("Server listening on");
        server
    }

    fn wait_for(&self, text: &str) {
        let said = self.said.0.lock().unwrap();
        let missing = |said: &mut String| !said.contains(text);
        let (said, waited) = self
            .said
            .1
            .wait_timeout_while(said, PATIENCE, missing)
            .unwrap();
        assert!(!waited.timed_out(), "no {text:?}: {said}");
    }

    fn accepted(&self) -> usize {
        let said = self.said.0.lock().unwrap();
        said.matches("Accepted publickey").count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The root directory of the servers' system.
fn root(world: &World) -> PathBuf {
    world.story.path().join("scratch/root")
}

/// A world with two servers that accept the same user keys and have different host keys.
struct Coast {
    good: Server,
    other: Server,
    environment: String,
    world: World,
}

impl Coast {
    fn new(runtime: &str) -> Option<Coast> {
        let world = World::new(runtime)?;
        let policies = world.story.home().join("policies");
        std::fs::write(policies.join("closed.toml"), CLOSED).unwrap();
        let environment = world.programs("everyday");
        let policy = POLICY.replace("IMAGE", &environment);
        std::fs::write(policies.join("ssh.toml"), policy).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/agent/host.sh");
        let mut command = world.at_servers("sh");
        command.arg(script).arg(tree(&world, &environment));
        let made = command.arg(world.story.path()).output().unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
        Some(Coast {
            good: Server::new(&world, "good", "22"),
            other: Server::new(&world, "other", "2222"),
            environment,
            world,
        })
    }

    fn place(&self, name: &str) -> String {
        let path = self.world.story.path().join(name);
        path.to_str().unwrap().to_string()
    }

    fn fine(&self, args: &[&str]) -> String {
        let told = self.world.motu(args);
        assert_eq!(told.code, 0, "{args:?}: {told}");
        told.stdout
    }

    /// Generates a new user key as a file; the servers accept this key and no other.
    fn key(&self, kind: &str) -> String {
        let file = self.place(kind);
        for old in [file.clone(), format!("{file}.pub")] {
            let _ = std::fs::remove_file(old);
        }
        let made = motu_needs::command("ssh-keygen")
            .args(["-q", "-t", kind, "-N", "", "-C", kind, "-f", &file])
            .status();
        assert!(made.unwrap().success());
        let public = std::fs::read(format!("{file}.pub")).unwrap();
        let mut command = self.world.at_servers("chroot");
        let mut child = command
            .arg(root(&self.world))
            .args(["/bin/sh", "-c", "cat > /etc/ssh/authorized"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&public).unwrap();
        assert!(child.wait().unwrap().success());
        file
    }

    /// Stores a key as a secret that is bound to the good host.
    fn keep(&self, file: &str) -> Value {
        let known = self.place("known_hosts");
        let good = std::fs::read_to_string(self.place("good.pub")).unwrap();
        std::fs::write(&known, format!("good.example {good}")).unwrap();
        let bind = ["--ssh", "--host", "good.example", "--known-hosts", &known];
        let set = ["secret", "set", "deploy", "--json", "--file", file];
        let kept = self.fine(&[&set[..], &bind].concat());
        serde_json::from_str(&kept).unwrap()
    }

    fn inside(&self, id: &str, script: &str) -> Told {
        let options = ["--user", "root", "--timeout-seconds", "300"];
        self.world
            .motu(&[&["exec", id][..], &options, &["--", "bash", "-c", script]].concat())
    }

    /// Clones, commits and pushes, and checks that the server received it.
    fn git_works(&self, id: &str, when: &str) {
        let before = self.good.accepted();
        let script = "set -e; cd $(mktemp -d); git clone -q git@good.example:tiny.git; cd tiny; \
             cat answer; git -c user.name=x -c user.email=x@example commit -q --allow-empty -m more; \
             git push -q origin HEAD:main";
        let told = self.inside(id, script);
        let fine = (told.code, &*told.stdout) == (0, "42\n");
        assert!(fine, "{when}: {told}{:#?}", self.world.decisions(id));
        assert!(self.good.accepted() >= before + 2, "{when}");
    }

    /// Finds a logged decision: allowed or not, and for which reason.
    fn decided(&self, id: &str, allowed: bool, reason: &str) -> Value {
        let all = self.world.decisions(id);
        let wanted = |one: &&Value| {
            one["event"] == "sign" && one["allowed"] == allowed && one["reason"] == reason
        };
        let found = all.iter().find(|one| wanted(one)).cloned();
        found.unwrap_or_else(|| panic!("no {reason}: {all:#?}"))
    }
}

/// The tree of an environment, which must not be modified.
fn tree(world: &World, environment: &str) -> PathBuf {
    let all = world.story.home().join("environments");
    for entry in std::fs::read_dir(all.join("names")).unwrap().flatten() {
        let text = std::fs::read(entry.path()).unwrap();
        let known: Value = serde_json::from_slice(&text).unwrap();
        if known["name"] == environment {
            let digest = known["digest"].as_str().unwrap().replace(':', "-");
            return all.join("blobs").join(digest).join("root");
        }
    }
    panic!("{environment} is not pulled");
}

/// A line from the middle of a key file, to search for leaked copies of the key.
fn middle(file: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().nth(2).unwrap().to_string()
}

fn git_works_and_nothing_else_does(coast: &Coast) {
    let file = coast.key("ed25519");
    let kept = coast.keep(&file);
    assert_eq!(kept["key_type"], "ssh-ed25519", "{kept}");
    let listed = coast.fine(&["secret", "list"]);
    let fingerprint = kept["fingerprint"].as_str().unwrap();
    assert!(
        listed.contains(fingerprint) && listed.contains("good.example"),
        "{listed}"
    );
    let made = coast.fine(&[
        "workspace",
        "create",
        &coast.environment,
        "--id-only",
        "--policy",
        "ssh",
        "--secret-ref",
        "SSH_AUTH_SOCK=deploy",
    ]);
    let id = made.trim();
    coast.git_works(id, "at first");
    let signed = coast.decided(id, true, "allowed");
    assert_eq!(signed["name"], "good.example", "{signed}");
    assert_eq!(signed["secrets"], serde_json::json!(["deploy"]), "{signed}");
    another_host_gets_no_signature(coast, id);
    a_forwarded_agent_signs_nothing(coast, id);
    nothing_but_logins_is_signed(coast, id);
    nothing_is_left(coast, id, &file);
    lives_on(coast, id);
    coast.fine(&["workspace", "delete", id]);
}

/// A server with a different host key, under either name.
fn another_host_gets_no_signature(coast: &Coast, id: &str) {
    for name in ["other.example", "good.example"] {
        let known = "-o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null";
        let told = coast.inside(id, &format!("{SSH} {known} -p 2222 git@{name} true"));
        assert_eq!(told.code, 255, "{told}");
        assert!(told.stderr.contains("Permission denied"), "{told}");
    }
    assert_eq!(coast.other.accepted(), 0);
    coast.decided(id, false, "host_key_not_known");
}

/// A forwarded agent signs nothing, not even for the host that the key is bound to.
fn a_forwarded_agent_signs_nothing(coast: &Coast, id: &str) {
    let there = format!("ssh-add -l; {SSH} git@{SERVERS} true; echo ended with $?");
    let before = coast.good.accepted();
    let told = coast.inside(id, &format!("{SSH} -A git@good.example '{there}'"));
    assert!(told.stdout.contains("ended with 255"), "{told}");
    assert_eq!(coast.good.accepted(), before + 1, "{told}");
    coast.decided(id, false, "agent_forwarded");
}

fn nothing_but_logins_is_signed(coast: &Coast, id: &str) {
    let script = "cd $(mktemp -d); ssh-add -L > key.pub; cat key.pub; echo text > file; \
         ssh-keygen -Y sign -n file -f key.pub file; echo ended with $?; ls; \
         ssh-add -D; ssh-keygen -q -t ed25519 -N '' -f own; ssh-add own; echo ended with $?";
    let told = coast.inside(id, script);
    assert!(told.stdout.contains("ssh-ed25519 "), "{told}");
    assert!(!told.stdout.contains("ended with 0"), "{told}");
    assert!(!told.stdout.contains("file.sig"), "{told}");
    let refused = coast.decided(id, false, "no_session");
    assert_eq!(refused["secrets"], serde_json::json!(["deploy"]));
    coast.decided(id, false, "request_not_allowed");
}

/// The key is nowhere inside, nowhere below the state directory, and in no process's arguments or
/// environment.
fn nothing_is_left(coast: &Coast, id: &str, file: &str) {
    let key = middle(file);
    // In two parts, so that the search does not find its own command.
    let (one, two) = key.split_at(10);
    let script = format!(
        "v='{one}'; v=\"$v\"'{two}'; cat /proc/[0-9]*/environ 2>/dev/null | grep -c -a -F \"$v\"; \
         grep -r -l -a -F \"$v\" /etc /root /workspace /run /tmp /var 2>/dev/null; true"
    );
    let inside = coast.inside(id, &script);
    assert_eq!(inside.stdout.trim(), "0", "{inside}");
    let home = coast.world.story.home();
    assert_eq!(
        crate::traces::of(&home, key.as_bytes()),
        Vec::<PathBuf>::new()
    );
}

/// A rotated key is used at once; the agent survives a crash, a stop and a start.
fn lives_on(coast: &Coast, id: &str) {
    let rotate = |kind: &str| {
        let file = coast.key(kind);
        coast.fine(&["secret", "rotate", "deploy", "--file", &file]);
        file
    };
    rotate("ecdsa");
    coast.git_works(id, "after it was rotated");
    crate::traces::kill_daemon(&coast.fine(&["version", "--json"]));
    coast.git_works(id, "after the daemon was killed");
    let file = rotate("rsa");
    coast.git_works(id, "rotated by the next daemon");
    for step in ["stop", "start"] {
        coast.fine(&["workspace", step, id]);
    }
    coast.git_works(id, "after a stop and a start");
    nothing_is_left(coast, id, &file);
    coast.fine(&["secret", "rm", "deploy"]);
    let told = coast.inside(id, &format!("{SSH} git@good.example true"));
    assert_eq!(told.code, 255, "after it was removed: {told}");
}

#[test]
fn git_works_in_a_container_that_has_no_key() {
    if let Some(coast) = Coast::new("container") {
        git_works_and_nothing_else_does(&coast);
    }
}

/// Unusable keys are refused before anything is created, with an error that says what would work.
#[test]
fn a_key_that_is_of_no_use_is_refused() {
    let Some(coast) = Coast::new("container") else {
        return;
    };
    let file = coast.key("ed25519");
    coast.keep(&file);
    let create = |more: &[&str]| {
        let told = coast
            .world
            .motu(&[&["create", &coast.environment][..], more].concat());
        assert_ne!(told.code, 0, "{told}");
        told.stderr
    };
    let reference = ["--secret-ref", "SSH_AUTH_SOCK=deploy"];
    let closed = create(&[&["--policy", "closed"][..], &reference].concat());
    assert!(closed.contains("does not let SSH pass"), "{closed}");
    assert!(closed.contains("opaque = true"), "{closed}");
    let off = create(&reference);
    assert!(off.contains("without a network"), "{off}");
    let known = coast.place("known_hosts");
    let set = |file: &str, host: &str| {
        let bind = ["--ssh", "--host", host, "--known-hosts", &known];
        let told = coast
            .world
            .motu(&[&["secret", "set", "x", "--file", file][..], &bind].concat());
        assert_ne!(told.code, 0, "{told}");
        told.stderr
    };
    let unknown = set(&file, "other.example");
    assert!(unknown.contains("no key of other.example"), "{unknown}");
    let locked = coast.place("locked");
    let made = motu_needs::command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "phrase", "-f", &locked])
        .status();
    assert!(made.unwrap().success());
    let locked = set(&locked, "good.example");
    assert!(locked.contains("has a passphrase"), "{locked}");
}

/// A typed call has the agent like any other sandbox if its policy names the secret.
#[test]
fn a_call_logs_in_without_the_key() {
    let Some(coast) = Coast::new("container") else {
        return;
    };
    coast.keep(&coast.key("ed25519"));
    let script = "git ls-remote git@good.example:tiny.git | cut -f2";
    let request = serde_json::json!({
        "image": coast.environment, "command": ["sh", "-c", script], "timeout_seconds": 120,
        "network": {"mode": "bridge"}, "secrets": {"SSH_AUTH_SOCK": {"ref": "deploy"}},
        "state": {"retention": "destroy"},
    });
    let file = coast.place("call.json");
    std::fs::write(&file, request.to_string()).unwrap();
    let call = ["call", "--request", &file, "--policy", "ssh", "--json"];
    let told = coast.world.motu(&call);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
    let refs = answer["stdout"].as_str().unwrap_or_default();
    assert!(refs.contains("refs/heads/main"), "{told}");
}

#[test]
fn git_works_in_gvisor_that_has_no_key() {
    if let Some(coast) = Coast::new("gvisor") {
        git_works_and_nothing_else_does(&coast);
    }
}

#[test]
fn git_works_in_a_virtual_machine_that_has_no_key() {
    if let Some(coast) = Coast::new("qemu") {
        git_works_and_nothing_else_does(&coast);
        a_copy_has_the_agent_too(&coast);
    }
}

fn a_copy_has_the_agent_too(coast: &Coast) {
    coast.keep(&coast.key("ed25519"));
    let create = ["create", &coast.environment, "--policy", "ssh"];
    let made = coast.fine(&[&create[..], &["--secret-ref", "KEY=deploy"]].concat());
    let forked = coast.fine(&["fork", made.trim(), "--json"]);
    let forked: Value = serde_json::from_str(&forked).unwrap();
    let copy = forked["sandboxes"][0]["sandbox_id"].as_str().unwrap();
    let said = coast.inside(copy, "test \"$KEY\" = \"$SSH_AUTH_SOCK\" && ssh-add -l");
    assert_eq!(said.code, 0, "{said}");
    coast.git_works(copy, "in a copy");
}
