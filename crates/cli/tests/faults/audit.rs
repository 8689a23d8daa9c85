//! The audit log of a real daemon: it contains every answered call, whatever happens.

use super::full::Small;
use futures_util::StreamExt;
use motu_api::Client;
use motu_core::audit::{AuditId, FollowAudit, ListAudit, Stage, VerifyAudit};
use motu_core::report::TagAs;
use motu_core::sandbox::Keepalive;
use motu_core::workspace::{CreateWorkspace, SecretSource};
use motu_core::{Error, ErrorKind, SandboxId, Service, Workspaces};
use motu_testkit::world::{World, refused, shell, small};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

const CLIENTS: usize = 8;
/// How many answers are awaited before each kill.
const ANSWERS: usize = 60;
const KILLS: usize = 3;

/// A change that passes the gate and is refused by the engine: cheap, and recorded.
async fn change(client: &Client) -> Error {
    let name = TagAs {
        owner: String::new(),
        name: "other:1".to_string(),
    };
    let tagged = client.tag_environment("not-there:1", name).await;
    tagged.expect_err("there is no such environment")
}

fn audit_id(error: &Error) -> AuditId {
    let id = error.details["audit_id"].as_str().unwrap_or_default();
    AuditId::parse(id).unwrap_or_else(|_| panic!("{error:?}"))
}

async fn assert_whole(client: &Client) {
    let found = client.verify_audit(VerifyAudit::default()).await.unwrap();
    assert!(found.ok, "{:#?}", found.problems);
}

async fn entries(client: &Client, id: &AuditId) -> Vec<Value> {
    client.get_audit(id).await.unwrap().entries
}

