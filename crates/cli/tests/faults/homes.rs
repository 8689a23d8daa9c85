//! Homes that earlier versions wrote (`tools/home`): this one opens them, and everything in them is read right.

use motu_testkit::host::{Ask, Host};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A stored home, unpacked.
struct Stored {
    host: Host,
    facts: Value,
    receipt: PathBuf,
}

impl Stored {
    fn open(directory: &Path) -> Stored {
        let host = Host::unstarted();
        let mut unpack = motu_needs::command("tar");
        unpack.args([
            "--extract",
            "--xz",
            "--numeric-owner",
            "--strip-components=1",
        ]);
        unpack.arg("--file").arg(directory.join("home.tar.xz"));
        let done = unpack.arg("--directory").arg(host.story.home()).status();
        assert!(done.unwrap().success());
        host.listen("runtime = \"container\"\n", "");
        let facts = std::fs::read_to_string(directory.join("facts.json")).unwrap();
        Stored {
            host,
            facts: serde_json::from_str(&facts).unwrap(),
            receipt: directory.join("receipt.json"),
        }
    }

    fn fact(&self, name: &str) -> &str {
        self.facts[name].as_str().unwrap()
    }

    /// What a command prints; it must work.
    fn say(&self, args: &[&str]) -> String {
        let told = self.host.story.motu(args);
        assert_eq!(told.code, 0, "{args:?}: {told}");
        told.stdout
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.say(&[args, &["--json"]].concat())).unwrap()
    }

    fn file(&self, path: &str) -> String {
        self.say(&["workspace", "file", "read", "stored-workspace", path])
    }

    /// Keys of requests are remembered for a day; the stored one is as old as its home.
    fn refresh_idempotency(&self) {
        let path = self.host.story.home().join("idempotency.jsonl");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            record["at"] = json!(now.as_secs());
            format!("{record}\n")
        });
        std::fs::write(&path, lines.collect::<String>()).unwrap();
    }

    /// What every daemon must find, the second as the first.
    fn check(&self) {
        let listed = self.json(&["workspace", "list"]);
        let workspace = &listed["workspaces"][0];
        assert_eq!(workspace["workspace_id"], "stored-workspace", "{listed}");
        assert_eq!(workspace["name"], "stored");
        assert_eq!(workspace["labels"]["team"], "web");
        let snapshots = self.json(&["workspace", "snapshot", "list", "stored-workspace"]);
        let text = snapshots.to_string();
        assert!(
            text.contains("\"one\"") && text.contains("\"two\""),
            "{text}"
        );
        let sandboxes = self.json(&["ps"]).to_string();
        assert!(sandboxes.contains("stored-sandbox"), "{sandboxes}");
        let template = self.json(&["template", "show", "stored-kind"]);
        assert_eq!(template["version"], 1, "{template}");
        assert_eq!(template["definition"]["labels"]["team"], "web");
        let policy = self.say(&["policy", "show", "stored"]);
        assert!(policy.contains("api.example.com"), "{policy}");
        let secrets = self.json(&["secret", "list"]).to_string();
        assert!(secrets.contains("stored-token"), "{secrets}");
        assert!(secrets.contains("api.example.com"), "{secrets}");
        assert!(!secrets.contains("made-up-value"), "{secrets}");
        let session = self.json(&["terminal", "status", "stored-session"]);
        assert_eq!(session["alive"], false, "{session}");
        let transcript = self.say(&["terminal", "transcript", "stored-session"]);
        assert!(transcript.contains("hello"), "{transcript}");
        self.check_audit();
        let key = self.fact("key").to_string();
        let seen = self.host.call(&key, Ask::get("/v1/sandboxes"));
        assert_eq!(seen.status, 200, "{seen}");
        assert_eq!(seen.json["count"], 0, "its project has nothing: {seen}");
    }

    fn check_audit(&self) {
        let verified = self.json(&["audit", "verify"]);
        let records = verified["records"].as_u64().unwrap_or(0);
        assert!(
            records >= self.facts["audit_records"].as_u64().unwrap(),
            "{verified}"
        );
        let entry = self.json(&["audit", "show", self.fact("audit_id")]);
        assert!(entry.to_string().contains("\"ok\""), "{entry}");
        let receipt = self.receipt.to_str().unwrap();
        let key = self.fact("audit_key");
        assert_eq!(self.say(&["audit", "key"]).lines().next(), Some(key));
        self.say(&["audit", "check", receipt, "--key", key]);
        // And against the daemon's own, made anew from the stored log.
        let again = self.host.story.path().join("again.json");
        std::fs::write(
            &again,
            self.say(&["audit", "receipt", self.fact("audit_id")]),
        )
        .unwrap();
        self.say(&["audit", "check", again.to_str().unwrap(), "--key", key]);
    }

    fn check_machines(&self) {
        self.say(&["workspace", "start", "stored-workspace"]);
        assert_eq!(self.file("/workspace/first.txt"), "changed");
        assert_eq!(self.file("/workspace/third.txt"), "third");
        assert_eq!(self.file("/workspace/seed.txt"), "seed\n");
        let ran = self.say(&["workspace", "exec", "stored-workspace", "--", "hello"]);
        assert_eq!(ran, "hello\n");
        // The secret opens: its length is what the program ends with.
        let with = [
            "workspace",
            "exec",
            "stored-workspace",
            "--secret-env",
            "TOKEN",
        ];
        let told = self
            .host
            .story
            .motu(&[&with[..], &["--", "hello", "length"]].concat());
        assert_eq!(told.code, "made-up-value-2".len() as i32, "{told}");
        self.say(&[
            "workspace",
            "reset",
            "stored-workspace",
            "--snapshot",
            "one",
        ]);
        assert_eq!(self.file("/workspace/first.txt"), "first");
        for gone in ["second", "third"] {
            let path = format!("/workspace/{gone}.txt");
            let read = ["workspace", "file", "read", "stored-workspace", &path];
            assert_ne!(self.host.story.motu(&read).code, 0, "{path} is still there");
        }
        self.say(&[
            "workspace",
            "reset",
            "stored-workspace",
            "--snapshot",
            "two",
        ]);
        assert_eq!(self.file("/workspace/second.txt"), "second");
        self.say(&["start", "stored-sandbox"]);
        let back = self.host.story.path().join("kept.txt");
        self.say(&[
            "cp",
            "stored-sandbox:/root/kept.txt",
            back.to_str().unwrap(),
        ]);
        assert_eq!(std::fs::read_to_string(back).unwrap(), "kept");
        let run = ["run", "--template", "stored-kind", "--", "hello"];
        assert_eq!(self.say(&run), "hello\n");
    }

    fn check_idempotency(&self) {
        let key = self.fact("key").to_string();
        // The very bytes that tools/home sent: a key is for one request.
        let body = r#"{"environment": "stored", "sandbox_id": "stored-once", "mem_mib": 64}"#;
        let ask = Ask::new("POST", "/v1/sandboxes")
            .bytes(body.as_bytes().to_vec())
            .header("Content-Type: application/json")
            .header("Idempotency-Key: stored-once");
        let again = self.host.call(&key, ask);
        assert_eq!(again.status, 201, "{again}");
        assert_eq!(
            again.header("idempotency-replayed"),
            Some("true"),
            "{again}"
        );
        assert_eq!(again.json["sandbox_id"], "acme--stored-once");
    }
}

