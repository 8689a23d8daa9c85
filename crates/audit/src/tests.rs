//! A log on a real disk: written, damaged in every way, reopened.

mod lists;

use crate::segment::{HEAD, Segment};
use crate::{Expected, Log, Settings, View, check_receipt, verify};
use motu_core::audit::*;
use motu_core::verb::Effect;
use motu_core::{ErrorKind, SandboxId};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SETTINGS: Settings = Settings {
    segment_bytes: 4 << 20,
    max_bytes: 256 << 20,
    keep_seconds: 86_400,
};

fn call(verb: &str) -> AuditCall {
    AuditCall {
        id: AuditId::generate(),
        stage: Stage::Whole,
        time: crate::writer::now(),
        caller: AuditCaller {
            who: "uid:0".to_string(),
            face: "socket".to_string(),
            request: 1,
        },
        verb: verb.to_string(),
        permission: format!("commands:{verb}"),
        effect: "runs".to_string(),
        decision: "allowed".to_string(),
        sandbox_id: Some(SandboxId::parse("sb-a").unwrap()),
        request: Some("00".repeat(32)),
        policy: None,
        outcome: "ok".to_string(),
        facts: Facts {
            runtime: Some("container".to_string()),
            exit_code: Some(0),
            ..Facts::default()
        },
        duration_ns: "1234".to_string(),
    }
}

/// Writes a log with some calls and closes it.
async fn written(home: &Path, settings: Settings, calls: usize) -> Vec<AuditId> {
    let log = Arc::new(Log::open(home, settings));
    let mut ids = Vec::new();
    for _ in 0..calls {
        let call = call("exec");
        log.record(&call, true).await.unwrap();
        ids.push(call.id);
    }
    ids
}

fn segments(home: &Path) -> Vec<PathBuf> {
    let all = Segment::list(&home.join("audit")).unwrap();
    all.into_iter().map(|segment| segment.path).collect()
}

fn checked(home: &Path) -> AuditVerified {
    let key = crate::key::Key::read(&home.join("audit.key")).unwrap();
    let expected = Expected {
        key: key.map(|key| key.public()),
        hash: None,
    };
    verify(&View::of_dir(&home.join("audit")).unwrap(), &expected)
}

fn told(home: &Path, part: &str) {
    let found = checked(home);
    let messages: Vec<&str> = found.problems.iter().map(|p| p.message.as_str()).collect();
    assert!(
        messages.iter().any(|text| text.contains(part)),
        "{part}: {messages:?}"
    );
    assert!(!found.ok);
}

/// The text of the only segment, without preallocated space, for editing.
fn text(home: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(&segments(home)[0]).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    bytes.truncate(end + 1);
    bytes
}

fn edited(home: &Path, edit: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let mut lines: Vec<Vec<u8>> = text(home)
        .split_inclusive(|&b| b == b'\n')
        .map(Vec::from)
        .collect();
    edit(&mut lines);
    std::fs::write(&segments(home)[0], lines.concat()).unwrap();
}