#[tokio::test]
async fn a_killed_daemon_has_recorded_every_call_that_was_answered() {
    let Some(mut world) = World::new() else {
        return;
    };
    let sandbox = world.create().await;
    let mut seen: BTreeSet<AuditId> = BTreeSet::new();
    for _ in 0..KILLS {
        let answered = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let (client, sandbox) = (world.client(), sandbox.clone());
            let answered = answered.clone();
            clients.spawn(async move {
                let mut ids = Vec::new();
                loop {
                    let id = match number % 2 {
                        0 => match client.exec(&sandbox, shell("true")).await {
                            Ok(result) => result.audit_id.expect("a command has its name"),
                            Err(_) => return ids,
                        },
                        _ => match change(&client).await {
                            error if error.kind == ErrorKind::NotFound => audit_id(&error),
                            _ => return ids,
                        },
                    };
                    ids.push(id);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while answered.load(Ordering::Relaxed) < ANSWERS {
            tokio::task::yield_now().await;
        }
        world.kill();
        while let Some(ids) = clients.join_next().await {
            seen.extend(ids.unwrap());
        }
        world.start();
        assert_whole(&world.client()).await;
    }
    for id in &seen {
        let recorded = entries(&world.client(), id).await;
        assert_eq!(recorded.len(), 1, "{recorded:?}");
    }
    println!("{} calls were answered and are recorded", seen.len());
    world.client().destroy_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
async fn an_entry_says_who_where_and_how_and_no_secret() {
    let Some(world) = World::new() else {
        return;
    };
    let client = world.client();
    let secret = "hunter2-correct-horse";
    let asked = CreateWorkspace {
        environment: small().environment,
        secrets: vec![SecretSource {
            name: "TOKEN".to_string(),
            value: Some(secret.into()),
            ..SecretSource::default()
        }],
        ..CreateWorkspace::default()
    };
    let workspace = client.create_workspace(asked).await.unwrap();
    let id = &workspace.workspace_id;
    let mut request = shell(&format!("echo {secret}; exit 3"));
    request
        .program
        .env
        .insert("PASSWORD".to_string(), secret.to_string());
    let mut session = client.exec_stream(id, request.clone()).await.unwrap();
    while let Some(event) = session.events.next().await {
        event.unwrap();
    }
    let recorded = entries(&client, &session.audit_id.unwrap()).await;
    let stages: Vec<&Value> = recorded.iter().map(|entry| &entry["stage"]).collect();
    assert_eq!(
        stages,
        [
            &serde_json::json!(Stage::Begin),
            &serde_json::json!(Stage::End)
        ]
    );
    let end = &recorded[1];
    assert_eq!(end["facts"]["exit_code"], 3);
    assert_eq!(end["facts"]["runtime"], "container");
    assert_eq!(end["facts"]["digest"], workspace.digest);
    assert_eq!(end["sandbox_id"], id.as_str());
    assert_eq!(end["decision"], "allowed");
    assert_eq!(end["caller"]["who"], "uid:0");
    assert!(end["facts"]["bytes_out"].as_u64().unwrap() > 0, "{end}");
    let made = client.list_audit(ListAudit {
        verb: Some("create_workspace".to_string()),
        ..ListAudit::default()
    });
    assert_eq!(made.await.unwrap().entries[0]["sandbox_id"], id.as_str());
    client.delete_workspace(id).await.unwrap();
    let mut log = Vec::new();
    let mut export = client.export_audit().await.unwrap();
    while let Some(piece) = export.next().await {
        log.extend_from_slice(&piece.unwrap());
    }
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("exec_stream"), "{log}");
    assert!(!log.contains(secret) && !log.contains("PASSWORD") && !log.contains("TOKEN"));
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_lets_space_be_freed() {
    let Some(disk) = Small::ext4(48, "runtime = \"container\"\nmin_free_disk_mib = 1") else {
        return;
    };
    let client = disk.client();
    let mut filling = disk.filling();
    filling.grow(64 << 20);
    // Preallocated space is used up first; no call is refused until then.
    let refused = loop {
        let error = change(&client).await;
        if error.kind == ErrorKind::Limit {
            break error;
        }
        assert_eq!(error.kind, ErrorKind::NotFound, "{error:?}");
    };
    assert!(refused.message.contains("audit log"), "{refused:?}");
    // The refusal itself is recorded, reads are answered, and removals are let through.
    assert_eq!(
        entries(&client, &audit_id(&refused)).await[0]["outcome"],
        "limit"
    );
    let nobody = SandboxId::parse("nobody").unwrap();
    let missing = client.destroy_sandbox(&nobody).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound, "{missing:?}");
    client.reap_expired().await.unwrap();
    filling.end();
    let error = change(&client).await;
    assert_eq!(error.kind, ErrorKind::NotFound, "{error:?}");
    assert_whole(&client).await;
}

/// Runs an independent verifier that implements only the documented format.
fn python(what: &str, key: &str, input: &[u8]) -> (bool, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/audit/verify.py");
    let mut child = motu_needs::command("python3")
        .args([script, what, key])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), said)
}

#[tokio::test]
async fn another_language_verifies_the_log_and_its_receipts() {
    let Some(world) = World::new() else {
        return;
    };
    let client = world.client();
    let sandbox = world.create().await;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let (client, sandbox) = (world.client(), sandbox.clone());
        calls.spawn(async move { client.exec(&sandbox, shell("echo é")).await.unwrap() });
    }
    let mut ids = Vec::new();
    while let Some(result) = calls.join_next().await {
        ids.push(result.unwrap().audit_id.unwrap());
    }
    let key = client.audit_key().await.unwrap().public_key;
    for id in &ids[..3] {
        let receipt = client.audit_receipt(id).await.unwrap();
        let text = serde_json::to_vec(&receipt).unwrap();
        assert_eq!(
            python("receipt", &key, &text),
            (true, "signed\n".to_string())
        );
        let mut other = receipt.clone();
        other.entry["facts"]["exit_code"] = 1.into();
        let (good, said) = python("receipt", &key, &serde_json::to_vec(&other).unwrap());
        assert!(!good, "{said}");
    }
    let log = world.motu(&["audit", "export"]).stdout;
    let (good, said) = python("log", &key, log.as_bytes());
    assert!(good, "{said}");
    let changed = log.replacen("uid:0", "uid:1", 1);
    assert!(!python("log", &key, changed.as_bytes()).0);
    let cut: String = log
        .lines()
        .skip(3)
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(!python("log", &key, cut.as_bytes()).0);
    client.destroy_sandbox(&sandbox).await.unwrap();
}

