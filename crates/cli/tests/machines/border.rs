//! Secrets that the gateway inserts: the host sees the value, the machine never does. On every
//! runtime, with a real daemon, gateway and server, in network namespaces of the test.

mod aws;
mod proxy;

use motu_testkit::network::{SERVERS, World};
use motu_testkit::story::Told;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PORT: &str = "8443";
const POLICY: &str = r#"
version = 1
description = "of a test"

[[allow]]
capability = "hosts"
hosts = ["good.example", "other.example"]
ports = [8443]
http = [{ methods = ["GET", "POST", "PUT"] }]

[call]
images = ["debian:12"]
secrets = ["key"]
max_timeout_seconds = 120
"#;
const FIRST: &str = "first-value-0123456789-correct-horse";
const SECOND: &str = "second-value-0123456789-battery-staple";
const THIRD: &str = "third-value-0123456789-of-the-last-daemon";

/// An internet with a host that logs the requests it receives.
struct Sea {
    world: World,
    host: Child,
    log: PathBuf,
    authority: PathBuf,
}

impl Sea {
    fn new(runtime: &str) -> Option<Sea> {
        let world = World::new(runtime)?;
        let place = world.story.path().to_path_buf();
        std::fs::write(world.story.home().join("policies/border.toml"), POLICY).unwrap();
        let authority = certify(&place);
        let log = place.join("asked.jsonl");
        std::fs::write(&log, "").unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/border/host.js");
        let mut command = world.at_servers("node");
        command.arg(script).args([SERVERS, PORT]);
        command.args([place.join("host.pem"), place.join("host.key"), log.clone()]);
        let mut host = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        motu_testkit::network::wait_for_ready(&mut host);
        Some(Sea {
            world,
            host,
            log,
            authority,
        })
    }

    /// `motu`, with this internet's certificate authority as the one the daemon's host trusts.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.env("SSL_CERT_FILE", &self.authority);
        command
    }

    fn motu(&self, args: &[&str]) -> Told {
        self.world.story.told(self.command(args))
    }

    fn fine(&self, args: &[&str]) -> String {
        let told = self.motu(args);
        assert_eq!(told.code, 0, "{args:?}: {told}");
        told.stdout
    }

    /// Runs a command with the value of a secret on its standard input.
    fn given(&self, args: &[&str], value: &str) {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(value.as_bytes()).unwrap();
        drop(input);
        assert!(child.wait().unwrap().success(), "{args:?}");
    }

    fn workspace(&self, more: &[&str]) -> String {
        let base = [
            "workspace",
            "create",
            "debian:12",
            "--id-only",
            "--policy",
            "border",
        ];
        self.fine(&[&base[..], more].concat()).trim().to_string()
    }

    fn inside(&self, id: &str, script: &str) -> Told {
        self.motu(&[
            "exec",
            id,
            "--timeout-seconds",
            "120",
            "--",
            "sh",
            "-c",
            script,
        ])
    }

    /// Sends one request from a machine, and returns what the host received.
    fn asked(&self, id: &str, curl: &str) -> Value {
        let before = self.lines().len();
        let told = self.inside(id, &format!("curl -sS -m 60 {curl}"));
        assert_eq!((told.code, &*told.stdout), (0, "taken\n"), "{curl}: {told}");
        let mut lines = self.lines();
        assert_eq!(lines.len(), before + 1, "{curl}: {lines:#?}");
        lines.pop().unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let line = |line| serde_json::from_str(line).unwrap();
        text.lines().map(line).collect()
    }
}

impl Drop for Sea {
    fn drop(&mut self) {
        drop(self.host.stdin.take());
        let _ = self.host.wait();
    }
}

/// Creates a certificate authority, and a certificate for both names of the host.
fn certify(place: &Path) -> PathBuf {
    let openssl = |words: &str| {
        let done = motu_needs::command("openssl")
            .current_dir(place)
            .args(words.split(' '))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words}: {said}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {key} -days 2 -subj /CN=world -keyout world.key -out world.pem \
         -addext keyUsage=critical,keyCertSign"
    ));
    openssl(&format!(
        "req {key} -subj /CN=good.example -keyout host.key -out host.csr"
    ));
    let names = "subjectAltName=DNS:good.example,DNS:other.example";
    std::fs::write(place.join("names"), names).unwrap();
    openssl(
        "x509 -req -in host.csr -CA world.pem -CAkey world.key -CAcreateserial -days 2 \
         -extfile names -out host.pem",
    );
    place.join("world.pem")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The host that the secret is bound to receives its value in every form; the other host never
