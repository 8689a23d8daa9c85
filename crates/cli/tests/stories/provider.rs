//! `motu serve --provider`: an orchestrator's calls, made with curl against real machines.

use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const KEY: &str = "a-key-of-the-tests-alone";
/// The longest wait for anything, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A provider in front of its own daemon.
struct Served {
    story: Story,
    process: Child,
    at: String,
}

/// The status and the body of an answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Starts the service; returns its address.
fn serve(story: &Story, port: &str) -> (Child, String) {
    let mut command = story.command(&["serve", "--provider", port, "--key-file"]);
    command.arg(story.path().join("key")).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut told = BufReader::new(process.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    let at = first.strip_prefix("serving the provider protocol at ");
    let at = at.unwrap_or_else(|| panic!("{first}")).to_string();
    // Discard further output, so that the pipe does not fill up.
    std::thread::spawn(move || told.for_each(drop));
    (process, at)
}

impl Served {
    fn new() -> Option<Served> {
        let story = Story::with_machines()?;
        let key = story.path().join("key");
        std::fs::write(&key, KEY).unwrap();
        let (process, at) = serve(&story, "0");
        Some(Served { story, process, at })
    }

    /// Kills the service, as in a crash.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the service again at the same address.
    fn start_again(&mut self) {
        let port = self.at.rsplit(':').next().unwrap().to_string();
        (self.process, self.at) = serve(&self.story, &port);
    }

    fn curl(&self, args: &[&str], path: &str) -> Answer {
        let mut command = motu_needs::command("curl");
        command.args(["-sS", "--max-time", "60", "-w", "\n%{http_code}"]);
        command.args(args).arg(format!("{}{path}", self.at));
        let output = command.output().unwrap();
        let mut body = output.stdout;
        let cut = body.iter().rposition(|byte| *byte == b'\n').unwrap();
        let status = String::from_utf8(body[cut + 1..].to_vec()).unwrap();
        body.truncate(cut);
        let status = status.parse().unwrap();
        Answer { status, body }
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let key = format!("X-API-Key: {KEY}");
        let mut args = vec!["-X", method, "-H", &key];
        let body = body.map(|body| body.to_string());
        if let Some(body) = &body {
            args.extend(["-H", "Content-Type: application/json", "-d", body]);
        }
        self.curl(&args, path)
    }

    fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, Some(body))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None)
    }

    fn spawn(&self) -> String {
        let spawned = self.post("/spawn", json!({"image": "busybox", "memory_mb": 128}));
        assert_eq!(spawned.status, 200, "{spawned:?}");
        spawned.json()["id"].as_str().unwrap().to_string()
    }

    /// Runs a command with streamed output, and returns the stream.
    fn stream(&self, id: &str, command: &str) -> String {
        let body = json!({"sandbox_id": id, "command": command, "stream": true, "exit": true});
        let answer = self.post("/exec", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text()
    }

    fn exec(&self, id: &str, command: &str) -> Answer {
        self.post("/exec", json!({"sandbox_id": id, "command": command}))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let ended = self.process.wait();
        if !std::thread::panicking() {
            assert!(ended.unwrap().success(), "it leaves when it is asked to");
        }
    }
}

#[test]
fn a_sandbox_lives_runs_commands_and_is_destroyed() {
    let Some(served) = Served::new() else {
        return;
    };
    let id = served.spawn();
    let status = served.get(&format!("/status/{id}")).json();
    assert_eq!(status, json!({"id": id, "state": "running"}));

    let done = served.exec(&id, "echo conformance-ok").json();
    assert_eq!(
        (&done["exit_code"], &done["stdout"]),
        (&json!(0), &json!("conformance-ok\n"))
    );
    let done = served.exec(&id, "echo wrong >&2; exit 7").json();
    assert_eq!(
        (&done["exit_code"], &done["stderr"]),
        (&json!(7), &json!("wrong\n"))
    );
    // Arguments are quoted for a shell, and passed unchanged without one.
    let quoted =
        json!({"sandbox_id": id, "command": "printf '%s|'", "args": ["a b", "it's", "$HOME"]});
    assert_eq!(
        served.post("/exec", quoted).json()["stdout"],
        "a b|it's|$HOME|"
    );
    let literal = json!({
        "sandbox_id": id, "mode": "argv", "command": "sh", "workdir": "/tmp",
        "args": ["-c", "pwd; echo \"$WHO\"; echo \"$1\"", "sh", "it's $HOME"],
        "env": {"WHO": "a $USER"},
    });
    let said = served.post("/exec", literal).json();
    assert_eq!(said["stdout"], "/tmp\na $USER\nit's $HOME\n", "{said}");
    let bytes = served.exec(&id, r"printf '\377\376\200'").json();
    assert_eq!(bytes["stdout_base64"], "//6A");
    let late = json!({"sandbox_id": id, "command": "sleep 60", "timeout_seconds": 1});
    assert_eq!(served.post("/exec", late).status, 408);
    let unknown = json!({"sandbox_id": id, "command": "true", "mode": "magic"});
    assert_eq!(served.post("/exec", unknown).status, 400);

    let listed = served.get("/sandboxes").json();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["id"]),
        (1, &json!(id))
    );
    assert!(
        served.get(&format!("/stats/{id}")).json()["memory_bytes"]
            .as_u64()
            .unwrap()
            > 0
    );

    for _ in 0..2 {
        let path = format!("/sandboxes/{id}");
        assert_eq!(served.ask("DELETE", &path, None).status, 204);
    }
    let gone = served.exec(&id, "true");
    assert_eq!(
        (gone.status, &gone.json()["code"]),
        (410, &json!("DESTROYED"))
    );
    let read = served.get(&format!("/files?sandbox_id={id}&path=/etc/passwd"));
    assert_eq!(read.status, 410);
    assert_eq!(served.get(&format!("/status/{id}")).status, 410);
}

