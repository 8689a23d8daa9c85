//! Pages of a long list, as the gate cuts them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use motu_core::lists::SandboxList;
use motu_core::sandbox::{ListSandboxes, Sandbox};
use motu_core::verb::{self, Recorder};
use motu_core::{ErrorKind, Service};
use motu_gate::{Caller, Face, Gate, Who};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MANY: usize = 10_000;

/// A record; several of them are of the same moment.
fn sandbox(number: usize) -> Sandbox {
    let seconds = number / 10;
    let at = format!(
        "2026-01-01T{:02}:{:02}:{:02}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    serde_json::from_value(json!({
        "sandbox_id": format!("sb-{:05}", MANY - number), "state": "running", "environment": "busybox",
        "digest": "sha256:0", "runtime": "container", "isolation": "container", "network": "off",
        "vcpu_count": 1, "mem_mib": 256, "limits": [], "user": "root", "workdir": "/",
        "created_at": at, "last_activity_at": at, "expires_at": null,
        "ttl_seconds": 600, "idle_seconds": 0,
    }))
    .unwrap()
}

fn page(limit: u64, cursor: Option<String>) -> ListSandboxes {
    ListSandboxes {
        limit: Some(limit),
        cursor,
        ..ListSandboxes::default()
    }
}

#[tokio::test]
async fn ten_thousand_records_are_read_in_pages() {
    let recorder = Recorder::default();
    let all: Vec<Sandbox> = (0..MANY).map(sandbox).collect();
    let kept = all.clone();
    recorder.on(move |_: verb::ListSandboxes| Ok(SandboxList::new(kept.clone())));
    let gate = Gate::new(Arc::new(recorder));
    let desk = gate.desk(Caller::new(Who::Local { uid: 0 }, Face::Socket));
    let begin = Instant::now();
    let first = desk.list_sandboxes(page(100, None)).await.unwrap();
    let body = serde_json::to_vec(&first).unwrap();
    let took = begin.elapsed();
    println!("the first of 100 pages: {took:?}, {} bytes", body.len());
    // Far more than it takes, also unoptimised and beside others; sorting it all for each page
    // or writing out all of it is more.
    assert!(took < Duration::from_secs(1), "{took:?}");
    let mut seen = first.sandboxes;
    let mut next = first.next_cursor;
    let mut pages = 1;
    while let Some(cursor) = next {
        let more = desk.list_sandboxes(page(1000, Some(cursor))).await.unwrap();
        assert_eq!(more.count, more.sandboxes.len() as u64);
        seen.extend(more.sandboxes);
        next = more.next_cursor;
        pages += 1;
    }
    assert_eq!((pages, seen.len()), (11, MANY));
    let place = |one: &Sandbox| (one.created_at, one.sandbox_id.clone());
    assert!(
        seen.windows(2)
            .all(|pair| place(&pair[0]) < place(&pair[1]))
    );
    let whole = desk.list_sandboxes(ListSandboxes::default()).await.unwrap();
    assert_eq!((whole.count, whole.next_cursor), (MANY as u64, None));
    for wrong in [0, 1001] {
        let error = desk.list_sandboxes(page(wrong, None)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert_eq!(error.details["limit"], "page_items");
    }
}
