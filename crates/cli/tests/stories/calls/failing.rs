//! How calls fail: each with its class, what to do about it, and where it is recorded.

use super::{POLICY, World, script, with};
use crate::mcp::Mcp;
use motu_testkit::host::{Ask, Host};
use motu_testkit::story::Story;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Checks that an error says its class, what to do, and its entry in the audit log.
fn classed(error: &Value, class: &str) {
    assert_eq!(error["details"]["class"], class, "{error}");
    assert!(error["details"]["retry"].is_string(), "{error}");
    let audited = error["details"]["audit_id"].as_str().unwrap_or_default();
    assert!(audited.starts_with("run_"), "{error}");
}

/// Waits until this says something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The only sandbox that runs.
fn running(story: &Story) -> String {
    until("a call has a machine", || {
        let listed: Value = serde_json::from_str(&story.motu(&["ps", "--json"]).stdout).ok()?;
        let one = listed["sandboxes"].as_array()?.first()?;
        (one["state"] == "running").then(|| one["sandbox_id"].as_str().map(str::to_string))?
    })
}

fn has_begun(world: &World) {
    until("the command has begun", || {
        let listed = world
            .story
            .motu(&["audit", "list", "--verb", "call", "--json"]);
        listed.stdout.contains("\"begin\"").then_some(())
    });
}

#[test]
fn a_request_that_cannot_be_read_fails_as_a_call_on_every_face() {
    let Some(world) = World::new() else { return };
    for more in [
        json!({"env": {"A": "b"}}),
        json!({"secrets": {"K": "value"}}),
        json!({"command": "true"}),
        json!({"state": {"retention": "forever"}}),
    ] {
        let error = world.refused(&with(script("true"), more));
        assert_eq!(error["kind"], "invalid", "{error}");
        classed(&error, "validation_failure");
    }
    let entry = world.refused(&json!({"state": 3}))["details"]["audit_id"].clone();
    let shown = world
        .story
        .motu(&["audit", "show", entry.as_str().unwrap(), "--json"]);
    assert!(shown.stdout.contains("\"invalid\""), "{shown}");
    let told = world
        .story
        .motu(&["call", "--request", "no.json", "--json"]);
    assert!(told.stdout.contains("validation_failure"), "{told}");

    let mut mcp = Mcp::start(&world.story, &["--profile", "agent-tool"], "2025-11-25");
    for wrong in [
        json!({"env": {}}),
        json!({"command": ["true"], "state": {"retention": 3}}),
    ] {
        let told = mcp.result("call", &wrong);
        assert_eq!(told["isError"], true, "{told}");
        let error = &told["structuredContent"];
        let error = error.get("error").unwrap_or(error);
        classed(error, "validation_failure");
    }

    let host = Host::new("");
    let key = host.key(&["--project", "acme"]);
    for body in ["", "{", "{\"env\": 1}", "[]", "{\"command\": [\"true\"]}"] {
        let ask = Ask::new("POST", "/v1/calls").bytes(body.into());
        let answer = host.call(&key, ask);
        assert_eq!(answer.status, 400, "{body}: {answer}");
        classed(&answer.json["error"], "validation_failure");
        assert!(answer.json["instance"].is_string(), "{body}: {answer}");
    }
    let long = vec![b' '; 70 << 20];
    let answer = host.call(&key, Ask::new("POST", "/v1/calls").bytes(long));
    assert_eq!(answer.json["error"]["kind"], "limit", "{answer}");
    classed(&answer.json["error"], "validation_failure");
}

#[test]
fn a_quota_is_the_operators_and_the_same_request_may_pass_later() {
    let host = Host::configured(
        "runtime = \"container\"\n[quota.projects.acme]\nsandboxes = 1\n",
        "",
    );
    assert!(host.story.has_busybox());
    std::fs::create_dir_all(host.story.home().join("policies")).unwrap();
    std::fs::write(host.story.home().join("policies/calls.toml"), POLICY).unwrap();
    let key = host.key(&["--project", "acme"]);
    let made = json!({"environment": "busybox", "ttl_seconds": 600});
    let made = host.call(&key, Ask::post("/v1/sandboxes", made));
    assert_eq!(made.status, 201, "{made}");
    let request = with(script("true"), json!({"policy": "calls"}));
    let refused = host.call(&key, Ask::post("/v1/calls", request.clone()));
    let error = &refused.json["error"];
    assert_eq!(error["kind"], "limit", "{refused}");
    classed(error, "policy_denial");
    let retry = error["details"]["retry"].as_str().unwrap();
    assert!(retry.starts_with("later"), "{refused}");
    let id = made.json["sandbox_id"].as_str().unwrap();
    host.call(&key, Ask::new("DELETE", &format!("/v1/sandboxes/{id}")));
    let passed = host.call(&key, Ask::post("/v1/calls", request));
    assert_eq!(passed.json["exit_code"], 0, "{passed}");
}