/// does.
fn the_host_sees_what_the_machine_never_has(sea: &Sea) {
    sea.given(&["secret", "set", "key", "--host", "good.example"], FIRST);
    let id = sea.workspace(&["--secret-ref", "API_KEY=key"]);
    let placeholder = sea.inside(&id, "printf %s \"$API_KEY\"").stdout;
    assert!(
        placeholder.starts_with("motu_placeholder_"),
        "{placeholder}"
    );
    let good = format!("https://good.example:{PORT}");
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2.0")] {
        let bearer = "-H \"Authorization: Bearer $API_KEY\"";
        let asked = sea.asked(&id, &format!("{flag} {bearer} \"{good}/a?k=$API_KEY&x=y\""));
        assert_eq!(asked["version"], version);
        assert_eq!(
            text(&asked["headers"]["authorization"]),
            format!("Bearer {FIRST}")
        );
        assert_eq!(text(&asked["url"]), format!("/a?k={FIRST}&x=y"));
        let asked = sea.asked(
            &id,
            &format!("{flag} -u \"me:$API_KEY\" {good}/b -d \"v=$API_KEY\""),
        );
        assert_eq!(asked["version"], version);
        let basic = base64(&format!("me:{FIRST}"));
        assert_eq!(
            text(&asked["headers"]["authorization"]),
            format!("Basic {basic}")
        );
        assert_eq!(
            text(&asked["body"]),
            format!("v={placeholder}"),
            "bodies only when asked for"
        );
    }
    let other = format!("https://other.example:{PORT}/");
    // TLS to the other host is not intercepted, so its requests cannot be checked and are denied.
    let closed = sea.inside(&id, &format!("curl -sS -m 60 {other}"));
    assert_ne!(closed.code, 0, "{closed}");
    // The request rules of the policy also apply inside TLS.
    let refused = sea.inside(
        &id,
        &format!("curl -sS --http1.1 -m 60 -X DELETE {good}/c -H \"X: $API_KEY\""),
    );
    assert!(
        refused.stdout.contains("motu: the request is not allowed"),
        "{refused}"
    );
    let mismatch = sea.inside(
        &id,
        &format!("curl -sS --http1.1 -m 60 -H 'Host: other.example' {good}/d"),
    );
    assert!(mismatch.stdout.contains("another host"), "{mismatch}");
    assert!(
        !sea.lines()
            .iter()
            .any(|line| ["/c", "/d"].contains(&text(&line["url"])))
    );
    let log = sea.fine(&["policy", "log", &id]);
    let used = log.lines().any(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["tls"] == "ended"
            && line["secrets"] == serde_json::json!(["key"])
            && line["path"] == "/a"
    });
    assert!(used && !log.contains(FIRST), "{log}");
    nothing_is_left(sea, &id, FIRST);
    lives_on(sea, &id, &good);
    sea.fine(&["workspace", "delete", &id]);
    sea.fine(&["secret", "rm", "key"]);
}

/// Another host receives the placeholder, because its TLS is not intercepted.
fn another_host_gets_the_placeholder(sea: &Sea) {
    sea.given(&["secret", "set", "key", "--host", "good.example"], FIRST);
    let args = [
        "run",
        "debian:12",
        "--network",
        "--secret-ref",
        "API_KEY=key",
        "--timeout-seconds",
        "120",
        "--",
    ];
    let script = format!(
        "curl -sS -m 60 -H \"X-Key: $API_KEY\" https://other.example:{PORT}/other && \
         curl -sS -m 60 -H \"X-Key: $API_KEY\" https://good.example:{PORT}/good"
    );
    let told = sea.fine(&[&args[..], &["sh", "-c", &script]].concat());
    assert_eq!(told, "taken\ntaken\n");
    let lines = sea.lines();
    let seen = |url: &str| {
        let line = lines.iter().find(|line| line["url"] == url).unwrap();
        text(&line["headers"]["x-key"]).to_string()
    };
    assert!(
        seen("/other").starts_with("motu_placeholder_"),
        "{lines:#?}"
    );
    assert_eq!(seen("/good"), FIRST);
    sea.fine(&["secret", "rm", "key"]);
}

