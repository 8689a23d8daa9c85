//! Callers who do different things to one workspace at once, and what is known of it afterwards: in
//! memory, in the store, in the record beside its disks, and after the daemon was killed.

use crate::workspaces::{asked, create, script};
use motu_api::Client;
use motu_core::files::ReadFile;
use motu_core::lists::ServiceList;
use motu_core::sandbox::State;
use motu_core::terminal::{ConfigureTerminal, OpenTerminal, Terminals as _};
use motu_core::workspace::*;
use motu_core::{ErrorKind, Result, SandboxId, Service, TerminalId, Workspaces};
use motu_testkit::world::{Dice, World, at, eventually};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CALLERS: u64 = 4;
const VERBS: u64 = 14;
const ROUNDS: u64 = 2;
/// Services that the callers quarrel about.
const SERVICES: u64 = 2;

/// What is said of a workspace, its services and its sessions.
type Said = BTreeMap<String, Value>;

/// `MOTU_TEST_BLOWS` multiplies the rounds.
fn rounds() -> u64 {
    let times = std::env::var("MOTU_TEST_BLOWS").ok();
    ROUNDS * times.map_or(1, |times| times.parse().expect("a number"))
}

fn named(service: u64) -> String {
    format!("s{service}")
}

/// A service whose processes can be counted, or one that ends when it is taken for ready.
pub fn service(name: &str, command: &[&str]) -> StartService {
    StartService {
        service_name: name.to_string(),
        command: command.iter().map(|word| word.to_string()).collect(),
        ..StartService::default()
    }
}

fn lasting(number: u64) -> StartService {
    let time = format!("98{number}");
    service(&named(number), &["sleep", &time])
}

fn session(caller: u64) -> TerminalId {
    TerminalId::parse(&format!("t{caller}")).unwrap()
}

/// Checks that what came between is said as that, and not as a fault of motu or of the caller.
#[track_caller]
fn typed<T>(verb: &str, done: Result<T>) -> Option<T> {
    done.inspect_err(|error| {
        let kinds = [ErrorKind::Conflict, ErrorKind::NotFound];
        assert!(kinds.contains(&error.kind), "{verb}: {error:?}");
    })
    .ok()
}

/// The same for sessions, whose task may have left.
#[track_caller]
fn typed_or_left<T>(verb: &str, done: Result<T>) {
    match done {
        Err(error) if error.kind == ErrorKind::Unavailable => {}
        other => drop(typed(verb, other)),
    }
}

async fn configure(client: &Client, caller: u64, value: u64) -> Option<String> {
    let description = format!("of {value}");
    let change = ConfigureTerminal {
        description: Some(description.clone()),
        ..ConfigureTerminal::default()
    };
    let changed = client.configure_terminal(&session(caller), change).await;
    let said = changed.as_ref().ok().map(|now| now.terminated);
    typed_or_left("configure", changed);
    (said == Some(false)).then_some(description)
}

/// One random verb; a label of the caller's own that was acknowledged is noted.
async fn verb(client: &Client, id: &WorkspaceId, caller: u64, dice: &mut Dice, own: &mut Said) {
    let value = dice.below(1000);
    let name = named(value % SERVICES);
    match dice.below(14) {
        0..=4 => {
            let key = format!("k{caller}-{}", value % 2);
            let labels = BTreeMap::from([(key.clone(), value.to_string())]);
            let update = UpdateWorkspace {
                labels,
                ..UpdateWorkspace::default()
            };
            if typed("update", client.update_workspace(id, update).await).is_some() {
                own.insert(key, value.to_string().into());
            }
        }
        5 => {
            let update = UpdateWorkspace {
                name: Some(format!("n{value}")),
                ..UpdateWorkspace::default()
            };
            typed("name", client.update_workspace(id, update).await);
        }
        6 => {
            typed(
                "start",
                client.start_service(id, lasting(value % SERVICES)).await,
            );
        }
        7 => {
            let ends = service(&name, &["sleep", "0.25"]);
            typed("start", client.start_service(id, ends).await);
        }
        8 => drop(typed("stop", client.stop_service(id, &name).await)),
        9 => {
            let open = OpenTerminal {
                session_id: session(caller).to_string(),
                sandbox_id: Some(id.clone()),
                command: vec!["sh".to_string()],
                ..OpenTerminal::default()
            };
            typed_or_left("open", client.open_terminal(open).await);
        }
        10 => {
            if let Some(said) = configure(client, caller, value).await {
                own.insert(format!("t{caller}"), said.into());
            }
        }
        11 => typed_or_left("end", client.terminate_terminal(&session(caller)).await),
        12 => drop(typed(
            "reset",
            client.reset_workspace(id, ResetTo::default()).await,
        )),
        _ => {
            typed("stop", client.stop_workspace(id).await);
            typed("start", client.start_workspace(id).await);
        }
    }
}

