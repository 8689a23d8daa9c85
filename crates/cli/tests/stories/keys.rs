//! The host as a service: keys, projects, the address for callers of other hosts. The client is curl.

mod bounds;
mod builds;
mod frames;
mod hostile;
mod names;
mod projects;
mod pulls;
mod quotas;
mod sites;
mod tls;
mod vanished;

use motu_testkit::host::{Ask, Host};
use motu_testkit::story::Story;
use serde_json::json;

#[test]
fn a_key_is_shown_once_and_is_nowhere_in_clear() {
    let host = Host::new("");
    let key = host.key(&["--project", "acme", "--name", "ci"]);
    let made = host.call(
        &key,
        Ask::post("/v1/sandboxes", json!({"environment": "busybox"})),
    );
    assert_eq!(made.status, 201, "{made}");
    assert_eq!(made.json["owner"], "project:acme");
    let ran = json!({"command": ["sh", "-c", "env; cat /proc/*/cmdline"]});
    let id = made.json["sandbox_id"].as_str().unwrap();
    let ran = host.call(&key, Ask::post(&format!("/v1/sandboxes/{id}/exec"), ran));
    assert_eq!(ran.status, 200, "{ran}");
    let secret = key.rsplit('_').next().unwrap();
    assert!(!ran.text.contains(secret), "{ran}");
    // The audit log says which key, and nothing says what it is.
    let log = host.story.motu(&["audit", "list", "--json"]);
    let id = key.split('_').nth(1).unwrap();
    assert!(log.stdout.contains(&format!("key:{id}@acme")), "{log}");
    let listed = host.story.motu(&["key", "list", "--json"]);
    assert!(listed.stdout.contains(id), "{listed}");
    host.stop();
    for path in host.files() {
        let bytes = std::fs::read(&path).unwrap();
        let found = memchr::memmem::find(&bytes, secret.as_bytes());
        assert_eq!(found, None, "{}", path.display());
    }
    // The next daemon knows it.
    let again = host.start().call(&key, Ask::get("/v1/sandboxes"));
    assert_eq!(again.json["count"], 1, "{again}");
}