#[test]
fn a_machine_that_somebody_removes_is_no_fault_of_the_request() {
    let Some(world) = World::new() else { return };
    for retention in ["destroy", "stop"] {
        let request = with(
            script("sleep 50"),
            json!({"state": {"retention": retention}}),
        );
        let error = std::thread::scope(|scope| {
            let call = scope.spawn(|| world.refused(&request));
            let id = running(&world.story);
            until("it is removed", || {
                let told = match retention {
                    "destroy" => world.story.motu(&["rm", &id]),
                    _ => world.story.motu(&["workspace", "delete", &id]),
                };
                (told.code == 0).then_some(())
            });
            call.join().unwrap()
        });
        assert_eq!(error["kind"], "transport", "{error}");
        classed(&error, "transport_failure");
    }
}

#[test]
fn a_daemon_that_dies_leaves_the_name_of_the_call() {
    let Some(world) = World::new() else { return };
    let error = std::thread::scope(|scope| {
        let call = scope.spawn(|| world.refused(&script("sleep 50")));
        has_begun(&world);
        running(&world.story);
        let version = world.story.motu(&["version", "--json"]);
        let version: Value = serde_json::from_str(&version.stdout).unwrap();
        let pid = version["daemon"]["pid"].as_i64().unwrap();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        call.join().unwrap()
    });
    assert_eq!(error["kind"], "transport", "{error}");
    classed(&error, "transport_failure");
    let entry = error["details"]["audit_id"].as_str().unwrap();
    let shown = world.story.motu(&["audit", "show", entry, "--json"]);
    assert!(shown.stdout.contains("\"begin\""), "{shown}");
}

/// A mount in a machine's directory, which can therefore not be removed.
struct Stuck(PathBuf);

impl Stuck {
    fn below(directory: &Path) -> Stuck {
        let place = directory.join("stuck");
        std::fs::create_dir(&place).unwrap();
        let mount = motu_needs::command("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(&place)
            .status();
        assert!(mount.unwrap().success());
        Stuck(place)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = motu_needs::command("umount").arg(&self.0).status();
    }
}

#[test]
fn what_cannot_be_removed_is_a_cleanup_failure_of_a_call_that_ran() {
    if !rustix::process::geteuid().is_root() {
        motu_needs::skip("only root mounts something into a machine's directory");
        return;
    }
    let Some(world) = World::new() else { return };
    let request = script("sleep 3; echo done");
    let (answer, stuck) = std::thread::scope(|scope| {
        let call = scope.spawn(|| world.call(&request));
        let id = running(&world.story);
        let stuck = Stuck::below(&world.story.home().join("machines/container").join(id));
        (call.join().unwrap(), stuck)
    });
    let told: Value = serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{answer}"));
    assert_eq!(told["failure"]["class"], "cleanup_failure", "{told}");
    let retry = told["failure"]["retry"].as_str().unwrap();
    assert!(retry.starts_with("no: the command ran"), "{told}");
    // What the command did is told all the same.
    assert_eq!(told["stdout"], "done\n", "{told}");
    assert_eq!(told["exit_code"], 0, "{told}");
    assert!(told["audit_id"].as_str().unwrap().starts_with("run_"));
    assert_ne!(answer.code, 0, "{answer}");
    drop(stuck);
}

#[test]
fn python_is_a_program_where_the_language_is_python() {
    let Some(story) = Story::with_debian("container") else {
        return;
    };
    let request = json!({
        "language": "python",
        "files": [{"path": "/work/main.py", "content": "print('hello')"}],
        "command": ["python", "/work/main.py"],
        "timeout_seconds": 20,
        "network": {"mode": "none"},
        "state": {"retention": "destroy"},
    });
    std::fs::write(story.path().join("call.json"), request.to_string()).unwrap();
    let told = story.motu(&["call", "--request", "call.json", "--json"]);
    let answer: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
    assert_eq!(answer["stdout"], "hello\n", "{answer}");
    assert_eq!(answer["exit_code"], 0, "{answer}");
}