#[test]
fn output_comes_while_the_command_runs_and_a_reader_who_leaves_ends_it() {
    let Some(served) = Served::new() else {
        return;
    };
    let id = served.spawn();
    let all = served.stream(&id, "printf stream-ok; echo bad >&2; exit 3");
    let lines: Vec<Value> = all
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        lines.contains(&json!({"stream": "stdout", "data": "stream-ok"})),
        "{lines:?}"
    );
    assert!(
        lines.contains(&json!({"stream": "stderr", "data": "bad\n"})),
        "{lines:?}"
    );
    assert_eq!(
        lines.last().unwrap(),
        &json!({"exit_code": 3, "timed_out": false})
    );
    // A megabyte without a newline is split into lines that every reader accepts.
    let all = served.stream(&id, "head -c 1000000 /dev/zero | tr '\\0' '\"'; echo");
    assert!(all.lines().all(|line| line.len() < 65_536));
    let said: usize = all
        .lines()
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["data"].as_str().map(str::len)
        })
        .sum();
    assert_eq!(said, 1_000_001);

    let command = "echo begun; exec sleep 1234";
    let body = json!({"sandbox_id": id, "command": command, "stream": true});
    let mut reader = motu_needs::command("curl")
        .args([
            "-sSN",
            "-H",
            &format!("X-API-Key: {KEY}"),
            "-H",
            "Content-Type: application/json",
        ])
        .args(["-d", &body.to_string(), &format!("{}/exec", served.at)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(reader.stdout.as_mut().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("begun"), "{first}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    let begun = Instant::now();
    while served.exec(&id, "ps | grep -c '[s]leep 1234'").json()["stdout"] != "0\n" {
        assert!(begun.elapsed() < SOON, "the command runs on");
    }
}

#[test]
fn files_are_written_read_moved_and_found() {
    let Some(served) = Served::new() else {
        return;
    };
    let id = served.spawn();
    let file = "/workspace/deep/contract.txt";
    let write = json!({"sandbox_id": id, "path": file, "content": "héllo\n", "mode": "0640"});
    assert_eq!(served.post("/files", write).status, 204);
    let at = |path: &str| format!("/files?sandbox_id={id}&path={path}");
    assert_eq!(served.get(&at(file)).text(), "héllo\n");
    let bytes = json!({"sandbox_id": id, "path": "/workspace/raw", "content_base64": "//6A"});
    assert_eq!(served.post("/files", bytes).status, 204);
    assert_eq!(served.get(&at("/workspace/raw")).body, [0xff, 0xfe, 0x80]);

    let stat = served
        .get(&format!("/files/stat?sandbox_id={id}&path={file}"))
        .json();
    assert_eq!((&stat["Path"], &stat["Size"]), (&json!(file), &json!(7)));
    assert_eq!(
        (&stat["Mode"], &stat["IsDir"]),
        (&json!("0640"), &json!(false))
    );
    assert!(
        stat["ModTime"].as_str().unwrap().starts_with("20"),
        "{stat}"
    );
    let listed = served
        .get(&format!("/files/list?sandbox_id={id}&path=/workspace"))
        .json();
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["Path"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["/workspace/deep", "/workspace/raw"]);
    let found = served.get(&format!(
        "/files/glob?sandbox_id={id}&pattern=/workspace/*/contract*.txt"
    ));
    assert_eq!(found.json(), json!([file]));

    // Directories above the new place are made, as they are for a new file; not for nothing.
    let below = "/workspace/new/deep/moved.txt";
    let none = json!({"sandbox_id": id, "old_path": "/workspace/none", "new_path": below});
    assert_eq!(served.post("/files/move", none).status, 422);
    assert_eq!(served.get(&at("/workspace/new")).status, 422);
    let rename = json!({"sandbox_id": id, "old_path": file, "new_path": below});
    assert_eq!(served.post("/files/move", rename).status, 204);
    let rename = json!({"sandbox_id": id, "old_path": below, "new_path": file});
    assert_eq!(served.post("/files/move", rename).status, 204);
    assert!(id.starts_with("sb-"), "{id}");
    let moved = "/workspace/moved.txt";
    let rename = json!({"sandbox_id": id, "old_path": file, "new_path": moved});
    assert_eq!(served.post("/files/move", rename).status, 204);
    let chmod = json!({"sandbox_id": id, "path": moved, "mode": "0755"});
    assert_eq!(served.post("/files/chmod", chmod).status, 204);
    assert_eq!(
        served.exec(&id, "stat -c %a /workspace/moved.txt").json()["stdout"],
        "755\n"
    );
    let full = json!({"sandbox_id": id, "path": "/workspace", "recursive": false});
    assert!(served.ask("DELETE", "/files", Some(full)).status >= 400);
    let delete = json!({"sandbox_id": id, "path": moved});
    assert_eq!(served.ask("DELETE", "/files", Some(delete)).status, 204);
    // A missing file has another error than a missing sandbox.
    let missing = served.get(&at(moved));
    assert_eq!(
        (missing.status, &missing.json()["code"]),
        (422, &json!("FILE_NOT_FOUND"))
    );
}

#[test]
fn without_the_key_nothing_is_reached_and_with_it_only_what_was_made_here() {
    let Some(served) = Served::new() else {
        return;
    };
    assert_eq!(served.curl(&[], "/health").status, 200);
    for headers in [&[][..], &["-H", "X-API-Key: wrong-key-of-somebody"]] {
        let refused = served.curl(headers, "/sandboxes");
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (401, &json!("UNAUTHORIZED"))
        );
    }
    // A sandbox of another caller on the same daemon.
    let made = served.story.motu(&["create", "busybox"]);
    assert_eq!(made.code, 0, "{made}");
    let other = made.stdout.trim();
    assert_eq!(served.exec(other, "true").status, 404);
    assert_eq!(served.get(&format!("/status/{other}")).status, 404);
    assert_eq!(
        served
            .ask("DELETE", &format!("/sandboxes/{other}"), None)
            .status,
        404
    );
    assert_eq!(served.get("/sandboxes").json(), json!([]));
    assert_eq!(served.exec("sb-pv-0000000000000000", "true").status, 404);
    // Nor is what a project has made there for it, whatever it is called.
    for name in ["acme--py:1", "acme--team/py:1"] {
        let tagged = served.story.motu(&["env", "tag", "busybox", name]);
        assert_eq!(tagged.code, 0, "{tagged}");
        let refused = served.post("/spawn", json!({"image": name}));
        let never = name.replace(":1", ":2");
        let missing = served.post("/spawn", json!({"image": never}));
        assert_eq!((refused.status, missing.status), (400, 400), "{refused:?}");
        assert_eq!(refused.json()["code"], "IMAGE_NOT_FOUND");
        assert_eq!(refused.text().replace(name, &never), missing.text());
    }
    // Image names give no access to this host's files.
    for image in ["dir:/etc", "tar:/etc/passwd", "oci:/etc"] {
        let refused = served.post("/spawn", json!({"image": image}));
        assert_eq!(refused.status, 403, "{image}: {refused:?}");
    }
    assert_eq!(served.post("/spawn", json!({"image": ""})).status, 400);
    assert_eq!(
        served
            .post("/spawn", json!({"image": "busybox", "memory_mb": 1}))
            .status,
        400
    );
    assert_eq!(
        served
            .curl(&["-H", &format!("X-API-Key: {KEY}"), "-d", "{"], "/spawn")
            .status
            / 100,
        4
    );
}

/// motu on both sides: a daemon whose runtime is another daemon's provider, over HTTP.
#[test]
fn motu_uses_motu_as_its_runtime_and_finds_it_again() {
    let Some(served) = Served::new() else {
        return;
    };
    let caller = Story::new();
    let key = served.story.path().join("key");
    caller.configure(&format!(
        "[http]\nurl = {:?}\nkey_file = {:?}\n",
        served.at, key
    ));
    // It has no network of its own, and no other runtime is used instead.
    let refused = caller.motu(&["create", "--runtime", "http", "--network", "busybox"]);
    assert_ne!(refused.code, 0, "{refused}");
    let ran = caller.motu(&[
        "run",
        "--runtime",
        "http",
        "busybox",
        "--",
        "echo",
        "from afar",
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "from afar\n"), "{ran}");
    let found = caller.motu(&["doctor", "--conformance", "http", "--json"]);
    assert_eq!(found.code, 0, "{found}");
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["holds"], true, "{found}");

    let made = caller.motu(&[
        "create",
        "--runtime",
        "http",
        "--id",
        "far",
        "busybox",
        "--json",
    ]);
    assert_eq!(made.code, 0, "{made}");
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!(made["isolation"], "container", "{made}");
    assert_eq!(made["network"], "unknown", "{made}");
    let written = caller.motu(&["exec", "far", "--", "sh", "-c", "echo kept > file"]);
    assert_eq!(written.code, 0, "{written}");
    let version = caller.motu(&["version", "--json"]);
    let version: Value = serde_json::from_str(&version.stdout).unwrap();
    let pid = find_pid(&version).unwrap_or_else(|| panic!("{version}"));
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let begun = Instant::now();
    while lives(pid) {
        assert!(begun.elapsed() < SOON, "the daemon outlives SIGKILL");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The next daemon finds the machine.
    let read = caller.motu(&["exec", "far", "--", "cat", "file"]);
    assert_eq!((read.code, read.stdout.as_str()), (0, "kept\n"), "{read}");
    let input = caller.motu(&["exec", "-i", "far", "--", "cat"]);
    assert_eq!(input.code, 108, "{input}");
    assert_eq!(caller.motu(&["rm", "far"]).code, 0);
    assert_eq!(served.get("/sandboxes").json(), json!([]));
}

/// A service that is killed: running commands are reported as interrupted, and the machines are
/// there when it is back.
#[test]
fn a_service_that_is_killed_and_started_again_has_its_machines_still() {
    let Some(mut served) = Served::new() else {
        return;
    };
    let caller = Story::new();
    let key = served.story.path().join("key");
    caller.configure(&format!(
        "[http]\nurl = {:?}\nkey_file = {:?}\n",
        served.at, key
    ));
    for id in ["far", "near"] {
        let made = caller.motu(&["create", "--runtime", "http", "--id", id, "busybox"]);
        assert_eq!(made.code, 0, "{made}");
        let script = format!("echo {id} > file");
        let written = caller.motu(&["exec", id, "--", "sh", "-c", &script]);
        assert_eq!(written.code, 0, "{written}");
    }
    let mut following = caller
        .command(&["exec", "far", "--", "sh", "-c", "echo begun; sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "begun");
    served.kill();
    let ended = following.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
    assert!(!ended.stderr.is_empty(), "it says why");
    // An unreachable service does not mean that its machines are gone.
    let refused = caller.motu(&["exec", "near", "--", "true"]);
    assert_ne!(refused.code, 0, "{refused}");
    let listed = caller.motu(&["ps", "--json"]);
    assert!(
        listed.stdout.contains("far") && listed.stdout.contains("near"),
        "{listed}"
    );
    assert!(!listed.stdout.contains("failed"), "{listed}");
    served.start_again();
    for id in ["near", "far"] {
        let read = caller.motu(&["exec", id, "--", "cat", "file"]);
        let expected = format!("{id}\n");
        assert_eq!((read.code, read.stdout), (0, expected), "{}", read.stderr);
        assert_eq!(caller.motu(&["rm", id]).code, 0);
    }
    assert_eq!(served.get("/sandboxes").json(), json!([]));
}

/// Whether a process runs; a zombie does not.
fn lives(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// The daemon's pid, wherever it is in the answer.
fn find_pid(value: &Value) -> Option<i32> {
    match value {
        Value::Object(fields) => match fields.get("pid").and_then(Value::as_i64) {
            Some(pid) => i32::try_from(pid).ok(),
            None => fields.values().find_map(find_pid),
        },
        _ => None,
    }
}

#[test]
fn an_orchestrator_makes_the_daemon_speak_to_nobody_beside_it() {
    let Some(served) = Served::new() else {
        return;
    };
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let image = format!("{}/team/tools:1", inside.local_addr().unwrap());
    let refused = served.post("/spawn", json!({"image": image}));
    assert!(refused.text().contains("may not reach"), "{refused:?}");
    let nobody = inside.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}
