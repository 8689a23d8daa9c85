//! The host as a service, beyond keys: lists in pages, versions of what is answered, what ends with
//! a key, bodies that do not arrive. The client is curl, or a plain connection.

mod capsules;
mod collector;
mod upgraded;

use motu_needs::skip;
use motu_testkit::host::{Ask, Host};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

fn secret(host: &Host, key: &str, name: &str) {
    let ask = Ask::new("PUT", &format!("/v1/secrets/{name}"));
    let set = host.call(
        key,
        ask.body(json!({"value": "v", "hosts": ["example.com"]})),
    );
    assert_eq!(set.status, 200, "{set}");
}

#[test]
fn a_list_is_read_in_pages_while_things_come_and_go() {
    let host = Host::configured("", "");
    let (ours, theirs) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "other"]),
    );
    for number in 0..25 {
        secret(&host, &ours, &format!("s{number:02}"));
        secret(&host, &theirs, &format!("t{number:02}"));
    }
    let mut seen: Vec<String> = Vec::new();
    let mut address = "/v1/secrets?limit=10".to_string();
    for page in 0.. {
        let answer = host.call(&ours, Ask::get(&address));
        assert_eq!(answer.status, 200, "{answer}");
        let names = answer.json["secrets"].as_array().unwrap().iter();
        seen.extend(names.map(|one| one["name"].as_str().unwrap().to_string()));
        assert_eq!(
            answer.json["count"],
            answer.json["secrets"].as_array().unwrap().len()
        );
        // One that was seen goes, one comes where the pages have been, and one where they come.
        if page == 0 {
            let gone = host.call(&ours, Ask::new("DELETE", "/v1/secrets/s05"));
            assert_eq!(gone.status, 200, "{gone}");
            secret(&host, &ours, "a-first");
            secret(&host, &ours, "z-last");
        }
        match answer.json["next_cursor"].as_str() {
            Some(next) => address = format!("/v1/secrets?limit=10&cursor={next}"),
            None => break,
        }
    }
    let mut expected: Vec<String> = (0..25).map(|one| format!("acme--s{one:02}")).collect();
    expected.push("acme--z-last".to_string());
    assert_eq!(seen, expected);
    for wrong in ["limit=0", "limit=1001", "cursor=xyz", "cursor=7b7d"] {
        let answer = host.call(&ours, Ask::get(&format!("/v1/secrets?{wrong}")));
        assert_eq!(answer.status, 400, "{wrong}: {answer}");
    }
    // The log has pages of its own, from the newest back.
    let mut ids = BTreeSet::new();
    let mut address = "/v1/audit?limit=20&verb=set_secret".to_string();
    loop {
        let answer = host.call(&ours, Ask::get(&address));
        assert_eq!(answer.status, 200, "{answer}");
        for entry in answer.json["entries"].as_array().unwrap() {
            assert!(ids.insert(entry["id"].as_str().unwrap().to_string()));
        }
        match answer.json["next_cursor"].as_str() {
            Some(next) => address = format!("/v1/audit?limit=20&verb=set_secret&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids.len(), 27);
}

#[test]
fn what_a_client_has_is_not_sent_again_and_not_overwritten() {
    let host = Host::new("");
    let key = host.key(&[]);
    let made = json!({"environment": "busybox", "sandbox_id": "box"});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let file = "/v1/sandboxes/box/files/content?path=/workspace/a";
    let write = |body: &str, condition: &str| {
        let ask = Ask::new("PUT", file).bytes(body.as_bytes().to_vec());
        let ask = ask.header(condition);
        host.call(&key, ask)
    };
    let first = write("one", "If-None-Match: *");
    assert_eq!(first.status, 200, "{first}");
    let version = first.header("etag").unwrap().to_string();
    let read = host.call(&key, Ask::get(file));
    assert_eq!(
        (read.text.as_str(), read.header("etag")),
        ("one", Some(version.as_str()))
    );
    let same = format!("If-None-Match: {version}");
    let known = host.call(&key, Ask::get(file).header(&same));
    assert_eq!((known.status, known.text.as_str()), (304, ""));
    // Somebody else writes; then what the client knew is not the file any more.
    assert_eq!(write("second", "X-Nothing: 1").status, 200);
    let late = write("third", &format!("If-Match: {version}"));
    assert_eq!(late.status, 412, "{late}");
    assert_eq!(late.json["error"]["kind"], "conflict");
    let found = late.json["error"]["details"]["etag"].as_str().unwrap();
    assert_eq!(host.call(&key, Ask::get(file)).text, "second");
    assert_eq!(write("third", &format!("If-Match: {found}")).status, 200);
    assert_eq!(write("fourth", "If-None-Match: *").status, 412);
    assert_eq!(host.call(&key, Ask::get(file).header(&same)).text, "third");
    // Answers in JSON have versions, too.
    let template = host.call(&key, Ask::get("/v1/environments/busybox"));
    let version = format!("If-None-Match: {}", template.header("etag").unwrap());
    let again = host.call(&key, Ask::get("/v1/environments/busybox").header(&version));
    assert_eq!((again.status, again.text.as_str()), (304, ""));
}

#[test]
fn of_two_who_have_seen_the_same_one_writes() {
    let host = Host::new("");
    let key = host.key(&[]);
    let made = json!({"environment": "busybox", "sandbox_id": "box"});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let bearer = format!("Authorization: Bearer {key}");
    // Texts of one length: times are as coarse as the clock, and tell nothing.
    let write = |file: &str, condition: &str, number: usize| {
        let mut curl = motu_needs::command("curl");
        curl.args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        curl.args([
            "--request",
            "PUT",
            "--header",
            &bearer,
            "--header",
            condition,
        ]);
        curl.args(["--data-binary", &format!("writer {number}")]);
        let output = curl.arg(format!("http://{}{file}", host.address)).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let race = |file: &str, condition: &str| {
        let answers: Vec<String> = std::thread::scope(|scope| {
            let write = &write;
            let writers: Vec<_> = (0..6)
                .map(|number| scope.spawn(move || write(file, condition, number)))
                .collect();
            writers.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let won: Vec<usize> = (0..6).filter(|one| answers[*one] == "200").collect();
        let late = answers.iter().filter(|status| *status == "412").count();
        assert_eq!((won.len(), late), (1, 5), "{condition}: {answers:?}");
        let read = host.call(&key, Ask::get(file));
        assert_eq!(read.text, format!("writer {}", won[0]));
        format!("If-Match: {}", read.header("etag").unwrap())
    };
    for round in 0..5 {
        let file = format!("/v1/sandboxes/box/files/content?path=/tmp/{round}");
        let mut condition = race(&file, "If-None-Match: *");
        for _ in 0..4 {
            condition = race(&file, &condition);
        }
        // A write without a condition counts, too.
        assert_eq!(write(&file, "X-Nothing: 1", 7), "200");
        assert_eq!(write(&file, &condition, 8), "412");
    }
}

/// A request on a connection of its own, with its body begun.
fn open(host: &Host, key: &str, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(host.address).unwrap();
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    let head =
        format!("{head}\r\nHost: motu\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    if body.is_empty() {
        stream.write_all(b"\r\n").unwrap();
    } else {
        stream
            .write_all(b"Transfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        write!(stream, "{:x}\r\n", body.len()).unwrap();
        stream.write_all(body).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream
}

/// Reads until this is there, in its time: a stream may say that it is alive for ever.
fn until(stream: &mut TcpStream, word: &str) -> String {
    let end = Instant::now() + Duration::from_secs(30);
    let mut heard = Vec::new();
    let mut piece = [0u8; 4096];
    while !String::from_utf8_lossy(&heard).contains(word) {
        let length = stream.read(&mut piece).unwrap();
        let late = Instant::now() > end;
        assert!(length > 0 && !late, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&piece[..length]);
    }
    String::from_utf8_lossy(&heard).into_owned()
}

#[test]
fn what_is_open_ends_with_its_key() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let other = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox", "sandbox_id": "box"});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let request = json!({"command": ["sh", "-c", "echo begun; sleep 300"], "timeout_seconds": 400});
    let request = request.to_string();
    let mut frame = vec![0];
    frame.extend((request.len() as u32).to_be_bytes());
    frame.extend(request.as_bytes());
    let exec = "POST /v1/sandboxes/box/exec HTTP/1.1\r\nAccept: application/vnd.motu.stream";
    let events = "GET /v1/events HTTP/1.1\r\nAccept: text/event-stream";
    let watch = "GET /v1/sandboxes/box/files/watch?path=/tmp HTTP/1.1";
    let mut open_ones = [
        (open(&host, &key, exec, &frame), "begun"),
        (open(&host, &key, events, b""), "id: "),
        (open(&host, &key, watch, b""), "200 OK"),
    ];
    let mut stays = open(&host, &other, events, b"");
    for (stream, word) in &mut open_ones {
        until(stream, word);
    }
    until(&mut stays, "id: ");
    let id = key.split('_').nth(1).unwrap();
    let begin = Instant::now();
    assert_eq!(host.story.motu(&["key", "revoke", id]).code, 0);
    for (mut stream, word) in open_ones {
        let mut rest = Vec::new();
        // A reset is an end, too; running into the patience of the connection is none.
        let ended = stream.read_to_end(&mut rest);
        let late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!late, "{word}: {}", String::from_utf8_lossy(&rest));
    }
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    // What it ran is gone, and others of the project listen on.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let ask = Ask::get("/v1/sandboxes/box/processes");
        let left = host.call(&other, ask);
        let processes = left.json["processes"].as_array().unwrap();
        if processes.iter().all(|one| !one["exited"].is_null()) {
            break;
        }
        assert!(Instant::now() < end, "{left}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let made = json!({"environment": "busybox", "sandbox_id": "later"});
    let made = host.call(&other, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    until(&mut stays, "acme--later");
}

#[test]
fn bodies_that_do_not_arrive_are_the_callers_fault() {
    let host = Host::configured("", "body_seconds = 1\n");
    let key = host.key(&[]);
    let post = "POST /v1/policies/check HTTP/1.1\r\nContent-Type: application/json";
    let answer = |rest: &[u8]| {
        let mut stream = open(&host, &key, post, b"{\"text\":");
        stream.write_all(rest).unwrap();
        until(&mut stream, "\r\n")
    };
    let bad = answer(b"zz\r\nnot a chunk\r\n");
    assert!(bad.starts_with("HTTP/1.1 400"), "{bad}");
    let begin = Instant::now();
    let slow = answer(b"");
    assert!(slow.starts_with("HTTP/1.1 504"), "{slow}");
    assert!(begin.elapsed() < Duration::from_secs(20));
    // A whole number may be written as JSON writes it.
    let key = host.call(&key, Ask::post("/v1/policies/check", json!({"text": 1.0})));
    assert_eq!(key.status, 400, "{key}");
}

#[test]
fn a_pipe_in_the_place_of_an_archive_keeps_nobody_waiting() {
    let host = Host::new("");
    let pipe = host.story.path().join("pipe");
    let made = motu_needs::command("mknod").arg(&pipe).arg("p").status();
    let made = made.unwrap();
    assert!(made.success());
    let told = host
        .story
        .motu(&["workspace", "create", "busybox", "--json"]);
    let workspace: Value = serde_json::from_str(&told.stdout).unwrap();
    let id = workspace["workspace_id"].as_str().unwrap();
    let pipe = pipe.to_str().unwrap();
    let begin = Instant::now();
    let pushed = host.story.motu(&["workspace", "sync", "push", id, pipe]);
    assert_eq!(pushed.code, 102, "{pushed}");
    let pulled = host.story.motu(&["env", "pull", &format!("tar:{pipe}")]);
    assert_ne!(pulled.code, 0, "{pulled}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn capsules_are_sandboxes_in_the_shape_of_host_agents() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let post = |path: &str, body: Value| host.call(&key, Ask::post(path, body));
    let made = post(
        "/v1/capsules",
        json!({"template": "busybox", "memory_mb": 256, "timeout_sec": 900}),
    );
    assert_eq!(made.status, 202, "{made}");
    assert_eq!(made.json["status"], "running");
    assert_eq!(made.json["memory_mb"], 256);
    let id = made.json["id"].as_str().unwrap();
    let at = format!("/v1/capsules/{id}");
    let ran = json!({"cmd": "sh", "args": ["-c", "echo $A; pwd; exit 3"], "envs": {"A": "b"}, "cwd": "/tmp"});
    let ran = post(&format!("{at}/exec"), ran);
    assert_eq!(ran.json["stdout"], "b\n/tmp\n", "{ran}");
    assert_eq!(
        (&ran.json["exit_code"], &ran.json["encoding"]),
        (&json!(3), &json!("utf-8"))
    );
    let odd = post(
        &format!("{at}/exec"),
        json!({"cmd": "printf", "args": ["\\377"]}),
    );
    assert_eq!(
        (&odd.json["stdout"], &odd.json["encoding"]),
        (&json!("/w=="), &json!("base64"))
    );
    let none = post(&format!("{at}/exec"), json!({}));
    assert_eq!(none.status, 400, "{none}");
    // In the background it is found again, and ended by its tag.
    let nap = json!({"cmd": "sleep", "args": ["300"], "background": true, "tag": "nap"});
    let started = post(&format!("{at}/exec"), nap);
    assert_eq!(
        (started.status, &started.json["tag"]),
        (202, &json!("nap")),
        "{started}"
    );
    let running = host.call(&key, Ask::get(&format!("{at}/processes")));
    assert_eq!(
        running.json["processes"][0]["pid"], started.json["pid"],
        "{running}"
    );
    assert_eq!(running.json["processes"][0]["args"], json!(["300"]));
    let kill = || {
        host.call(
            &key,
            Ask::new("DELETE", &format!("{at}/processes/nap?signal=TERM")),
        )
    };
    assert_eq!(kill().status, 204);
    let end = Instant::now() + Duration::from_secs(20);
    while host.call(&key, Ask::get(&format!("{at}/processes"))).json["processes"] != json!([]) {
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Files: a form, and contents of any size.
    let form = "--x\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n/tmp/d/a\r\n--x\r\n\
        Content-Disposition: form-data; name=\"file\"\r\n\r\none\r\n--x--\r\n";
    let ask = Ask::new("POST", &format!("{at}/files/write")).bytes(form.as_bytes().to_vec());
    let wrote = host.call(
        &key,
        ask.header("Content-Type: multipart/form-data; boundary=x"),
    );
    assert_eq!(wrote.status, 204, "{wrote}");
    let ask = Ask::new("POST", &format!("{at}/files/write?path=/tmp/d/b"));
    assert_eq!(host.call(&key, ask.bytes(vec![b'y'; 3 << 20])).status, 204);
    assert_eq!(
        post(&format!("{at}/files/read"), json!({"path": "/tmp/d/a"})).text,
        "one"
    );
    let listed = post(&format!("{at}/files/list"), json!({"path": "/tmp/d"}));
    let sizes = listed.json["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["size"].as_u64().unwrap());
    assert_eq!(sizes.collect::<Vec<_>>(), [3, 3 << 20], "{listed}");
    assert_eq!(
        post(&format!("{at}/files/mkdir"), json!({"path": "/tmp/e"})).json["entry"]["type"],
        "directory"
    );
    assert_eq!(
        post(&format!("{at}/files/remove"), json!({"path": "/tmp/d"})).status,
        204
    );
    assert_eq!(
        post(&format!("{at}/files/read"), json!({"path": "/tmp/d/a"})).status,
        404
    );
    let metrics = host.call(&key, Ask::get(&format!("{at}/metrics?range=10m")));
    assert_eq!(
        (metrics.status, &metrics.json["range"]),
        (200, &json!("10m")),
        "{metrics}"
    );
    // Another project sees nothing of it.
    let other = host.key(&["--project", "other"]);
    assert_eq!(host.call(&other, Ask::get(&at)).status, 404);
    assert_eq!(host.call(&other, Ask::get("/v1/capsules")).json, json!([]));
    let listed = host.call(&key, Ask::get("/v1/capsules"));
    assert_eq!(listed.json[0]["id"], id, "{listed}");
    assert_eq!(post(&format!("{at}/ping"), json!({})).status, 204);
    assert_eq!(
        post(&format!("{at}/pause"), json!({})).json["status"],
        "paused"
    );
    assert_eq!(
        post(&format!("{at}/resume"), json!({})).json["status"],
        "running"
    );
    // Its disks become a template, which stays while something came from it.
    let marked = post(
        &format!("{at}/exec"),
        json!({"cmd": "sh", "args": ["-c", "echo kept > /kept"]}),
    );
    assert_eq!(marked.json["exit_code"], 0, "{marked}");
    let saved = post("/v1/snapshots", json!({"sandbox_id": id, "name": "py"}));
    assert_eq!(
        (saved.status, &saved.json["name"]),
        (202, &json!("acme--py")),
        "{saved}"
    );
    let copy = post("/v1/capsules", json!({"template": "py"}));
    assert_eq!(copy.json["template"], "acme--py", "{copy}");
    let copy = format!("/v1/capsules/{}", copy.json["id"].as_str().unwrap());
    let kept = post(
        &format!("{copy}/exec"),
        json!({"cmd": "cat", "args": ["/kept"]}),
    );
    assert_eq!(kept.json["stdout"], "kept\n", "{kept}");
    let delete = |path: &str| host.call(&key, Ask::new("DELETE", path));
    assert_eq!(delete("/v1/snapshots/py").status, 409);
    assert_eq!(delete(&copy).status, 202);
    let gone = delete("/v1/snapshots/py");
    assert_eq!(gone.status, 204, "{gone}");
    let left = host.call(&key, Ask::get("/v1/snapshots"));
    assert_eq!(left.json.as_array().map(Vec::len), Some(1), "{left}");
    assert_eq!(delete(&at).status, 202);
}

#[test]
fn what_never_ends_can_be_kept_alive() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox"});
    let made = host.call(&key, Ask::post("/v1/workspaces", made));
    let id = made.json["workspace_id"].as_str().unwrap();
    let alive = format!("/v1/sandboxes/{id}/keepalive");
    let alive = host.call(&key, Ask::post(&alive, json!({"idle_seconds": 60})));
    assert_eq!(alive.status, 200, "{alive}");
    assert_eq!(alive.json["idle_seconds"], 60, "{alive}");
    assert_eq!(alive.json["expires_at"], serde_json::Value::Null, "{alive}");
}

#[test]
fn requests_made_from_the_document_are_understood() {
    let root = motu_testkit::root();
    let python = root.join("target/clients/schemathesis/bin/python");
    if !python.exists() {
        skip("schemathesis is not installed; run tools/setup test");
        return;
    }
    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox", "sandbox_id": "box", "ttl_seconds": 3600});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let variable = |name, default: &str| std::env::var(name).unwrap_or(default.to_string());
    let seconds = variable("MOTU_SCHEMATHESIS_SECONDS", "60");
    let seed = variable("MOTU_SCHEMATHESIS_SEED", "1");
    let output = Command::new(python)
        .arg(root.join("crates/cli/tests/stories/service/schemathesis.py"))
        .arg(root.join("docs/openapi.json"))
        .arg(format!("http://{}", host.address))
        .args([&key, &seconds, &seed])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{complained}");
    println!("{said}");
}