async fn call(client: Client, id: WorkspaceId, caller: u64, seed: u64) -> Said {
    let mut dice = Dice::new(seed * 31 + caller * 7 + 3);
    let mut own = Said::new();
    for _ in 0..VERBS {
        verb(&client, &id, caller, &mut dice, &mut own).await;
    }
    own
}

/// What the daemon says.
async fn in_memory(world: &World, id: &WorkspaceId) -> Said {
    let client = world.client();
    let now = client.status_workspace(id).await.unwrap();
    let mut said = Said::from([
        ("name".to_string(), serde_json::to_value(now.name).unwrap()),
        ("resets".to_string(), now.reset_count.into()),
    ]);
    for (key, value) in now.labels {
        said.insert(key, value.into());
    }
    let services: ServiceList = client.list_services(id).await.unwrap();
    for one in services.iter() {
        let is = (one.state, one.pid, one.restart_count, one.exit_code);
        said.insert(one.service_name.clone(), serde_json::to_value(is).unwrap());
    }
    let sessions = client.list_terminals(Default::default()).await.unwrap();
    for one in sessions.iter() {
        let is = (one.terminated, one.exit_code, &one.description);
        said.insert(one.session_id.clone(), serde_json::to_value(is).unwrap());
    }
    said
}

fn rows(store: &rusqlite::Connection, query: &str) -> Vec<Value> {
    let mut query = store.prepare(query).unwrap();
    let found = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
    found
        .map(|text| serde_json::from_str(&text.unwrap()).unwrap())
        .collect()
}

fn of_workspace(row: &Value) -> Said {
    let mut said = Said::from([
        ("name".to_string(), row["name"].clone()),
        ("resets".to_string(), row["reset_count"].clone()),
    ]);
    for (key, value) in row["labels"].as_object().unwrap() {
        said.insert(key.clone(), value.clone());
    }
    said
}

/// What a daemon that is started now would read.
fn in_store(world: &World) -> Said {
    let store = rusqlite::Connection::open(world.home().join("motu.db")).unwrap();
    let mut said = of_workspace(&rows(&store, "SELECT workspace FROM workspaces")[0]);
    for row in rows(&store, "SELECT service FROM services") {
        let status = &row["status"];
        let name = status["service_name"].as_str().unwrap().to_string();
        let is = ["state", "pid", "restart_count", "exit_code"].map(|key| status[key].clone());
        said.insert(name, Value::from(is.to_vec()));
    }
    for row in rows(&store, "SELECT terminal FROM terminals") {
        let name = row["session_id"].as_str().unwrap().to_string();
        let is = [
            &row["terminated"],
            &row["end"]["exit_code"],
            &row["description"],
        ];
        said.insert(name, is.into_iter().cloned().collect());
    }
    said
}

/// What is in the record beside the disks.
fn in_record(world: &World, id: &WorkspaceId) -> Said {
    let path = world.home().join("kept").join(id.as_str());
    let text = std::fs::read(path.join("workspace.json")).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    of_workspace(&record["workspace"])
}