#[tokio::test]
async fn what_was_recorded_is_there_and_verifies() {
    let home = tempfile::tempdir().unwrap();
    let ids = written(home.path(), SETTINGS, 20).await;
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    assert_eq!((found.calls, found.first_seq), (20, 1));
    // The same after reopening.
    let log = Arc::new(Log::open(home.path(), SETTINGS));
    let list = log
        .list(ListAudit {
            limit: Some(5),
            ..ListAudit::default()
        })
        .await
        .unwrap();
    let last: Vec<&str> = list
        .entries
        .iter()
        .map(|entry| entry["id"].as_str().unwrap())
        .collect();
    let newest: Vec<&str> = ids[15..].iter().map(AuditId::as_str).collect();
    assert_eq!(last, newest);
    let older = ListAudit {
        before_seq: list.before_seq,
        limit: Some(1000),
        ..ListAudit::default()
    };
    assert_eq!(log.list(older).await.unwrap().count, 15);
    assert_eq!(log.get(ids[3].clone()).await.unwrap().count, 1);
    let error = log.get(AuditId::generate()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let verified = log.verify(VerifyAudit::default()).await.unwrap();
    assert!(verified.ok, "{:?}", verified.problems);
    let wrong = VerifyAudit {
        expect: Some("ab".repeat(32)),
        ..VerifyAudit::default()
    };
    assert!(!log.verify(wrong).await.unwrap().ok);
    let right = VerifyAudit {
        expect: Some(verified.head),
        ..VerifyAudit::default()
    };
    assert!(log.verify(right).await.unwrap().ok);
}

#[tokio::test]
async fn a_changed_removed_moved_or_added_entry_is_found() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), SETTINGS, 6).await;
    let whole = text(home.path());
    let lines = |change: fn(&mut Vec<Vec<u8>>)| {
        std::fs::write(&segments(home.path())[0], &whole).unwrap();
        assert!(checked(home.path()).ok);
        edited(home.path(), change);
    };
    lines(|lines| {
        let line = String::from_utf8(lines[6].clone()).unwrap();
        lines[6] = line.replace("uid:0", "uid:1").into_bytes();
    });
    told(home.path(), "does not have its hash");
    lines(|lines| drop(lines.remove(6)));
    told(home.path(), "missing or moved");
    lines(|lines| lines.swap(4, 6));
    told(home.path(), "missing or moved");
    lines(|lines| lines.insert(6, lines[4].clone()));
    told(home.path(), "chain is broken");
    lines(|lines| drop(lines.drain(..2)));
    told(home.path(), "beginning is missing");
    // An added field with a corrected hash: the chain detects it.
    lines(|lines| {
        let mut value: serde_json::Value = serde_json::from_slice(&lines[4]).unwrap();
        value["extra"] = 1.into();
        let mut fields = value.as_object().unwrap().clone();
        let seq = fields["seq"].as_u64().unwrap();
        let prev = crate::hex::unhex(fields["prev"].as_str().unwrap()).unwrap();
        fields.remove("hash");
        lines[4] = crate::record::chained(fields, seq, &prev).text;
    });
    told(home.path(), "chain is broken");
}

#[tokio::test]
async fn a_truncated_end_is_found() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), SETTINGS, 6).await;
    // Truncated exactly after a checkpoint, so that the rest is valid.
    edited(home.path(), |lines| lines.truncate(lines.len() - 4));
    told(home.path(), "it had been written and signed until");
    // It stays detectable when the log continues.
    written(home.path(), SETTINGS, 1).await;
    told(home.path(), "had been at");
    // Also if the head file is removed.
    let home = tempfile::tempdir().unwrap();
    written(home.path(), SETTINGS, 6).await;
    std::fs::remove_file(home.path().join("audit").join(HEAD)).unwrap();
    told(home.path(), "head of the log is missing");
    written(home.path(), SETTINGS, 1).await;
    told(home.path(), "head of the log was gone");
}

#[tokio::test]
async fn a_torn_tail_is_cut_and_noted() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), SETTINGS, 3).await;
    let mut bytes = text(home.path());
    let half = bytes[..300].to_vec();
    bytes.extend_from_slice(&half);
    std::fs::write(&segments(home.path())[0], &bytes).unwrap();
    told(home.path(), "after the last record");
    written(home.path(), SETTINGS, 1).await;
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    assert_eq!(found.calls, 4);
    let text = String::from_utf8(text(home.path())).unwrap();
    assert!(text.contains("torn_tail"), "{text}");
    let aside = std::fs::read_dir(home.path().join("audit")).unwrap();
    let torn = |name: std::ffi::OsString| name.to_string_lossy().starts_with("torn-");
    assert!(aside.flatten().any(|entry| torn(entry.file_name())));
}

/// As a kill leaves it between writing a segment and giving it its name, which the head knows of.
#[tokio::test]
async fn a_segment_without_its_name_is_given_it() {
    let home = tempfile::tempdir().unwrap();
    let small = Settings {
        segment_bytes: 4 << 10,
        ..SETTINGS
    };
    written(home.path(), SETTINGS, 2).await;
    let next = home.path().join("audit/next");
    // The first one of a log.
    std::fs::rename(&segments(home.path())[0], &next).unwrap();
    written(home.path(), SETTINGS, 1).await;
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    assert_eq!(found.calls, 3);
    // A later one.
    let home = tempfile::tempdir().unwrap();
    written(home.path(), small, 12).await;
    let all = segments(home.path());
    assert!(all.len() > 1);
    std::fs::rename(all.last().unwrap(), home.path().join("audit/next")).unwrap();
    written(home.path(), small, 1).await;
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    assert_eq!(found.calls, 13);
}

