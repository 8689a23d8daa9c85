//! Clients of host agents as they come: what they send when they say little, the codes they know
//! errors by, and what they find of what they have made.

use motu_testkit::host::{Answer, Ask, Host};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A host, and a client that sends its key as clients of host agents do.
struct Client {
    host: Host,
    key: String,
}

impl Client {
    fn new() -> Client {
        let host = Host::unstarted();
        assert!(host.story.has_busybox());
        Client::of(host)
    }

    fn of(host: Host) -> Client {
        let config = "runtime = \"container\"\n[grpc]\nenvironment = \"busybox\"\n";
        host.listen(config, "");
        host.start();
        let key = host.key(&["--project", "acme"]);
        Client { host, key }
    }

    fn ask(&self, ask: Ask) -> Answer {
        self.host
            .ask(ask.header(&format!("X-API-Key: {}", self.key)))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(Ask::get(path))
    }

    fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(Ask::post(path, body))
    }

    fn made(&self, body: Value) -> Answer {
        let made = self.post("/v1/capsules", body);
        assert_eq!(made.status, 202, "{made}");
        made
    }
}

fn id(made: &Answer) -> String {
    made.json["id"].as_str().unwrap().to_string()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    let error = &answer.json["error"];
    assert_eq!(
        (answer.status, &error["code"]),
        (status, &json!(code)),
        "{answer}"
    );
    assert!(error["message"].is_string(), "{answer}");
}

#[test]
fn a_capsule_of_a_client_that_says_nothing() {
    let client = Client::new();
    let unknown = client.host.ask(Ask::get("/v1/capsules"));
    refused(&unknown, 401, "unauthorized");
    let wrong = Ask::get("/v1/capsules").header("X-API-Key: wrn_none");
    refused(&client.host.ask(wrong), 401, "unauthorized");
    let made = client.made(json!({}));
    assert_eq!(made.json["template"], "busybox", "{made}");
    assert_eq!(
        (&made.json["vcpus"], &made.json["memory_mb"]),
        (&json!(1), &json!(512))
    );
    assert_eq!(made.json["runtime"], "container", "{made}");
    let labels = json!({"team": "web"});
    let minimal = json!({"template": "minimal", "runtime": "container", "metadata": labels});
    let minimal = client.made(minimal);
    assert_eq!(minimal.json["template"], "busybox", "{minimal}");
    assert_eq!(minimal.json["metadata"]["team"], "web", "{minimal}");
    let none = client.post("/v1/capsules", json!({"runtime": "nonesuch"}));
    assert!(none.status >= 400, "{none}");
    let reserved = json!({"metadata": {"motu/capsule": "x"}});
    refused(
        &client.post("/v1/capsules", reserved),
        400,
        "invalid_request",
    );
    // It has no end of its own.
    let sandbox = client.get(&format!("/v1/sandboxes/{}", id(&made)));
    let life = (&sandbox.json["ttl_seconds"], &sandbox.json["expires_at"]);
    assert_eq!(life, (&json!(0), &Value::Null), "{sandbox}");
    // What was made elsewhere is not in its list, and is there.
    let other = json!({"environment": "busybox", "sandbox_id": "other"});
    assert_eq!(client.post("/v1/sandboxes", other).status, 201);
    let listed = client.get("/v1/capsules");
    let listed: Vec<&Value> = listed
        .json
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(listed, [&made.json["id"], &minimal.json["id"]]);
    assert_eq!(client.get("/v1/capsules/acme--other").status, 200);
    // The template that is always there is nobody's to remove.
    let templates = client.get("/v1/snapshots?type=base");
    assert_eq!(templates.json[0]["name"], "minimal", "{templates}");
    assert_eq!(templates.json[0]["protected"], true, "{templates}");
    assert_eq!(client.get("/v1/snapshots?type=snapshot").json, json!([]));
    let remove = Ask::new("DELETE", "/v1/snapshots/minimal");
    refused(&client.ask(remove), 403, "forbidden");
    // One that is gone is still known, and has no figures.
    let at = format!("/v1/capsules/{}", id(&made));
    assert_eq!(client.ask(Ask::new("DELETE", &at)).status, 202);
    assert_eq!(client.get(&at).json["status"], "stopped");
    refused(&client.get(&format!("{at}/metrics")), 404, "not_found");
    refused(&client.get("/v1/capsules/none"), 404, "not_found");
}

#[test]
fn what_is_not_installed_is_pulled_for_a_capsule() {
    let client = Client::of(Host::unstarted());
    let made = client.made(json!({}));
    assert_eq!(made.json["status"], "running", "{made}");
    let none = client.post("/v1/capsules", json!({"template": "nonesuch"}));
    refused(&none, 404, "not_found");
}