#[tokio::test]
async fn a_damaged_log_is_told_and_a_lost_key_refuses_changes() {
    let Some(mut world) = World::new() else {
        return;
    };
    change(&world.client()).await;
    assert_eq!(world.motu(&["audit", "verify"]).code, 0);
    let key = world.client().audit_key().await.unwrap().public_key;
    world.stop();
    // Somebody with write access to the disk changes the caller of a record.
    let segment = world.home().join("audit/00000000000000000001.jsonl");
    let bytes = std::fs::read(&segment).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    std::fs::write(&segment, text.replacen("uid:0", "uid:7", 1)).unwrap();
    let copy = world.home().join("audit");
    let offline = [
        "audit",
        "verify",
        "--dir",
        copy.to_str().unwrap(),
        "--key",
        &key,
    ];
    let told = world.motu(&offline);
    assert_eq!(told.code, 105, "{told:?}");
    assert!(told.stdout.contains("does not have its hash"), "{told:?}");
    world.start();
    assert_eq!(world.motu(&["audit", "verify"]).code, 105);
    std::fs::write(&segment, &text).unwrap();
    std::fs::remove_file(world.home().join("audit.key")).unwrap();
    world.restart();
    let error = change(&world.client()).await;
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    assert!(error.message.contains("audit.key"), "{error:?}");
    world.client().version().await.unwrap();
    assert!(!world.home().join("audit.key").exists());
}

#[tokio::test]
async fn a_follower_of_the_log_sees_calls_as_they_are_made() {
    let Some(world) = World::new() else {
        return;
    };
    let client = world.client();
    let mut lines = client
        .follow_audit(FollowAudit { tail: Some(0) })
        .await
        .unwrap();
    let nobody = SandboxId::parse("nobody").unwrap();
    let refused = client.keepalive(&nobody, Keepalive::default()).await;
    let id = audit_id(&refused.unwrap_err());
    let mut text = String::new();
    while !text.contains(id.as_str()) {
        let piece = lines.next().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert!(text.contains("\"verb\":\"keepalive\""), "{text}");
}

#[tokio::test]
async fn a_backup_takes_the_log_along() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = audit_id(&change(&world.client()).await);
    let key = world.client().audit_key().await.unwrap();
    let backup = world.path().join("backup");
    let told = world.motu(&["backup", backup.to_str().unwrap()]);
    assert_eq!(told.code, 0, "{told:?}");
    world.stop();
    let moved = world.path().join("restored");
    std::fs::create_dir(&moved).unwrap();
    world.live_at(&moved);
    let told = world.motu(&["restore", backup.to_str().unwrap()]);
    assert_eq!(told.code, 0, "{told:?}");
    world.start();
    let client = world.client();
    assert_eq!(client.audit_key().await.unwrap(), key);
    assert_eq!(entries(&client, &id).await.len(), 1);
    assert_whole(&client).await;
    refused(
        ErrorKind::NotFound,
        client.get_audit(&AuditId::generate()).await,
    );
}

/// The whole log is gone and its key is there: nothing is begun in its place.
#[tokio::test]
async fn a_log_that_is_gone_is_said_and_comes_back() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = audit_id(&change(&world.client()).await);
    world.stop();
    let (log, aside) = (world.home().join("audit"), world.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    for _ in 0..2 {
        world.start();
        let error = change(&world.client()).await;
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
        assert!(error.message.contains("log is gone"), "{error:?}");
        assert_ne!(world.motu(&["audit", "verify"]).code, 0);
        assert!(!log.exists());
        world.stop();
    }
    std::fs::rename(&aside, &log).unwrap();
    world.start();
    assert_eq!(entries(&world.client(), &id).await.len(), 1);
    assert_whole(&world.client()).await;
}

/// The power goes as soon as the first change of a new home is answered: what its file system has
/// not written is gone.
#[tokio::test]
async fn a_log_that_was_just_begun_is_whole_after_a_power_cut() {
    let Some(small) = Small::ext4(64, "runtime = \"container\"") else {
        return;
    };
    let client = small.client();
    let id = audit_id(&change(&client).await);
    let image = small.path().join("state.ext4");
    let copy = small.path().join("copy.ext4");
    super::durable::cut(&image, &copy);
    let key = client.audit_key().await.unwrap().public_key;
    let script = r#"mkdir "$1.dir" && mount -o loop "$1" "$1.dir" && grep -rqs "$4" "$1.dir/audit" &&
        "$2" audit verify --dir "$1.dir/audit" --key "$3""#;
    let mut command = motu_needs::command("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(&copy)
        .arg(motu_testkit::program())
        .args([&key, id.as_str()]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
