//! A store with everything in it, damaged byte by byte: no byte costs more than its row, or the
//! damage is named and the store can be made again.

use super::*;
use crate::lifecycle::Intent;
use jiff::Timestamp;
use motu_core::event::{EventKind, Happened};
use motu_core::key::{CreateKey, Key};
use motu_core::sandbox::Sandbox;
use motu_core::template::{Template, TemplateDefinition, TemplatePool};
use motu_core::terminal::TerminalId;
use motu_core::workspace::CommandRecord;
use motu_core::{Project, SandboxId};
use rusqlite::types::Value as Cell;
use serde_json::{from_value, json};
use std::path::PathBuf;

/// Rows of each kind.
const ROWS: usize = 3;

fn sandbox(id: &str, state: &str) -> Sandbox {
    let at = Timestamp::from_second(1_000).unwrap();
    from_value(json!({
        "sandbox_id": id, "state": state, "environment": "busybox", "digest": "sha256:0",
        "runtime": "container", "isolation": "container", "network": "off", "vcpu_count": 1,
        "mem_mib": 256, "limits": [], "user": "root", "workdir": "/", "keep": state == "stopped",
        "created_at": at, "last_activity_at": at, "expires_at": null, "ttl_seconds": 600,
        "idle_seconds": 0, "owner": "local",
    }))
    .unwrap()
}