#[test]
fn a_home_that_an_earlier_version_wrote_opens_and_holds_everything() {
    let homes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/homes");
    let mut seen = 0;
    for entry in std::fs::read_dir(homes).unwrap() {
        let stored = Stored::open(&entry.unwrap().path());
        stored.refresh_idempotency();
        stored.host.start();
        stored.check();
        stored.check_idempotency();
        stored.check_machines();
        stored.host.stop();
        // What the first daemon wrote, the second reads.
        stored.host.start();
        stored.check();
        stored.say(&["workspace", "start", "stored-workspace"]);
        assert_eq!(stored.file("/workspace/second.txt"), "second");
        seen += 1;
    }
    assert!(seen > 0, "there are no stored homes");
}

/// A directory of another user, in which links wait for root.
#[test]
fn nothing_is_written_below_another_users_home() {
    if !rustix::process::geteuid().is_root() {
        return motu_needs::skip("only root can write in the directories of others");
    }
    let story = motu_testkit::story::Story::new();
    let (home, victim, new) = (
        story.home(),
        story.path().join("victim"),
        story.path().join("new"),
    );
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(&victim, "as it was\n").unwrap();
    std::os::unix::fs::symlink(&victim, home.join("daemon.log")).unwrap();
    std::os::unix::fs::symlink(&new, home.join("daemon.lock")).unwrap();
    std::os::unix::fs::lchown(&home, Some(12_345), Some(12_345)).unwrap();
    for args in [
        &["ps"][..],
        &["serve"],
        &["recover", "--rebuild"],
        &["recover"],
    ] {
        let told = story.motu(args);
        assert_eq!(told.code, 103, "{args:?}: {told}");
        assert!(told.stderr.contains("another user"), "{args:?}: {told}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was\n");
        assert!(!new.exists(), "{args:?}");
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 2, "{args:?}");
    }
}