#[test]
fn whoever_is_not_known_is_told_one_thing() {
    let host = Host::new("");
    let good = host.key(&[]);
    let revoked = host.key(&[]);
    let id = revoked.split('_').nth(1).unwrap();
    assert_eq!(host.call(&revoked, Ask::get("/v1/version")).status, 200);
    let told = host.story.motu(&["key", "revoke", id]);
    assert_eq!(told.code, 0, "{told}");
    let wrong = format!("{}{}", &good[..good.len() - 4], "zzzz");
    let other = if good.ends_with("0000") {
        "1111"
    } else {
        "0000"
    };
    let almost = format!("{}{other}", &good[..good.len() - 4]);
    let nobody = format!("motu_aaaaaaaaaaaa_{}", "0".repeat(64));
    let mut said = Vec::new();
    for key in ["", "x", &wrong, &almost, &nobody, &revoked] {
        let answer = host.call(key, Ask::get("/v1/version"));
        assert_eq!(answer.status, 401, "{key}: {answer}");
        assert_eq!(answer.json["error"]["kind"], "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert!(answer.header("x-request-id").is_some(), "{answer}");
        said.push(answer.text);
    }
    said.dedup();
    assert_eq!(said.len(), 1, "{said:?}");
    let none = host.ask(Ask::get("/v1/openapi.json"));
    assert_eq!(none.status, 401, "{none}");
    assert_eq!(host.call(&good, Ask::get("/v1/version")).status, 200);
}

#[test]
fn a_key_expires_and_says_so_to_whoever_has_it() {
    let host = Host::new("");
    let key = host.key(&["--expires", "1s"]);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let answer = loop {
        let answer = host.call(&key, Ask::get("/v1/version"));
        if answer.status != 200 {
            break answer;
        }
        assert!(std::time::Instant::now() < end, "it never expires");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert_eq!(answer.status, 401, "{answer}");
    let message = answer.json["error"]["message"].as_str().unwrap();
    assert!(message.contains("expired"), "{answer}");
}

#[test]
fn scopes_and_rates_bound_a_key() {
    let host = Host::new("");
    let narrow = host.key(&["--scope", "read,commands:exec"]);
    assert_eq!(host.call(&narrow, Ask::get("/v1/sandboxes")).status, 200);
    let create = || Ask::post("/v1/sandboxes", json!({"environment": "busybox"}));
    let denied = host.call(&narrow, create());
    assert_eq!(denied.status, 403, "{denied}");
    let details = &denied.json["error"]["details"];
    assert_eq!(details["permission"], "sandboxes:create_sandbox");
    // Being refused is recorded, under the id of the answer.
    let id = denied.header("x-request-id").unwrap().to_string();
    let entry = host.story.motu(&["audit", "show", &id, "--json"]);
    assert!(entry.stdout.contains("\"denied\""), "{entry}");
    let wrong = host.story.motu(&["key", "create", "--scope", "sandbox:*"]);
    assert_eq!(wrong.code, 102, "{wrong}");
    assert!(wrong.stderr.contains("sandboxes:*"), "{wrong}");

    let slow = host.key(&["--calls-per-minute", "2"]);
    for _ in 0..2 {
        assert_eq!(host.call(&slow, Ask::get("/v1/version")).status, 200);
    }
    let over = host.call(&slow, Ask::get("/v1/version"));
    assert_eq!(over.status, 429, "{over}");
    let details = &over.json["error"]["details"];
    assert_eq!(details["limit"], "key_calls_per_minute");
    assert_eq!(host.call(&narrow, Ask::get("/v1/version")).status, 200);
}

#[test]
fn keys_are_made_on_the_host_alone() {
    let host = Host::new("");
    let key = host.key(&["--scope", "*"]);
    for ask in [
        Ask::get("/v1/keys"),
        Ask::post("/v1/keys", json!({"project": "other"})),
        Ask::new("DELETE", "/v1/keys/aaaaaaaaaaaa"),
    ] {
        let answer = host.call(&key, ask);
        assert_eq!(answer.status, 403, "{answer}");
    }
}

#[test]
fn nothing_of_the_host_is_given_to_a_key() {
    let host = Host::new("");
    let key = host.key(&[]);
    let refused = [
        ("/v1/backup", json!({"output_path": "/root/x"})),
        (
            "/v1/workspaces",
            json!({"environment": "busybox", "seed_path": "/etc"}),
        ),
        (
            "/v1/workspaces",
            json!({"environment": "busybox", "allow_host_compat": true, "runtime": "host"}),
        ),
        (
            "/v1/sandboxes",
            json!({"environment": "busybox", "allow_host_compat": true, "runtime": "host"}),
        ),
        ("/v1/terminals", json!({"session_id": "x", "host": true})),
        ("/v1/environments/tar:%2Fetc%2Fx.tar/pull", json!({})),
        ("/v1/sandboxes", json!({"environment": "tar:/etc/x.tar"})),
    ];
    for (path, body) in refused {
        let answer = host.call(&key, Ask::post(path, body.clone()));
        assert!(
            answer.text.contains("\"denied\""),
            "{path} {body}: {answer}"
        );
    }
    let service = json!({"service_name": "web", "command": ["true"], "published_ports": [{"guest_port": 80}]});
    let answer = host.call(&key, Ask::post("/v1/workspaces/x/services", service));
    assert_eq!(answer.status, 403, "{answer}");
    let secret = json!({"command": ["cat", "/etc/shadow"]});
    let answer = host.call(&key, Ask::new("PUT", "/v1/secrets/x").body(secret));
    assert_eq!(answer.status, 403, "{answer}");
    let version = host.call(&key, Ask::get("/v1/version"));
    assert_eq!(version.json["home"], "", "{version}");
}

#[test]
fn health_and_measurements() {
    let host = Host::new("");
    for path in ["/healthz", "/readyz"] {
        let answer = host.ask(Ask::get(path));
        assert_eq!(answer.status, 200, "{path}: {answer}");
    }
    let everything = host.key(&["--scope", "*"]);
    let denied = host.call(&everything, Ask::get("/metrics"));
    assert_eq!(denied.status, 403, "{denied}");
    let made = json!({"environment": "busybox"});
    let made = host.call(&everything, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let key = host.key(&["--scope", "metrics"]);
    assert_eq!(host.call(&key, Ask::get("/v1/version")).status, 403);
    let measured = host.call(&key, Ask::get("/metrics"));
    assert_eq!(measured.status, 200, "{measured}");
    for line in [
        "motu_calls_total{verb=\"create_sandbox\",outcome=\"ok\"} 1",
        "motu_calls_total{verb=\"version\",outcome=\"denied\"} 1",
        "motu_call_duration_seconds_count{verb=\"create_sandbox\"} 1",
        "motu_sandboxes{runtime=\"container\"} 1",
        "motu_daemon_memory_bytes ",
        "motu_connections ",
    ] {
        assert!(measured.text.contains(line), "{line} is not in {measured}");
    }
}

/// A daemon whose runtime does not work says that it is not ready, and why only in its log.
#[test]
fn a_host_that_cannot_make_machines_is_not_ready() {
    let host = Host::configured("runtime = \"nonesuch\"\n", "");
    let answer = host.ask(Ask::get("/readyz"));
    assert_eq!(answer.status, 503, "{answer}");
    assert!(!answer.text.contains("nonesuch"), "{answer}");
    assert_eq!(host.ask(Ask::get("/healthz")).status, 200);
}

#[test]
fn a_daemon_with_an_address_stays_and_leaves_when_told() {
    let story = Story::new();
    let told = story.motu(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(told.code, 102, "{told}");
    assert!(told.stderr.contains("insecure"), "{told}");
    let host = Host::configured("runtime = \"container\"\ndaemon_idle_seconds = 1\n", "");
    assert_eq!(host.ask(Ask::get("/healthz")).status, 200);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(host.ask(Ask::get("/healthz")).status, 200);
    host.stop();
    assert_eq!(host.ask(Ask::get("/healthz")).status, 0);
}