#[tokio::test]
async fn a_log_that_is_gone_is_not_begun_anew() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), SETTINGS, 2).await;
    let (audit, aside) = (home.path().join("audit"), home.path().join("aside"));
    std::fs::rename(&audit, &aside).unwrap();
    for _ in 0..2 {
        let log = Arc::new(Log::open(home.path(), SETTINGS));
        let error = log.admit(Effect::Changes).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("log is gone"), "{error}");
        log.admit(Effect::Reads).await.unwrap();
        assert!(!audit.exists(), "nothing stands where it is to come back");
    }
    std::fs::create_dir(&audit).unwrap();
    let log = Log::open(home.path(), SETTINGS);
    log.admit(Effect::Changes).await.unwrap_err();
    drop(log);
    std::fs::remove_dir_all(&audit).unwrap();
    std::fs::rename(&aside, &audit).unwrap();
    written(home.path(), SETTINGS, 1).await;
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    // Both are gone: a new log begins, which nothing here could tell from the first.
    std::fs::remove_dir_all(&audit).unwrap();
    std::fs::remove_file(home.path().join("audit.key")).unwrap();
    written(home.path(), SETTINGS, 1).await;
    assert!(checked(home.path()).ok);
}

#[tokio::test]
async fn segments_are_sealed_and_the_oldest_removed_with_a_note() {
    let home = tempfile::tempdir().unwrap();
    let small = Settings {
        segment_bytes: 8 << 10,
        max_bytes: 600 << 10,
        ..SETTINGS
    };
    let ids = written(home.path(), small, 60).await;
    let count = segments(home.path()).len();
    assert!(count > 3, "{count}");
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    assert_eq!(found.calls, 60);
    // With a smaller limit the next start removes segments, and notes it.
    let smaller = Settings {
        max_bytes: 540 << 10,
        ..small
    };
    written(home.path(), smaller, 1).await;
    assert!(segments(home.path()).len() < count);
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
    assert!(found.removed_through > 0 && found.calls < 60, "{found:?}");
    let log = Arc::new(Log::open(home.path(), smaller));
    let error = log.receipt(ids[0].clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    let receipt = log.receipt(ids[59].clone()).await.unwrap();
    check_receipt(&receipt, Some(&log.public_key().unwrap())).unwrap();
    drop(log);
    // Without a note no segment may be missing: neither the first, one in the middle, nor the last.
    let all = segments(home.path());
    for gone in [0, 1, all.len() - 1] {
        let aside = home.path().join("aside");
        std::fs::rename(&all[gone], &aside).unwrap();
        assert!(!checked(home.path()).ok, "segment {gone}");
        std::fs::rename(&aside, &all[gone]).unwrap();
    }
    assert!(checked(home.path()).ok);
}

#[tokio::test]
async fn old_segments_go_by_age() {
    let home = tempfile::tempdir().unwrap();
    let small = Settings {
        segment_bytes: 4 << 10,
        ..SETTINGS
    };
    written(home.path(), small, 30).await;
    // With a negative age everything has expired.
    let later = Settings {
        keep_seconds: -86_400,
        ..small
    };
    written(home.path(), later, 1).await;
    assert_eq!(segments(home.path()).len(), 1);
    let found = checked(home.path());
    assert!(found.ok, "{:?}", found.problems);
}

#[tokio::test]
async fn a_lost_or_damaged_key_is_told_and_never_replaced() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), SETTINGS, 2).await;
    let path = home.path().join("audit.key");
    let key = std::fs::read(&path).unwrap();
    for state in [None, Some(&key[..key.len() - 2]), Some(b"x".as_slice())] {
        match state {
            None => std::fs::remove_file(&path).unwrap(),
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        }
        let log = Arc::new(Log::open(home.path(), SETTINGS));
        for effect in [
            Effect::Changes,
            Effect::Settles,
            Effect::Destroys,
            Effect::Runs,
        ] {
            let error = log.admit(effect).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable);
            assert!(error.message.contains("audit.key"), "{error}");
            assert!(error.hint.is_some());
        }
        log.admit(Effect::Reads).await.unwrap();
        // It can still be read.
        assert_eq!(log.list(ListAudit::default()).await.unwrap().count, 2);
        assert_eq!(std::fs::read(&path).ok().as_deref(), state);
    }
    std::fs::write(&path, &key).unwrap();
    written(home.path(), SETTINGS, 1).await;
    assert!(checked(home.path()).ok);
}