#[test]
fn commands_and_files_of_a_capsule_as_its_clients_know_them() {
    let client = Client::new();
    let at = format!("/v1/capsules/{}", id(&client.made(json!({}))));
    let exec = |body: Value| client.post(&format!("{at}/exec"), body);
    let shell = |script: &str| json!({"cmd": "/bin/sh", "args": ["-c", script]});
    let nap = json!({"cmd": "sleep", "args": ["60"], "background": true});
    let begun = exec(nap);
    assert_eq!(begun.status, 202, "{begun}");
    let tag = begun.json["tag"].as_str().unwrap();
    let digits = tag.strip_prefix("proc-").unwrap_or_default();
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    assert!(digits.len() == 8 && digits.bytes().all(hex), "{tag}");
    // What did not run, or not to its end, is no result.
    let mut elsewhere = shell("pwd");
    elsewhere["cwd"] = json!("/no/such/place");
    refused(&exec(elsewhere.clone()), 400, "invalid_request");
    elsewhere["cwd"] = json!("/etc/passwd");
    refused(&exec(elsewhere), 400, "invalid_request");
    let mut long = shell("echo begun; sleep 60");
    long["timeout_sec"] = json!(1);
    let late = exec(long);
    refused(&late, 502, "agent_error");
    assert_eq!(late.json["error"]["details"]["stdout"], "begun\n", "{late}");
    // A program that is not there is one, as in a shell.
    let none = exec(json!({"cmd": "nonesuch", "cwd": "/tmp"}));
    assert_eq!(
        (none.status, &none.json["exit_code"]),
        (200, &json!(127)),
        "{none}"
    );
    // Files in pieces, of any length.
    let form = "--x\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n/tmp/d/big\r\n--x\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"path\"\r\n\r\n";
    let mut body = form.as_bytes().to_vec();
    body.resize(body.len() + (20 << 20), b'z');
    let whole = [&body[..], b"\r\n--x--\r\n"].concat();
    let write = |body: Vec<u8>| {
        let ask = Ask::new("POST", &format!("{at}/files/stream/write")).bytes(body);
        client.ask(ask.header("Content-Type: multipart/form-data; boundary=x"))
    };
    let wrote = write(whole);
    assert_eq!(wrote.status, 204, "{wrote}");
    // One that ends too early changes nothing.
    refused(&write(form.as_bytes().to_vec()), 400, "invalid_request");
    let read = client.post(
        &format!("{at}/files/stream/read"),
        json!({"path": "/tmp/d/big"}),
    );
    assert_eq!((read.status, read.text.len()), (200, 20 << 20));
    let absent = json!({"path": "/tmp/none"});
    refused(
        &client.post(&format!("{at}/files/read"), absent),
        404,
        "not_found",
    );
    let listed = client.post(
        &format!("{at}/files/list"),
        json!({"path": "/tmp/d", "depth": 1}),
    );
    let modified = listed.json["entries"][0]["modified_at"].as_i64();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let age = now.as_secs() as i64 - modified.expect("seconds");
    assert!((0..300).contains(&age), "{listed}");
    // What is paused takes neither commands nor pings, and says why.
    let paused = client.post(&format!("{at}/pause"), json!({}));
    assert_eq!(
        (paused.status, &paused.json["status"]),
        (202, &json!("paused"))
    );
    refused(&exec(shell("true")), 409, "invalid_state");
    refused(
        &client.post(&format!("{at}/ping"), json!({})),
        409,
        "invalid_state",
    );
    let resumed = client.post(&format!("{at}/resume"), json!({}));
    assert_eq!(
        (resumed.status, &resumed.json["status"]),
        (202, &json!("running"))
    );
    assert_eq!(client.post(&format!("{at}/ping"), json!({})).status, 204);
}

