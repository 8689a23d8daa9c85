//! Events: order, resumption, whose they are, what is not kept, and the webhook. The clients are curl
//! and the command line; the daemon is killed in the middle.

mod hook;
mod listener;

use listener::{Listener, events, kinds, until};
use motu_testkit::host::{Ask, Host};
use motu_testkit::story::Story;
use serde_json::{Value, json};

fn done(story: &Story, args: &[&str]) -> String {
    let told = story.motu(args);
    assert_eq!(told.code, 0, "{args:?}: {told}");
    told.stdout.trim().to_string()
}

/// A sandbox, by its id.
fn made(story: &Story, args: &[&str]) -> String {
    let args = [&["create", "--json"], args, &["busybox"]].concat();
    let made: Value = serde_json::from_str(&done(story, &args)).unwrap();
    made["sandbox_id"].as_str().unwrap().to_string()
}

fn kill_daemon(story: &Story) {
    let version: Value = serde_json::from_str(&done(story, &["version", "--json"])).unwrap();
    let pid = version["daemon"]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn every_change_is_told_in_its_order_and_by_whom() {
    let story = Story::new();
    story.configure("runtime = \"container\"\n");
    done(&story, &["env", "pull", "busybox"]);
    let id = made(&story, &["--keep"]);
    for verb in ["pause", "resume", "stop", "start", "rm"] {
        done(&story, &[verb, &id]);
    }
    let all = events(&story, &["--id", &id]);
    let expected = [
        "created",
        "paused",
        "resumed",
        "stopped",
        "started",
        "destroyed",
    ];
    assert_eq!(kinds(&all), expected.map(|kind| format!("sandbox.{kind}")));
    assert!(all.is_sorted_by_key(|event| event["sequence"].as_u64()));
    // Each names the call that asked for it.
    for event in &all {
        let call = event["audit_id"].as_str().unwrap();
        let entry = done(&story, &["audit", "show", call, "--json"]);
        assert!(entry.contains(&id), "{event} {entry}");
    }
    assert_eq!(all[0]["facts"]["runtime"], "container");
    assert_eq!(all[1]["facts"]["paused_by"], "caller");
    assert_eq!(all[0]["project"], "local");

    let ran = story.motu(&[
        "run",
        "--env",
        "SECRET=hunter2",
        "busybox",
        "--",
        "sh",
        "-c",
        "exit 7",
    ]);
    assert_eq!(ran.code, 7, "{ran}");
    let calls = events(&story, &["--kind", "call.finished"]);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0]["facts"]["exit_code"], 7);
    assert_eq!(calls[0]["facts"]["verb"], "run");
    // Neither what is run nor what it is given is told.
    let whole = done(&story, &["events", "--json"]);
    for never in ["hunter2", "SECRET", "exit 7"] {
        assert!(!whole.contains(never), "{whole}");
    }
    let first = events(&story, &[]);
    assert_eq!(first[0]["kind"], "host.started");
    assert!(kinds(&first).contains(&"environment.installed".to_string()));
}

#[test]
fn a_workspace_its_snapshots_and_keys_are_told_of() {
    let story = Story::with_machines().unwrap();
    let made = done(
        &story,
        &["workspace", "create", "--json", "--name", "desk", "busybox"],
    );
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["workspace_id"].as_str().unwrap();
    done(&story, &["workspace", "snapshot", "create", id, "one"]);
    done(&story, &["workspace", "reset", id, "--snapshot", "one"]);
    done(&story, &["workspace", "snapshot", "delete", id, "one"]);
    done(&story, &["workspace", "delete", id]);
    let all = events(&story, &["--kind", "workspace,snapshot", "--id", id]);
    let expected = [
        "workspace.created",
        "snapshot.created",
        "workspace.reset",
        "snapshot.deleted",
        "workspace.deleted",
    ];
    assert_eq!(kinds(&all), expected);
    assert_eq!(all[0]["facts"]["name"], "desk");
    assert_eq!(all[1]["facts"]["name"], "one");
    let key = done(&story, &["key", "create", "--project", "acme"]);
    let key = key.split('_').nth(1).unwrap();
    done(&story, &["key", "revoke", key]);
    let all = events(&story, &["--kind", "key"]);
    assert_eq!(kinds(&all), ["key.created", "key.revoked"]);
    assert_eq!(
        (&all[0]["id"], &all[0]["project"]),
        (&json!(key), &json!("acme"))
    );
}

#[test]
fn what_ends_or_expires_by_itself_says_why() {
    let story = Story::with_machines().unwrap();
    let brief = made(&story, &["--ttl-seconds", "1"]);
    let told = until(|| {
        let all = events(&story, &["--id", &brief]);
        (all.len() == 3).then_some(all)
    });
    assert_eq!(kinds(&told)[1..], ["sandbox.expired", "sandbox.destroyed"]);
    let reason = told[1]["facts"]["reason"].as_str().unwrap();
    assert!(reason.contains("time to live"), "{told:?}");
    assert!(told[1]["audit_id"].is_null(), "{told:?}");
}