/// A value that a host sends back is redacted for every reader.
fn what_is_sent_back_is_not_shown(sea: &Sea) {
    let shown = "[redacted key]";
    let echo = format!("curl -sS -m 60 -H \"X-Key: $API_KEY\" https://good.example:{PORT}/echo");
    sea.given(&["secret", "set", "key", "--host", "good.example"], FIRST);
    let args = ["--policy", "border", "--secret-ref", "API_KEY=key"];
    let run = [&["run", "debian:12"][..], &args, &["--", "sh", "-c", &echo]].concat();
    assert_eq!(sea.fine(&run), shown);
    let plain = [&["create", "debian:12"][..], &args].concat();
    let plain = sea.fine(&plain).trim().to_string();
    let kept = sea.workspace(&args[2..]);
    for id in [&plain, &kept] {
        assert_eq!(sea.inside(id, &echo).stdout, shown);
    }
    sea.given(&["secret", "rotate", "key"], SECOND);
    let both = format!("{echo}; printf ' {SECOND}'");
    for id in [&plain, &kept] {
        assert_eq!(sea.inside(id, &both).stdout, format!("{shown} {shown}"));
    }
    crate::traces::kill_daemon(&sea.fine(&["version", "--json"]));
    for id in [&kept, &plain] {
        assert_eq!(sea.inside(id, &both).stdout, format!("{shown} {shown}"));
    }
    let history = sea.fine(&["workspace", "logs", &kept, "--json"]);
    assert!(!history.contains(SECOND), "{history}");
    sea.fine(&["rm", &plain]);
    sea.fine(&["workspace", "delete", &kept]);
    sea.fine(&["secret", "rm", "key"]);
}

/// The value is nowhere inside, nowhere below the state directory, and in no process's arguments or
/// environment.
fn nothing_is_left(sea: &Sea, id: &str, value: &str) {
    // In two parts, so that the search does not find its own command.
    let (one, two) = value.split_at(10);
    let script = format!(
        "v={one}; v=${{v}}{two}; cat /proc/[0-9]*/environ 2>/dev/null | grep -c -a -F \"$v\"; \
         grep -r -l -a -F \"$v\" /etc /root /workspace /run /tmp /var 2>/dev/null; true"
    );
    let inside = sea.inside(id, &script);
    assert_eq!(inside.stdout.trim(), "0", "{inside}");
    let home = sea.world.story.home();
    assert_eq!(
        crate::traces::of(&home, value.as_bytes()),
        Vec::<PathBuf>::new()
    );
}