/// How many processes of a lasting service there are.
async fn processes(world: &World, id: &WorkspaceId, number: u64) -> usize {
    let all = world.client().list_processes(id).await.unwrap();
    let time = format!("98{number}");
    all.iter()
        .filter(|one| one.exited.is_none() && one.command.contains(&time))
        .count()
}

/// Waits until memory, store and record say the same; returns it.
async fn settled(world: &World, id: &WorkspaceId) -> Said {
    let mut last = Said::new();
    eventually("memory, store and record say the same", async || {
        let memory = in_memory(world, id).await;
        let (store, record) = (in_store(world), in_record(world, id));
        let recorded = record
            .iter()
            .all(|(key, value)| store.get(key) == Some(value));
        let same = memory == store && recorded;
        last = memory.clone();
        (same, (memory, store, record))
    })
    .await;
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_store_and_record_say_what_was_answered() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("races")).await;
    for round in 0..rounds() {
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(call(world.client(), id.clone(), caller, round));
        }
        let mut acknowledged = Said::new();
        while let Some(own) = callers.join_next().await {
            acknowledged.extend(own.unwrap());
        }
        if world.client().status_workspace(&id).await.unwrap().state == State::Stopped {
            world.client().start_workspace(&id).await.unwrap();
        }
        let before = settled(&world, &id).await;
        world.restart();
        assert_eq!(settled(&world, &id).await, before, "after a restart");
        for (key, value) in acknowledged.iter().filter(|(key, _)| key.starts_with('k')) {
            assert_eq!(before.get(key), Some(value), "{key} of {before:?}");
        }
        for number in 0..SERVICES {
            let now = before.get(&named(number));
            let runs = now.is_some_and(|now| now[0] == "running");
            assert_eq!(
                processes(&world, &id, number).await,
                usize::from(runs),
                "{now:?}"
            );
            if runs {
                let stopped = world.client().stop_service(&id, &named(number)).await;
                assert_eq!(stopped.unwrap().state, ServiceState::Stopped);
                assert_eq!(processes(&world, &id, number).await, 0);
            }
        }
    }
}

/// Eight callers who change a label of their own, over and over; what was acknowledged last.
async fn relabelled(world: &World, id: &WorkspaceId, value: &str) -> Said {
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let (client, id) = (world.client(), id.clone());
        let (key, value) = (format!("k{caller}"), value.to_string());
        callers.spawn(async move {
            let mut last = String::new();
            for number in 0..5 {
                last = format!("{value}-{number}");
                let labels = BTreeMap::from([(key.clone(), last.clone())]);
                let update = UpdateWorkspace {
                    labels,
                    ..UpdateWorkspace::default()
                };
                client.update_workspace(&id, update).await.unwrap();
            }
            (key, Value::from(last))
        });
    }
    let mut acknowledged = Said::new();
    while let Some(own) = callers.join_next().await {
        acknowledged.extend([own.unwrap()]);
    }
    acknowledged
}

/// Labels and settings that were answered just before the daemon was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let Some(mut world) = World::new() else {
        return;
    };
    let id = create(&world, asked("labels")).await;
    let open = OpenTerminal {
        session_id: session(0).to_string(),
        sandbox_id: Some(id.clone()),
        command: vec!["sh".to_string()],
        ..OpenTerminal::default()
    };
    world.client().open_terminal(open).await.unwrap();
    for round in 0..rounds() {
        let mut acknowledged = Said::new();
        for burst in 0..5 {
            acknowledged = relabelled(&world, &id, &format!("{round}-{burst}")).await;
            let (store, record) = (in_store(&world), in_record(&world, &id));
            for (key, value) in &acknowledged {
                assert_eq!(store.get(key), Some(value), "{key} of {store:?}");
                assert_eq!(record.get(key), Some(value), "{key} of {record:?}");
            }
        }
        let described = configure(&world.client(), 0, round).await.unwrap();
        world.restart();
        let after = in_memory(&world, &id).await;
        for (key, value) in &acknowledged {
            assert_eq!(after.get(key), Some(value), "{key} of {after:?}");
        }
        assert_eq!(after["t0"][2], described.as_str(), "{after:?}");
    }
}