#[test]
fn following_goes_on_over_kills_without_a_loss_or_a_repetition() {
    let story = Story::with_machines().unwrap();
    let listener = Listener::socket(&story);
    for _ in 0..4 {
        let id = made(&story, &[]);
        // Killed while a listener is told of it.
        kill_daemon(&story);
        done(&story, &["pause", &id]);
        kill_daemon(&story);
        done(&story, &["rm", &id]);
    }
    let all = events(&story, &[]);
    let last = all.last().unwrap()["sequence"].as_u64().unwrap();
    let heard = listener.until_sequence(last);
    assert_eq!(heard, all, "what a listener heard is what is written");
    let count = |kind: &str| kinds(&all).iter().filter(|found| *found == kind).count();
    for kind in ["created", "paused", "destroyed"] {
        assert_eq!(count(&format!("sandbox.{kind}")), 4, "{kind}");
    }
    // `with_machines` has started one; each of the eight that were killed was followed by another.
    assert_eq!(count("host.started"), 9);
    assert_eq!(count("host.stopped"), 0);
    // Any number is one to go on after.
    for at in [0, all.len() / 2, all.len() - 1] {
        let after = all[at]["sequence"].to_string();
        assert_eq!(events(&story, &["--after", &after]), all[at + 1..]);
    }
}

#[test]
fn a_key_hears_of_its_project_only() {
    let host = Host::new("");
    let (acme, beta) = (
        host.key(&["--project", "acme"]),
        host.key(&["--project", "beta"]),
    );
    let create = |key: &str| {
        let ask = Ask::post(
            "/v1/sandboxes",
            json!({"environment": "busybox", "sandbox_id": "box"}),
        );
        let made = host.call(key, ask);
        assert_eq!(made.status, 201, "{made}");
    };
    create(&acme);
    create(&beta);
    let ours = made(&host.story, &[]);
    for (key, project) in [(&acme, "acme"), (&beta, "beta")] {
        let read = host.call(key, Ask::get("/v1/events"));
        assert_eq!(read.status, 200, "{read}");
        let lines: Vec<Value> = read
            .text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(kinds(&lines), ["key.created", "sandbox.created"], "{read}");
        assert!(
            lines.iter().all(|line| line["project"] == project),
            "{read}"
        );
        let named = host.call(key, Ask::get("/v1/events?id=box&kind=sandbox"));
        assert_eq!(named.text.lines().count(), 1, "{named}");
        // What others have is not there, however it is asked for.
        let others = host.call(key, Ask::get(&format!("/v1/events?id={ours}")));
        assert_eq!((others.status, others.text.as_str()), (200, ""), "{others}");
    }
    assert_eq!(kinds(&events(&host.story, &["--kind", "sandbox"])).len(), 3);
    let wrong = host.call(&acme, Ask::get("/v1/events?kind=boxes"));
    assert_eq!(wrong.status, 400, "{wrong}");
    assert_eq!(wrong.json["error"]["kind"], "invalid", "{wrong}");
    let wrong = host.call(
        &acme,
        Ask::get("/v1/events")
            .header("Accept: text/event-stream")
            .header("Last-Event-ID: x"),
    );
    assert_eq!(wrong.status, 400, "{wrong}");
    // A key that may do something else hears nothing.
    let narrow = host.key(&["--scope", "commands:exec"]);
    assert_eq!(host.call(&narrow, Ask::get("/v1/events")).status, 403);
}

#[test]
fn a_reader_that_stands_still_holds_up_nobody_and_is_told_what_it_missed() {
    let story = Story::new();
    story.configure("runtime = \"container\"\n[events]\nkept = 100\n");
    done(&story, &["env", "pull", "busybox"]);
    let id = made(&story, &["--ttl-seconds", "3600"]);
    let first = events(&story, &[])[0]["sequence"].as_u64().unwrap();
    let stuck = listener::Stuck::open(&story, first);
    let changes = 2000;
    listener::pause_and_resume(&story, &id, changes);
    // Everybody else reads on.
    let kept = events(&story, &[]);
    assert!((100..400).contains(&kept.len()), "{}", kept.len());
    let gone = events(&story, &["--after", &first.to_string()]);
    assert_eq!(gone[0]["kind"], "events.gone", "{}", gone[0]);
    assert_eq!(gone[0]["facts"]["asked"], first);
    assert_eq!(gone[1..], kept);
    let last = kept.last().unwrap()["sequence"].as_u64().unwrap();
    let heard = stuck.read_until(last);
    let missed: Vec<usize> = (0..heard.len())
        .filter(|at| heard[*at]["kind"] == "events.gone")
        .collect();
    assert_eq!(
        missed.len(),
        1,
        "{} events, gone at {missed:?}",
        heard.len()
    );
    assert!(heard.len() < changes as usize, "{}", heard.len());
    assert!(heard.is_sorted_by_key(|event| event["sequence"].as_u64()));
    // After the gap nothing is missing: what is kept is the end of what was heard.
    assert!(heard.ends_with(&kept), "{} of {}", kept.len(), heard.len());
}

#[test]
fn followers_end_with_the_daemon_and_are_told_how_to_go_on() {
    let story = Story::with_machines().unwrap();
    let follow = story
        .command(&["events", "--follow", "--tail", "0", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The daemon waits for nobody who only listens.
    let id = made(&story, &[]);
    done(&story, &["rm", &id]);
    let began = std::time::Instant::now();
    done(&story, &["serve", "--stop"]);
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    let told = follow.wait_with_output().unwrap();
    let lines: Vec<Value> = String::from_utf8(told.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        kinds(&lines).last().map(String::as_str),
        Some("host.stopped")
    );
    let said = String::from_utf8(told.stderr).unwrap();
    let next = format!("--after {}", lines.last().unwrap()["sequence"]);
    assert!(said.contains(&next), "{said}");
    assert!(!told.status.success());
}