#[tokio::test]
async fn receipts_of_a_crowd_prove_themselves_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(Log::open(home.path(), SETTINGS));
    let calls: Vec<AuditCall> = (0..50).map(|_| call("exec")).collect();
    // All are queued before the first is awaited: they share checkpoints.
    let waits: Vec<_> = calls.iter().map(|call| log.record(call, true)).collect();
    for wait in waits {
        wait.await.unwrap();
    }
    for call in &calls {
        let receipt = log.receipt(call.id.clone()).await.unwrap();
        check_receipt(&receipt, Some(&log.public_key().unwrap())).unwrap();
        let mut other = receipt.clone();
        other.entry["outcome"] = "denied".into();
        check_receipt(&other, None).unwrap_err();
        let mut other = receipt.clone();
        other.checkpoint["root"] = "00".repeat(32).into();
        check_receipt(&other, None).unwrap_err();
        if let Some(step) = receipt.path.first() {
            let mut other = receipt.clone();
            other.path[0]["side"] = if step["side"] == "left" {
                "right"
            } else {
                "left"
            }
            .into();
            check_receipt(&other, None).unwrap_err();
        }
    }
    let verified = log.verify(VerifyAudit::default()).await.unwrap();
    assert!(verified.ok, "{:?}", verified.problems);
    assert!(verified.checkpoints < 50, "{verified:?}");
}

#[tokio::test]
async fn a_follower_sees_what_is_recorded_and_an_export_is_the_log() {
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(Log::open(home.path(), SETTINGS));
    for verb in ["one", "two"] {
        log.record(&call(verb), true).await.unwrap();
    }
    let mut follower = log.tail(FollowAudit { tail: Some(1) }).await.unwrap();
    log.record(&call("three"), false).await.unwrap();
    for verb in ["two", "three"] {
        let line = follower.next().await.unwrap().unwrap();
        let entry: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(entry["verb"], verb);
    }
    // A slow follower gets the rest from disk.
    for _ in 0..3000 {
        log.record(&call("more"), false).await.unwrap();
    }
    log.flush().await.unwrap();
    for _ in 0..3000 {
        let line = follower.next().await.unwrap().unwrap();
        assert!(line.ends_with(b"}\n"));
    }
    let mut export = log.export().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = export.next_piece().unwrap() {
        bytes.extend(piece);
    }
    let other = home.path().join("copy");
    log.copy_to(&other).unwrap();
    drop((log, follower));
    assert!(bytes.starts_with(&text(home.path())[..1000]));
    assert_eq!(bytes.iter().filter(|&&byte| byte == 0).count(), 0);
    let copied = verify(&View::of_dir(&other).unwrap(), &Expected::default());
    assert!(copied.ok, "{:?}", copied.problems);
    assert_eq!(copied.calls, 3003);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_change_of_any_byte_is_found(at: prop::sample::Index, other in 1u8..) {
        let (view, bytes) = sample();
        let mut bytes = bytes.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= other;
        let mut view = view.clone();
        view.last.as_mut().unwrap().2 = bytes;
        prop_assert!(!verify(&view, &Expected::default()).ok, "byte {at}");
    }

    #[test]
    fn garbage_is_no_log_and_no_panic(bytes: Vec<u8>) {
        crate::look_at(&bytes);
        prop_assert!(!verify(&View::of_bytes(&bytes), &Expected::default()).ok);
    }
}

/// A small log that is written once, and its bytes with some preallocated space.
fn sample() -> &'static (View, Vec<u8>) {
    static SAMPLE: std::sync::OnceLock<(View, Vec<u8>)> = std::sync::OnceLock::new();
    SAMPLE.get_or_init(|| {
        let home = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(written(home.path(), SETTINGS, 3));
        let mut bytes = text(home.path());
        bytes.extend_from_slice(&[0; 64]);
        let mut view = View::of_dir(&home.path().join("audit")).unwrap();
        view.last.as_mut().unwrap().2 = bytes.clone();
        assert!(verify(&view, &Expected::default()).ok);
        (view, bytes)
    })
}