#[test]
fn figures_of_all_capsules_and_of_one() {
    let client = Client::new();
    let at = format!(
        "/v1/capsules/{}",
        id(&client.made(json!({"memory_mb": 256})))
    );
    for range in ["5m", "1h", "6h", "24h", "30d"] {
        let stats = client.get(&format!("/v1/capsules/stats?range={range}"));
        assert_eq!(stats.json["range"], range, "{stats}");
        assert_eq!(stats.json["current"]["memory_mb_reserved"], 256, "{stats}");
        assert_eq!(stats.json["peaks"]["running_count"], 1, "{stats}");
        let series = &stats.json["series"];
        let length = |name: &str| series[name].as_array().unwrap().len();
        assert_eq!(length("labels"), length("running"), "{stats}");
        let last = series["running"].as_array().unwrap().last();
        assert_eq!(last, Some(&json!(1)), "{stats}");
    }
    refused(
        &client.get("/v1/capsules/stats?range=7m"),
        400,
        "invalid_request",
    );
    let usage = client.get("/v1/capsules/usage");
    let days = usage.json["points"].as_array().unwrap();
    assert_eq!(days.len(), 31, "{usage}");
    assert!(
        days[30]["ram_mb_minutes"].as_f64().unwrap() > 0.0,
        "{usage}"
    );
    for wrong in ["from=2020-01-01", "from=x", "from=2026-01-02&to=2026-01-01"] {
        let answer = client.get(&format!("/v1/capsules/usage?{wrong}"));
        refused(&answer, 400, "invalid_request");
    }
    let metrics = |range: &str| client.get(&format!("{at}/metrics?range={range}"));
    let end = Instant::now() + Duration::from_secs(20);
    while metrics("5m").json["points"] == json!([]) {
        assert!(Instant::now() < end, "no figures come");
        std::thread::sleep(Duration::from_millis(100));
    }
    for range in ["10m", "1h", "2h", "6h", "12h", "24h"] {
        assert_eq!(metrics(range).json["range"], range);
    }
    // Another project's figures are its own.
    let other = client.host.key(&["--project", "other"]);
    let stats = client.host.call(&other, Ask::get("/v1/capsules/stats"));
    assert_eq!(stats.json["peaks"]["running_count"], 0, "{stats}");
}

/// An answer that goes on.
struct Live {
    stream: TcpStream,
    heard: String,
}

impl Live {
    /// What comes until a word, and that.
    fn until(&mut self, word: &str) -> String {
        let mut piece = [0u8; 4096];
        loop {
            if let Some(at) = self.heard.find(word) {
                let rest = self.heard.split_off(at + word.len());
                return std::mem::replace(&mut self.heard, rest);
            }
            let length = self.stream.read(&mut piece).unwrap();
            assert!(length > 0, "it ended without {word}: {}", self.heard);
            self.heard += &String::from_utf8_lossy(&piece[..length]);
        }
    }
}

#[test]
fn what_happens_to_capsules_is_told_as_it_happens() {
    let client = Client::new();
    let mut stream = TcpStream::connect(client.host.address).unwrap();
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).unwrap();
    let head = format!(
        "GET /v1/events/stream HTTP/1.1\r\nHost: motu\r\nX-API-Key: {}\r\n\r\n",
        client.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut live = Live {
        stream,
        heard: String::new(),
    };
    live.until("event: connected");
    let other = json!({"environment": "busybox", "sandbox_id": "other"});
    assert_eq!(client.post("/v1/sandboxes", other).status, 201);
    let made = client.made(json!({}));
    let at = format!("/v1/capsules/{}", id(&made));
    // Nothing is told of what is no capsule: the first event is about the one that was made.
    assert!(!live.until("event: capsule.create").contains("other"));
    live.until(&id(&made));
    assert_eq!(client.post(&format!("{at}/pause"), json!({})).status, 202);
    live.until("event: capsule.pause");
    assert_eq!(client.ask(Ask::new("DELETE", &at)).status, 202);
    live.until("event: capsule.destroy");
    live.until(r#""status":"stopped""#);
}

#[test]
fn visitors_of_a_port_wake_a_capsule_and_nothing_else() {
    let client = Client::new();
    let serve = json!({
        "cmd": "sh", "background": true,
        "args": ["-c", "mkdir -p /tmp/w; echo here > /tmp/w/index.html; exec httpd -f -p 8000 -h /tmp/w"],
    });
    let capsule = id(&client.made(json!({})));
    let other = json!({"environment": "busybox", "sandbox_id": "other"});
    assert_eq!(client.post("/v1/sandboxes", other).status, 201);
    for box_id in [&capsule[..], "acme--other"] {
        let begun = client.post(&format!("/v1/capsules/{box_id}/exec"), serve.clone());
        assert_eq!(begun.status, 202, "{begun}");
        let page = format!("/v1/sandboxes/{box_id}/ports/8000/");
        let end = Instant::now() + Duration::from_secs(20);
        while client.get(&page).text != "here\n" {
            assert!(Instant::now() < end, "nothing listens");
            std::thread::sleep(Duration::from_millis(50));
        }
        let paused = client.post(&format!("/v1/capsules/{box_id}/pause"), json!({}));
        assert_eq!(paused.json["status"], "paused", "{paused}");
        let page = client.get(&page);
        let now = client.get(&format!("/v1/capsules/{box_id}"));
        match box_id == capsule {
            true => {
                assert_eq!((page.status, &page.text[..]), (200, "here\n"), "{page}");
                assert_eq!(now.json["status"], "running", "{now}");
            }
            false => {
                assert_eq!(page.status, 409, "{page}");
                assert_eq!(now.json["status"], "paused", "{now}");
            }
        }
    }
}