/// Services that end in the moment in which they are taken for ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_service_that_ends_when_it_is_taken_for_ready_has_ended() {
    let Some(world) = World::new() else {
        return;
    };
    let id = create(&world, asked("moments")).await;
    let mut starts = JoinSet::new();
    for number in 0..24 {
        let (client, id) = (world.client(), id.clone());
        starts.spawn(async move {
            // From 230 to 253 ms; a service is taken for ready after 250.
            let time = format!("0.{}", 230 + number);
            let ends = service(&format!("s{number}"), &["sleep", &time]);
            client.start_service(&id, ends).await
        });
    }
    while let Some(started) = starts.join_next().await {
        started.unwrap().unwrap();
    }
    eventually("all of them have ended", async || {
        let all = world.client().list_services(&id).await.unwrap();
        let ended = all.iter().all(|one| one.state == ServiceState::Exited);
        (ended, all)
    })
    .await;
    let asked = Instant::now();
    let stopped = world.client().stop_service(&id, "s3").await.unwrap();
    assert_eq!(stopped.state, ServiceState::Exited);
    assert!(asked.elapsed() < Duration::from_secs(5));
}

/// Everything that reads a workspace while another caller stops, starts and resets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_somebody_else_s_stop_came_between_is_a_conflict() {
    let Some(world) = World::new() else {
        return;
    };
    let id = create(&world, asked("between")).await;
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, id, over) = (world.client(), id.clone(), over.clone());
        readers.spawn(async move {
            let mut cut = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for (verb, done) in look(&client, &id, caller).await {
                    cut += usize::from(typed(verb, done).is_none());
                }
            }
            cut
        });
    }
    let client = world.client();
    for _ in 0..12 {
        client
            .reset_workspace(&id, ResetTo::default())
            .await
            .unwrap();
        client.stop_workspace(&id).await.unwrap();
        client.start_workspace(&id).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut cut = 0;
    while let Some(more) = readers.join_next().await {
        cut += more.unwrap();
    }
    assert!(cut > 0, "nothing came between");
}

async fn look(client: &Client, id: &SandboxId, caller: u64) -> Vec<(&'static str, Result<()>)> {
    let write = WriteText {
        path: format!("f{caller}"),
        text: "text".to_string(),
    };
    let list = ListPaths::default();
    let diff = DiffOptions::default();
    let read = ReadFile::new(at("/etc/passwd"), Default::default());
    let labels = BTreeMap::from([("k".to_string(), caller.to_string())]);
    let update = UpdateWorkspace {
        labels,
        ..UpdateWorkspace::default()
    };
    vec![
        (
            "write",
            client.write_workspace_file(id, write).await.map(drop),
        ),
        (
            "list",
            client.list_workspace_files(id, list).await.map(drop),
        ),
        (
            "exec",
            client.exec_workspace(id, script("echo x")).await.map(drop),
        ),
        ("diff", client.diff_workspace(id, diff).await.map(drop)),
        ("read", client.read_file(id, read).await.map(drop)),
        ("processes", client.list_processes(id).await.map(drop)),
        (
            "update",
            client.update_workspace(id, update).await.map(drop),
        ),
    ]
}

/// Changes of a workspace that is being deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_of_what_is_being_deleted_is_a_conflict() {
    let Some(world) = World::new() else {
        return;
    };
    for round in 0..6 {
        let id = create(&world, asked(&format!("going-{round}"))).await;
        let (client, going) = (world.client(), id.clone());
        let deleting = tokio::spawn(async move { client.delete_workspace(&going).await });
        while !deleting.is_finished() {
            let labels = BTreeMap::from([("k".to_string(), "v".to_string())]);
            let update = UpdateWorkspace {
                labels,
                ..UpdateWorkspace::default()
            };
            typed("update", world.client().update_workspace(&id, update).await);
        }
        deleting.await.unwrap().unwrap();
        assert!(!world.home().join("kept").join(id.as_str()).exists());
    }
}
