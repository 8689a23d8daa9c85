//! Lists of a log of many segments.

use super::{SETTINGS, call, checked, segments};
use crate::{Log, Settings, check_receipt};
use motu_core::SandboxId;
use motu_core::audit::{AuditCall, ListAudit};
use std::path::PathBuf;
use std::sync::Arc;

/// Lists by every filter are those that a look at each line gives, whatever became of the indexes.
#[tokio::test]
async fn lists_find_what_they_ask_for_in_any_segment() {
    let home = tempfile::tempdir().unwrap();
    let settings = Settings {
        segment_bytes: 8 << 10,
        ..SETTINGS
    };
    let mut calls = Vec::new();
    let log = Arc::new(Log::open(home.path(), settings));
    for number in 0..200 {
        let mut call = call(["exec", "get_sandbox", "destroy_sandbox"][number % 3]);
        call.effect = ["runs", "reads", "destroys"][number % 3].to_string();
        call.outcome = ["ok", "denied"][usize::from(number % 7 == 0)].to_string();
        call.sandbox_id = Some(SandboxId::parse(&format!("sb-{}", number % 5)).unwrap());
        call.caller.who = ["uid:0", "key:k1@acme", "key:k2@beta"][number % 11 % 3].to_string();
        log.record(&call, number % 10 == 0).await.unwrap();
        calls.push(call);
    }
    log.flush().await.unwrap();
    let asks = [
        ListAudit::default(),
        ListAudit {
            changes: true,
            ..ListAudit::default()
        },
        ListAudit {
            failed: true,
            ..ListAudit::default()
        },
        ListAudit {
            verb: Some("exec".to_string()),
            ..ListAudit::default()
        },
        ListAudit {
            sandbox_id: SandboxId::parse("sb-3").ok(),
            ..ListAudit::default()
        },
        ListAudit {
            owner: "project:acme".to_string(),
            ..ListAudit::default()
        },
        ListAudit {
            owner: "project:beta".to_string(),
            changes: true,
            failed: true,
            ..ListAudit::default()
        },
    ];
    let wanted = |ask: &ListAudit, call: &AuditCall| {
        let owner = ask.owner.strip_prefix("project:");
        let theirs = owner.is_none_or(|own| call.caller.who.ends_with(&format!("@{own}")));
        theirs
            && (!ask.changes || call.effect != "reads")
            && (!ask.failed || call.outcome != "ok")
            && ask.verb.as_ref().is_none_or(|verb| *verb == call.verb)
            && (ask.sandbox_id.is_none() || ask.sandbox_id == call.sandbox_id)
    };
    let same = async |log: &Arc<Log>| {
        for ask in &asks {
            let expected: Vec<&str> = calls
                .iter()
                .filter(|call| wanted(ask, call))
                .map(|call| call.id.as_str())
                .collect();
            // In pages, the newest first.
            let (mut found, mut cursor) = (Vec::new(), None);
            loop {
                let ask = ListAudit {
                    limit: Some(7),
                    cursor,
                    ..ask.clone()
                };
                let page = log.list(ask).await.unwrap();
                let ids = page
                    .entries
                    .iter()
                    .map(|entry| entry["id"].as_str().unwrap());
                found.splice(0..0, ids.map(str::to_string));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{ask:?}");
        }
        for call in calls.iter().step_by(37) {
            let entries = log.get(call.id.clone()).await.unwrap().entries;
            assert_eq!(entries[0]["id"], call.id.as_str());
            let receipt = log.receipt(call.id.clone()).await.unwrap();
            check_receipt(&receipt, None).unwrap();
        }
    };
    same(&log).await;
    let indexes = || {
        let all = std::fs::read_dir(home.path().join("audit")).unwrap();
        let all = all.map(|entry| entry.unwrap().path());
        let mut all: Vec<PathBuf> = all
            .filter(|path| path.extension().is_some_and(|ending| ending == "index"))
            .collect();
        all.sort();
        all
    };
    let sealed = segments(home.path()).len() - 1;
    assert!(sealed > 3);
    assert_eq!(indexes().len(), sealed);
    drop(log);
    // Gone, damaged, or another segment's: they are made again.
    let all = indexes();
    std::fs::remove_file(&all[0]).unwrap();
    std::fs::copy(&all[2], &all[1]).unwrap();
    let mut bytes = std::fs::read(&all[3]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&all[3], bytes).unwrap();
    let log = Arc::new(Log::open(home.path(), settings));
    same(&log).await;
    assert_eq!(indexes(), all);
    drop(log);
    assert!(checked(home.path()).ok);
    // What is too old goes with its index.
    let few = Settings {
        max_bytes: 16 << 10,
        ..settings
    };
    drop(Log::open(home.path(), few));
    let left: Vec<PathBuf> = segments(home.path());
    assert!(left.len() < sealed);
    let owned = |path: &PathBuf| left.contains(&path.with_extension("jsonl"));
    assert!(indexes().iter().all(owned), "{:?}", indexes());
}