/// Fills a store through the calls that a daemon makes, and closes it.
async fn fill(path: &Path) {
    let store = Store::open(path).unwrap();
    store.open_events(1000).await.unwrap();
    for number in 0..ROWS {
        let id = SandboxId::parse(&format!("ws-{number}")).unwrap();
        let gone = SandboxId::parse(&format!("sb-{number}")).unwrap();
        for (id, state) in [(&id, "stopped"), (&gone, "destroyed")] {
            let row = SandboxRow {
                sandbox: sandbox(id.as_str(), state),
                intent: Some(Intent::Recreating),
                machine: None,
                launch: None,
                revision: 3,
            };
            store.insert(&row).await.unwrap();
        }
        let secret = SealedSecret {
            name: "KEY".to_string(),
            source_kind: "literal".to_string(),
            sealed: vec![1; 40],
        };
        let row = from_value(json!({
            "workspace_id": id, "name": "a name", "labels": {}, "network_policy": "off",
            "seed": {"mode": "empty", "destination": "/workspace", "entry_count": 0, "bytes_written": 0},
            "secrets": [], "reset_count": 0, "last_reset_at": null, "created_at": "2026-01-01T00:00:00Z",
        }));
        let row = row.unwrap();
        store.insert_workspace(&row, vec![secret]).await.unwrap();
        let command: CommandRecord = from_value(json!({
            "sequence": 0, "command": ["true"], "workdir": "/", "status": "exited", "stdout": "",
            "stderr": "", "truncated": false, "duration_ms": 1, "started_at": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        store.begin_command(&id, command).await.unwrap();
        let service: ServiceRow = from_value(json!({
            "status": {
                "workspace_id": id, "service_name": "web", "state": "running", "command": ["web"],
                "cwd": "/", "started_at": "2026-01-01T00:00:00Z", "ready_at": null,
                "ended_at": null, "restart": "never", "restart_count": 0, "published_ports": [],
            },
            "tag": "t", "mode": "argv", "env": {}, "secret_env": [], "stdout": "", "stderr": "", "cut": false,
        }))
        .unwrap();
        store.put_service(&service).await.unwrap();
        let shell: TerminalRow = from_value(json!({
            "session_id": format!("shell-{number}"), "sandbox_id": id, "runtime": "container",
            "isolation": "container", "command": ["sh"], "shell": null, "size": {"rows": 24, "cols": 80},
            "started_at": "2026-01-01T00:00:00Z", "opened_in": "/", "description": null,
            "prompt_regex": null, "quiescence_ms": 100, "end": null, "terminated": false,
        }))
        .unwrap();
        store.put_terminal(&shell).await.unwrap();
        store.lease_baseline("base-a", &id).await.unwrap();
        let owner = Project::parse("acme").unwrap().owner();
        store
            .tell(Happened::now(EventKind::KeyCreated, &owner))
            .await;
    }
    for key in ["place", "webhook_sent", "ready"] {
        store.set_meta(key, "some text".to_string()).await.unwrap();
    }
    fill_former(path);
    store.close().await;
}

/// What earlier versions had in the store.
fn fill_former(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let at = Timestamp::from_second(1_000).unwrap();
    let key = Key::new(CreateKey::default(), at).unwrap();
    let template = Template {
        name: "one".to_string(),
        owner: "uid:0".to_string(),
        version: 1,
        digest: String::new(),
        definition: TemplateDefinition::default(),
        built: None,
        saved: None,
        created_at: at,
        updated_at: at,
        pool: TemplatePool::default(),
    };
    let text = |value: serde_json::Value| value.to_string();
    for number in 0..ROWS {
        let row: [Cell; 3] = [
            number.to_string().into(),
            vec![1u8; 32].into(),
            text(json!(key)).into(),
        ];
        let insert = "INSERT INTO keys VALUES (?1, ?2, ?3)";
        connection.execute(insert, row).unwrap();
        let row: [Cell; 2] = [number.to_string().into(), text(json!(template)).into()];
        let insert = "INSERT INTO templates VALUES (?1, ?2)";
        connection.execute(insert, row).unwrap();
    }
}

/// Asks everything that a daemon asks; how many rows each question found.
async fn ask_all(store: &Store) -> Vec<(&'static str, Result<usize>)> {
    let ids: Vec<SandboxId> = (0..ROWS)
        .map(|number| SandboxId::parse(&format!("ws-{number}")).unwrap())
        .collect();
    let readable = |all: Vec<Stored>| {
        all.iter()
            .filter(|one| matches!(one, Stored::Row(_)))
            .count()
    };
    let mut said = vec![
        ("sandboxes", store.all().await.map(readable)),
        (
            "sandboxes",
            store.tombstones(None, None).await.map(|all| all.len()),
        ),
        ("workspaces", store.workspaces().await.map(|all| all.len())),
        ("terminals", store.terminals().await.map(|all| all.len())),
        (
            "baseline_refs",
            store.baseline_refs().await.map(|all| all.len()),
        ),
        ("keys", store.former_keys().await.map(|all| all.len())),
        (
            "templates",
            store.former_templates().await.map(|all| all.len()),
        ),
    ];
    for id in &ids {
        said.push((
            "sandboxes",
            store.get(id).await.map(|one| one.into_iter().count()),
        ));
        said.push(("secrets", store.secrets(id).await.map(|all| all.len())));
        said.push(("commands", store.commands(id).await.map(|all| all.len())));
        said.push(("services", store.services(id).await.map(|all| all.len())));
        said.push(("terminals", store.shells(id).await.map(|all| all.len())));
        said.push((
            "commands",
            store.command_count(id).await.map(|count| count as usize),
        ));
    }
    for key in ["place", "webhook_sent", "ready"] {
        said.push((
            "meta",
            store.meta(key).await.map(|one| one.into_iter().count()),
        ));
    }
    let acme = Project::parse("acme").unwrap();
    for project in [None, Some(&acme)] {
        let page = store.events(project, 0, 1000).await;
        said.push(("events", page.map(|page| page.events.len())));
    }
    // What a daemon writes while it goes on.
    for id in &ids {
        let row = SandboxRow {
            sandbox: sandbox(id.as_str(), "failed"),
            intent: None,
            machine: None,
            launch: None,
            revision: 4,
        };
        said.push(("sandboxes", store.update(&row).await.map(|()| 1)));
        said.push(("events", store.forget_workspace(id).await.map(|()| 1)));
    }
    let terminal = TerminalId::parse("shell-0").unwrap();
    said.push((
        "terminals",
        store.delete_terminal(&terminal).await.map(|()| 1),
    ));
    said
}

/// Makes a store once, and gives copies of it.
struct Sample {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
    copies: usize,
}

impl Sample {
    async fn new() -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("motu.db");
        fill(&path).await;
        let bytes = std::fs::read(&path).unwrap();
        Sample {
            dir,
            bytes,
            copies: 0,
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> PathBuf {
        self.copies += 1;
        let home = self.dir.path().join(self.copies.to_string());
        std::fs::create_dir(&home).unwrap();
        let path = home.join("motu.db");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// The first row of a table gets a byte that is no text in the middle of one column, if it has
/// something there.
fn spoil(path: &Path, table: &str, column: &str) -> bool {
    let connection = Connection::open(path).unwrap();
    let which = match table {
        "meta" => "key = 'place'".to_string(),
        _ => format!("{column} <> ''"),
    };
    let first = format!(
        "SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE {which} ORDER BY rowid LIMIT 1"
    );
    let found: rusqlite::Result<(i64, Vec<u8>)> =
        connection.query_row(&first, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let Ok((rowid, mut bytes)) = found else {
        return false;
    };
    let middle = bytes.len() / 2;
    bytes[middle] = 0xff;
    let update = format!("UPDATE {table} SET {column} = CAST(?2 AS TEXT) WHERE rowid = ?1");
    let row: [Cell; 2] = [rowid.into(), bytes.into()];
    connection.execute(&update, row) == Ok(1)
}

#[tokio::test]
async fn a_byte_that_is_no_text_costs_its_row_alone() {
    let mut sample = Sample::new().await;
    let bytes = sample.bytes.clone();
    let whole = sample.copy(&bytes);
    let store = Store::open(&whole).unwrap();
    let before = ask_all(&store).await;
    store.close().await;
    for (_, found) in &before {
        assert!(found.as_ref().is_ok_and(|found| *found > 0), "{before:?}");
    }
    let texts = columns(&whole)
        .unwrap()
        .into_iter()
        .filter(|(_, _, kind)| kind == "TEXT");
    let texts: Vec<_> = texts.collect();
    assert!(texts.len() > 20, "{texts:?}");
    for (table, column, _) in texts {
        let path = sample.copy(&bytes);
        if !spoil(&path, &table, &column) {
            continue;
        }
        let store = Store::open(&path).unwrap();
        let after = ask_all(&store).await;
        store.close().await;
        for ((asked, found), (_, expected)) in after.iter().zip(&before) {
            let (Ok(found), Ok(expected)) = (found, expected) else {
                panic!("{table}.{column}: {asked}: {found:?}");
            };
            let costs = usize::from(*asked == table);
            assert!(
                found + costs >= *expected,
                "{table}.{column}: {asked}: {found}"
            );
        }
        // What nobody can read is kept, and said.
        let lost = Lost::at(path.parent().unwrap()).list();
        let read = ![
            "sandboxes.state",
            "sandboxes.runtime",
            "sandboxes.owner",
            "events.project",
        ]
        .contains(&&*format!("{table}.{column}"));
        // Rows that are looked up by the damaged text are not met.
        let met = !["workspace_id", "session_id", "key_id", "key", "name"].contains(&&*column);
        if read && met {
            assert_eq!(lost.len(), 1, "{table}.{column}: {lost:?}");
            assert_eq!(lost[0].kind, crate::lost::LostKind::Row);
            let store = Store::open(&path).unwrap();
            ask_all(&store).await;
            store.close().await;
            let lost = Lost::at(path.parent().unwrap()).list();
            assert_eq!(lost.len(), 1, "once: {lost:?}");
        }
    }
}

#[tokio::test]
async fn a_mark_of_nobody_is_the_only_one_that_removes_a_baseline() {
    let mut sample = Sample::new().await;
    let bytes = sample.bytes.clone();
    let path = sample.copy(&bytes);
    let connection = Connection::open(&path).unwrap();
    let damage = "UPDATE baseline_refs SET sandbox_id = 'NOT AN ID' WHERE sandbox_id = 'ws-0'";
    assert_eq!(connection.execute(damage, []), Ok(1));
    drop(connection);
    let store = Store::open(&path).unwrap();
    let all = store.baseline_refs().await.unwrap();
    assert_eq!(all.len(), ROWS - 1);
    assert!(all.iter().all(|one| one.sandbox.is_some()), "{all:?}");
    store.close().await;
}

/// A small generator: the same bytes in every run.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 33) as usize
}

#[tokio::test]
async fn a_flipped_byte_anywhere_costs_a_row_or_is_named() {
    let mut sample = Sample::new().await;
    // A longer run tries other bytes.
    let rounds = std::env::var("MOTU_STORE_FLIPS").ok();
    let rounds: u64 = rounds.map_or(200, |rounds| rounds.parse().unwrap());
    let mut state = 13;
    let (mut opened, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut bytes = sample.bytes.clone();
        let length = bytes.len();
        // Half of them in the header and the schema, which are one page of many.
        let at = next(&mut state) % if round % 4 == 0 { 4096 } else { length };
        bytes[at] ^= 1 << (next(&mut state) % 8);
        let path = sample.copy(&bytes);
        let home = path.parent().unwrap().to_path_buf();
        let mut named = false;
        match Store::open(&path) {
            Err(error) => {
                named = true;
                refused += 1;
                assert!(error.hint.is_some(), "byte {at}: {error}");
            }
            Ok(store) => {
                opened += 1;
                let mut said = vec![("events", store.open_events(1000).await.map(|()| 1))];
                said.extend(ask_all(&store).await);
                for (asked, found) in said {
                    if let Err(error) = found {
                        // Who asked for this very row is told so, and for no other.
                        named |= !error.message.contains("a row is damaged");
                        assert!(error.hint.is_some(), "byte {at}: {asked}: {error}");
                    }
                }
                store.close().await;
            }
        }
        // What is refused can be made again: it is not called whole.
        let version = u32::from_be_bytes([bytes[60], bytes[61], bytes[62], bytes[63]]);
        let newer = version > STORE_VERSION;
        if named && !newer {
            std::fs::write(&path, &bytes).unwrap();
            let _ = std::fs::remove_file(path.with_file_name("motu.db-wal"));
            assert!(!Store::is_whole(&path).await, "byte {at}");
        }
        std::fs::remove_dir_all(home).unwrap();
    }
    assert!(opened > 100 && refused > 0, "{opened} {refused}");
}

#[tokio::test]
async fn what_can_be_read_of_a_damaged_store_is_taken_over() {
    let mut sample = Sample::new().await;
    let bytes = sample.bytes.clone();
    let old = sample.copy(&bytes);
    let connection = Connection::open(&old).unwrap();
    let root = "SELECT rootpage FROM sqlite_master WHERE name = 'services'";
    let root: i64 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&old).unwrap();
    bytes[(root as usize - 1) * 4096..][..4096].fill(0x5a);
    std::fs::write(&old, bytes).unwrap();
    let new = old.with_file_name("new.db");
    let store = Store::open(&new).unwrap();
    let said = store.salvage(&old).await.unwrap();
    let of = |table: &str| said.iter().find(|one| one.table == table).unwrap().clone();
    assert!(!of("services").whole);
    for (table, rows) in [("commands", ROWS), ("terminals", ROWS), ("sandboxes", ROWS)] {
        assert_eq!(
            (of(table).rows, of(table).whole),
            (rows as u64, true),
            "{table}"
        );
    }
    let id = SandboxId::parse("ws-1").unwrap();
    assert_eq!(store.commands(&id).await.unwrap().len(), 1);
    assert_eq!(store.tombstones(None, None).await.unwrap().len(), ROWS);
    let events = store.events(None, 0, 1000).await.unwrap().events;
    assert!(events.len() >= ROWS);
    store.close().await;
}

#[tokio::test]
async fn changes_that_a_log_has_lost_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("motu.db");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.loss(), None);
    store.set_meta("one", "1".to_string()).await.unwrap();
    store.checkpoint().await.unwrap();
    store.set_meta("one", "2".to_string()).await.unwrap();
    store.set_meta("one", "3".to_string()).await.unwrap();
    // As a kill leaves it: database and log, and the count beside them.
    let home = dir.path().join("killed");
    let killed = home.join("motu.db");
    let take = |damage: fn(&Path)| {
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir(&home).unwrap();
        for name in ["motu.db", "motu.db-wal", "motu.db-mark"] {
            std::fs::copy(dir.path().join(name), home.join(name)).unwrap();
        }
        damage(&home.join("motu.db-wal"));
    };
    take(|_| {});
    let next = Store::open(&killed).unwrap();
    assert_eq!(next.loss(), None);
    next.close().await;
    let damages: [fn(&Path); 3] = [
        |log| std::fs::remove_file(log).unwrap(),
        |log| {
            let length = log.metadata().unwrap().len();
            let file = std::fs::File::options().write(true).open(log).unwrap();
            file.set_len(length - 100).unwrap();
        },
        |log| {
            let mut bytes = std::fs::read(log).unwrap();
            bytes[100] ^= 1;
            std::fs::write(log, bytes).unwrap();
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        take(damage);
        // Whoever only looks leaves the log as it is.
        assert_eq!(Store::look(&killed), found::Store::Readable);
        let next = Store::open(&killed).unwrap();
        let loss = next.loss().map(|loss| loss.changes);
        assert_eq!(loss, Some(if number == 1 { 1 } else { 2 }));
        next.close().await;
        let lost = Lost::at(&home);
        let said = lost.list();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(said[0].kind, crate::lost::LostKind::Changes);
        if number > 0 {
            let kept = lost.content(&said[0]).metadata().unwrap().len();
            assert!(kept > 4096, "the log is kept as it was found");
        }
        // It is said once.
        assert_eq!(Store::open(&killed).unwrap().loss(), None);
    }
    store.close().await;
}

#[test]
fn every_table_of_the_sample_has_rows() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let sample = runtime.unwrap().block_on(Sample::new());
    let path = sample.dir.path().join("motu.db");
    let connection = Connection::open(&path).unwrap();
    let found = columns(&path).unwrap().into_iter();
    let mut tables: Vec<String> = found.map(|(table, ..)| table).collect();
    tables.dedup();
    for table in tables.iter().filter(|table| *table != "shells") {
        let count = format!("SELECT count(*) FROM {table}");
        let count: i64 = connection.query_row(&count, [], |row| row.get(0)).unwrap();
        assert!(
            count > 0,
            "{table} is empty: damage in it would not be tried"
        );
    }
}
