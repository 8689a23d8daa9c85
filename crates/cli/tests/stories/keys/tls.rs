//! The address with TLS.

use motu_testkit::host::{Ask, Host};
use serde_json::json;

#[test]
fn a_certificate_for_loopback_is_made_and_believed_by_who_has_it() {
    let host = Host::new("certificate = \"self\"\n");
    let base = format!("https://localhost:{}", host.address.port());
    let trusted = host.story.home().join("tls/self.pem");
    let trusted = ["--cacert", trusted.to_str().unwrap()];
    let key = host.key(&["--project", "acme"]);
    let bearer = format!("Authorization: Bearer {key}");
    let version = || Ask::get("/v1/version").header(&bearer);
    for more in ["--http1.1", "--http2"] {
        let more = [&trusted[..], &[more]].concat();
        let answer = host.ask_at(&base, &more, version());
        assert_eq!(answer.status, 200, "{more:?}: {answer}");
    }
    // Nobody who does not have it believes it, and nothing is served in clear.
    assert_eq!(host.ask_at(&base, &[], version()).status, 0);
    assert_eq!(host.ask(version()).status, 0);
    let old = [&trusted[..], &["--tls-max", "1.1"]].concat();
    assert_eq!(host.ask_at(&base, &old, version()).status, 0);
    let run = json!({"sandbox": {"environment": "busybox"}, "exec": {"command": ["echo", "hi"]}});
    let ran = Ask::post("/v1/run", run).header(&bearer);
    let ran = host.ask_at(&base, &trusted, ran);
    assert_eq!(ran.json["stdout"], "hi\n", "{ran}");
    // It is the same for the next daemon.
    host.stop();
    host.start();
    assert_eq!(host.ask_at(&base, &trusted, version()).status, 200);
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_at_the_start() {
    let story = motu_testkit::story::Story::new();
    let place = story.path().join("c.pem");
    story.configure(&format!(
        "[listen]\naddress = \"127.0.0.1:0\"\ncertificate = \"{0}\"\nkey = \"{0}\"\n",
        place.display()
    ));
    let told = story.motu(&["serve"]);
    assert_eq!(told.code, 102, "{told}");
    assert!(told.stderr.contains("[listen] certificate"), "{told}");
}

#[test]
fn the_command_line_works_on_another_host() {
    let host = Host::new("certificate = \"self\"\n");
    let url = format!("https://localhost:{}", host.address.port());
    let key = host.key(&["--project", "acme"]);
    let elsewhere = |args: &[&str], key: Option<&str>| {
        let mut command = host.story.command(args);
        command
            .env("MOTU_HOME", host.story.path().join("nowhere"))
            .env("MOTU_URL", &url)
            .env("MOTU_CA_FILE", host.story.home().join("tls/self.pem"));
        if let Some(key) = key {
            command.env("MOTU_KEY", key);
        }
        host.story.told(command)
    };
    let ran = elsewhere(
        &["run", "busybox", "--", "sh", "-c", "echo hi; exit 3"],
        Some(&key),
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (3, "hi\n"), "{ran}");
    let made = elsewhere(&["create", "busybox", "--json"], Some(&key));
    assert!(made.stdout.contains("project:acme"), "{made}");
    // What goes up and comes down in pieces.
    let file = host.story.path().join("up");
    let content = vec![b'x'; 3 << 20];
    std::fs::write(&file, &content).unwrap();
    let id: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    let place = format!("{}:/tmp/up", id["sandbox_id"].as_str().unwrap());
    let copied = elsewhere(&["cp", file.to_str().unwrap(), &place], Some(&key));
    assert_eq!(copied.code, 0, "{copied}");
    let down = host.story.path().join("down");
    let copied = elsewhere(&["cp", &place, down.to_str().unwrap()], Some(&key));
    assert_eq!(copied.code, 0, "{copied}");
    assert_eq!(std::fs::read(down).unwrap(), content);
    let denied = elsewhere(&["key", "list"], Some(&key));
    assert_eq!(denied.code, 103, "{denied}");
    let wrong = elsewhere(&["ps"], Some("motu_x"));
    assert_eq!(wrong.code, 112, "{wrong}");
    let missing = elsewhere(&["ps"], None);
    assert_eq!(missing.code, 102, "{missing}");
    assert!(missing.stderr.contains("MOTU_KEY"), "{missing}");
    assert!(!host.story.path().join("nowhere").exists());
}