/// A rotated value is used at once; bindings survive a crash, a stop and a reset.
fn lives_on(sea: &Sea, id: &str, good: &str) {
    let key = |when: &str, wanted: &str| {
        let asked = sea.asked(id, &format!("-H \"X-Key: $API_KEY\" {good}/life"));
        assert_eq!(text(&asked["headers"]["x-key"]), wanted, "{when}");
    };
    sea.given(&["secret", "rotate", "key"], SECOND);
    key("after it was rotated", SECOND);
    crate::traces::kill_daemon(&sea.fine(&["version", "--json"]));
    key("after the daemon was killed", SECOND);
    sea.given(&["secret", "rotate", "key"], THIRD);
    key("rotated by the next daemon", THIRD);
    for step in ["stop", "start"] {
        sea.fine(&["workspace", step, id]);
    }
    key("after a stop and a start", THIRD);
    sea.fine(&["workspace", "reset", id]);
    key("after a reset", THIRD);
    nothing_is_left(sea, id, THIRD);
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_container_never_has_what_its_host_sees() {
    if let Some(sea) = Sea::new("container") {
        the_host_sees_what_the_machine_never_has(&sea);
        another_host_gets_the_placeholder(&sea);
        what_is_sent_back_is_not_shown(&sea);
    }
}

#[test]
fn gvisor_never_has_what_its_host_sees() {
    if let Some(sea) = Sea::new("gvisor") {
        the_host_sees_what_the_machine_never_has(&sea);
    }
}

#[test]
fn a_virtual_machine_never_has_what_its_host_sees() {
    let Some(sea) = Sea::new("qemu") else {
        return;
    };
    the_host_sees_what_the_machine_never_has(&sea);
    a_copy_has_the_same(&sea);
}

/// A copy has its source's memory, and so its placeholders; they are replaced for the copy too.
fn a_copy_has_the_same(sea: &Sea) {
    sea.given(&["secret", "set", "key", "--host", "good.example"], FIRST);
    let made = sea.fine(&[
        "create",
        "debian:12",
        "--policy",
        "border",
        "--secret-ref",
        "API_KEY=key",
    ]);
    let forked = sea.fine(&["fork", made.trim(), "--json"]);
    let forked: Value = serde_json::from_str(&forked).unwrap();
    let copy = text(&forked["sandboxes"][0]["sandbox_id"]).to_string();
    let asked = sea.asked(
        &copy,
        &format!("-H \"X-Key: $API_KEY\" https://good.example:{PORT}/copy"),
    );
    assert_eq!(text(&asked["headers"]["x-key"]), FIRST);
}

/// Bodies are rewritten if that was requested, and a host with an untrusted certificate gets
/// nothing.
#[test]
fn bodies_are_rewritten_when_asked_for() {
    let Some(sea) = Sea::new("container") else {
        return;
    };
    sea.given(
        &["secret", "set", "key", "--host", "*.example", "--body"],
        "a\"b&c",
    );
    let id = sea.workspace(&["--secret-ref", "API_KEY=key"]);
    let good = format!("https://good.example:{PORT}/body");
    let form = sea.asked(&id, &format!("{good} -d \"v=$API_KEY\""));
    assert_eq!(
        (text(&form["body"]), text(&form["version"])),
        ("v=a%22b%26c", "1.1")
    );
    let json = "-H 'Content-Type: application/json' -d \"{\\\"v\\\":\\\"$API_KEY\\\"}\"";
    let json = sea.asked(&id, &format!("{good} {json}"));
    assert_eq!(text(&json["body"]), "{\"v\":\"a\\\"b&c\"}");
    let large = format!("head -c 1100000 /dev/zero | curl -sS -m 60 {good} --data-binary @-");
    let large = sea.inside(&id, &large);
    assert!(large.stdout.contains("too large"), "{large}");
    let before = sea.lines().len();
    // From now on the daemon's host trusts another authority.
    let other = format!("https://other.example:{PORT}/body");
    let others = sea.authority.with_file_name("host.pem");
    std::fs::copy(others, &sea.authority).unwrap();
    sea.given(&["secret", "rotate", "key"], "other");
    let refused = sea.inside(&id, &format!("curl -sS -m 60 -H \"X: $API_KEY\" {other}"));
    assert_ne!(refused.code, 0, "{refused}");
    assert_eq!(sea.lines().len(), before);
    let log = sea.fine(&["policy", "log", &id]);
    assert!(log.contains("certificate_not_trusted"), "{refused}\n{log}");
}

/// A typed call refers to a bound secret like any other and gets its placeholder; without a network
/// it gets nothing.
#[test]
fn a_call_has_a_placeholder() {
    let Some(sea) = Sea::new("container") else {
        return;
    };
    sea.given(&["secret", "set", "key", "--host", "good.example"], FIRST);
    let script = format!(
        "curl -sS -m 60 -H \"X-Key: $K\" https://good.example:{PORT}/call; printf %s \"$K\""
    );
    let call = |network: &str, script: &str| {
        let request = serde_json::json!({
            "image": "debian:12", "command": ["sh", "-c", script], "timeout_seconds": 120,
            "network": {"mode": network}, "secrets": {"K": {"ref": "key"}},
            "state": {"retention": "destroy"},
        });
        let file = sea.world.story.path().join("call.json");
        std::fs::write(&file, request.to_string()).unwrap();
        let file = file.to_str().unwrap();
        sea.motu(&["call", "--request", file, "--policy", "border", "--json"])
    };
    let told = call("bridge", &script);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
    assert!(
        text(&answer["stdout"]).starts_with("taken\nmotu_placeholder_"),
        "{told}"
    );
    assert_eq!(text(&sea.lines()[0]["headers"]["x-key"]), FIRST);
    let echo = call("bridge", &script.replace("/call", "/echo"));
    assert!(echo.stdout.contains("[redacted key]"), "{echo}");
    let off = call("none", &script);
    assert_ne!(off.code, 0, "{off}");
    assert!(off.stdout.contains("policy_denial"), "{off}");
}

/// Unusable secrets are refused before anything is created.
#[test]
fn a_secret_that_is_of_no_use_is_refused() {
    let Some(sea) = Sea::new("container") else {
        return;
    };
    sea.given(
        &["secret", "set", "bound", "--host", "elsewhere.example"],
        FIRST,
    );
    sea.given(&["secret", "set", "loose"], FIRST);
    let create = |more: &[&str]| sea.motu(&[&["create", "debian:12"][..], more].concat());
    let closed = create(&["--policy", "border", "--secret-ref", "K=bound"]);
    assert!(
        closed.stderr.contains("the policy border does not allow"),
        "{closed}"
    );
    let off = create(&["--secret-ref", "K=bound"]);
    assert!(off.stderr.contains("without a network"), "{off}");
    let loose = create(&["--policy", "border", "--secret-ref", "K=loose"]);
    assert!(loose.stderr.contains("bound to no host"), "{loose}");
    let unknown = create(&["--policy", "border", "--secret-ref", "K=nobody"]);
    assert!(unknown.stderr.contains("there is no secret"), "{unknown}");
    for told in [closed, off, loose, unknown] {
        assert_ne!(told.code, 0);
    }
    // A secret that is bound to no host is passed to a workspace by value.
    let id = sea.workspace(&["--secret-ref", "K=loose"]);
    let used = sea.motu(&[
        "workspace",
        "exec",
        &id,
        "--secret-env",
        "K",
        "--",
        "sh",
        "-c",
        "printf %s \"${#K}\"",
    ]);
    assert_eq!(used.stdout, FIRST.len().to_string(), "{used}");
}
