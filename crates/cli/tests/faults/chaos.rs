//! Everything at once: clients that write, and what happens to daemons, machines and hosts.
//!
//! Every file has versions that only grow. A client writes down the version it is
//! about to write and the one that was acknowledged, so whatever happens, what is
//! found lies between the two. Workspaces that come and go are written down in the
//! same way. In the end everything is counted, and nothing may be lost.
//!
//! `MOTU_CHAOS_SECONDS` says how long (without it nothing is run), `MOTU_CHAOS_SEED`
//! which blows; `tools/chaos` sets both.

use crate::durable::{Cut, asked, cut};
use crate::support::{Dice, World, at, stream};
use motu_api::Client;
use motu_core::files::{ReadFile, ReadRange, WriteFile, WriteOptions};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{Result, SandboxId, Service, Workspaces};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECONDS: u64 = 6;
const SEED: u64 = 0x0063_6861_6f73;
/// Files that are edited or pushed together.
const TOGETHER: usize = 12;
/// How long the end may take: a machine that was killed is started again, and read.
const PATIENCE: Duration = Duration::from_secs(60);

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

/// The versions of something.
#[derive(Debug, Default)]
struct Versions {
    tried: AtomicU64,
    acknowledged: AtomicU64,
}

/// The kinds of clients; each has files of its own.
const KINDS: [&str; 5] = ["write", "edit", "push", "copy", "patch"];

/// How many files a kind has.
fn files_of(kind: &str) -> usize {
    match kind {
        "edit" | "push" => TOGETHER,
        _ => 1,
    }
}

/// What all clients share.
struct Shore {
    socket: PathBuf,
    dir: PathBuf,
    id: WorkspaceId,
    over: AtomicBool,
    versions: [Versions; KINDS.len()],
    acknowledged: AtomicU64,
    cut_off: AtomicU64,
    /// Workspaces that were acknowledged and are not being deleted, and what they began with.
    made: Mutex<Vec<(WorkspaceId, String)>>,
}

impl Shore {
    fn client(&self) -> Client {
        Client::new(motu_api::client::SocketAt(self.socket.clone()))
    }

    fn count(&self, outcome: &Result<()>) {
        match outcome {
            Ok(()) => self.acknowledged.fetch_add(1, Ordering::SeqCst),
            Err(_) => self.cut_off.fetch_add(1, Ordering::SeqCst),
        };
    }

    /// Writes one version after the other until it is over.
    async fn write_on(self: Arc<Self>, kind: usize, seed: u64) {
        let mut dice = Dice::new(seed);
        while !self.over.load(Ordering::SeqCst) {
            let versions = &self.versions[kind];
            let next = versions.tried.fetch_add(1, Ordering::SeqCst) + 1;
            let done = self.write(kind, next).await;
            self.count(&done);
            match done {
                Ok(()) => versions.acknowledged.store(next, Ordering::SeqCst),
                // Nobody serves, or the machine has ended: it is made to run again.
                Err(_) => {
                    let _ = self.client().start_workspace(&self.id).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            tokio::time::sleep(dice.moment(20)).await;
        }
    }

    async fn write(&self, kind: usize, version: u64) -> Result<()> {
        let (client, id) = (self.client(), &self.id);
        let text = format!("{version}\n");
        match KINDS[kind] {
            "write" => {
                let path = "write/0".to_string();
                let request = WriteText { path, text };
                client.write_workspace_file(id, request).await.map(drop)
            }
            "edit" => {
                // What is there may be any version that was tried.
                let found = client
                    .read_workspace_file(id, ReadText::new("edit/0", None))
                    .await?;
                let edit = |number| Edit {
                    path: format!("edit/{number}"),
                    old: found.content.clone(),
                    new: text.clone(),
                    count: None,
                };
                let edits = (0..TOGETHER).map(edit).collect();
                client
                    .edit_workspace(id, EditFiles { edits: edits })
                    .await
                    .map(drop)
            }
            "push" => {
                let source = self.dir.join("push");
                for number in 0..TOGETHER {
                    std::fs::write(source.join(format!("push/{number}")), &text).unwrap();
                }
                let push = SyncPush {
                    source_path: source.display().to_string(),
                    dest: None,
                    gitignore: false,
                };
                client.push_workspace_sync(id, push).await.map(drop)
            }
            "copy" => {
                let place = at("/workspace/copy/0");
                let written = client.write_file(
                    id,
                    WriteFile::new(place, WriteOptions::default()),
                    stream(text.as_bytes()),
                );
                written.await.map(drop)
            }
            _ => {
                let found = client
                    .read_workspace_file(id, ReadText::new("patch/0", None))
                    .await?;
                let (old, new) = (found.content.trim(), text.trim());
                let patch = format!("--- a/patch/0\n+++ b/patch/0\n@@ -1 +1 @@\n-{old}\n+{new}\n");
                client
                    .apply_workspace_patch(id, Patch::new(&patch))
                    .await
                    .map(drop)
            }
        }
    }

    /// Makes seeded workspaces and deletes some of them.
    async fn come_and_go(self: Arc<Self>, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut serial = 0;
        while !self.over.load(Ordering::SeqCst) {
            serial += 1;
            let name = format!("guest-{seed}-{serial}");
            let source = self.dir.join(&name);
            std::fs::create_dir_all(&source).unwrap();
            std::fs::write(source.join("seed"), &name).unwrap();
            let mut request = asked(&name, "container", 32);
            request.seed_path = Some(source.display().to_string());
            let made = self.client().create_workspace(request).await;
            self.count(&made.as_ref().map(drop).map_err(Clone::clone));
            if let Ok(made) = made {
                self.made.lock().unwrap().push((made.workspace_id, name));
            }
            let oldest = {
                let mut made = self.made.lock().unwrap();
                (made.len() > 3).then(|| made.remove(0).0)
            };
            if let Some(id) = oldest {
                let _ = self.client().delete_workspace(&id).await;
            }
            tokio::time::sleep(dice.moment(50)).await;
        }
    }

    /// Saves states; what is acknowledged is listed.
    async fn save(self: Arc<Self>, saved: Arc<Mutex<Vec<String>>>) {
        let mut serial = 0;
        while !self.over.load(Ordering::SeqCst) && serial < 100 {
            serial += 1;
            let name = format!("state-{serial}");
            let done = self
                .client()
                .create_snapshot(&self.id, SaveAs::named(&name))
                .await
                .map(drop);
            self.count(&done);
            if done.is_ok() {
                saved.lock().unwrap().push(name);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What must be found now, at least.
    fn least(&self) -> Vec<u64> {
        let all = self.versions.iter();
        all.map(|versions| versions.acknowledged.load(Ordering::SeqCst))
            .collect()
    }

    /// Holds what is found of every file against what was acknowledged; the count of losses.
    fn judge(
        &self,
        least: &[u64],
        mut read: impl FnMut(&str) -> Option<String>,
        what: &str,
    ) -> u64 {
        let mut lost = 0;
        for (kind, name) in KINDS.iter().enumerate() {
            let most = self.versions[kind].tried.load(Ordering::SeqCst);
            for number in 0..files_of(name) {
                let path = format!("{name}/{number}");
                let text = read(&path);
                let version = text
                    .as_deref()
                    .and_then(|text| text.trim().parse::<u64>().ok());
                if !version.is_some_and(|found| (least[kind]..=most).contains(&found)) {
                    println!(
                        "{what}: {path} is {text:?}; {}..={most} was written",
                        least[kind]
                    );
                    lost += 1;
                }
            }
        }
        lost
    }
}

/// Strikes until the time is over; the losses that power cuts would have meant.
async fn strike(world: &mut World, shore: &Shore, dice: &mut Dice, image: &Path) -> u64 {
    let end = Instant::now() + Duration::from_secs(number("MOTU_CHAOS_SECONDS", SECONDS));
    let (mut lost, mut blows) = (0, [0; 3]);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(150) + dice.moment(400)).await;
        let blow = dice.below(3) as usize;
        blows[blow] += 1;
        match blow {
            0 => world.restart(),
            1 => {
                let record = world
                    .home()
                    .join("machines/container")
                    .join(shore.id.as_str());
                let record = std::fs::read(record.join("machine.json")).unwrap_or_default();
                let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
                let pid = record["process"]["pid"].as_i64().unwrap_or(0) as i32;
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            _ => {
                // A machine that stands still for a moment, so that the copy is of one moment.
                if shore.client().pause_sandbox(&shore.id).await.is_ok() {
                    let least = shore.least();
                    let copy = world.path().join("chaos.img");
                    cut(image, &copy);
                    settle(shore, &shore.id).await;
                    let mut found = Cut::open(&copy, "workspace/upper");
                    lost += shore.judge(&least, |path| found.text(path), "a power cut");
                }
            }
        }
    }
    println!(
        "{} daemons, {} machines killed, {} power cuts",
        blows[0], blows[1], blows[2]
    );
    lost
}

/// Everything runs again.
async fn settle(shore: &Shore, id: &WorkspaceId) {
    let end = Instant::now() + PATIENCE;
    loop {
        let client = shore.client();
        let state = client.status_workspace(id).await.map(|found| found.state);
        match state {
            Ok(State::Running) => return,
            Ok(State::Paused) => drop(client.resume_sandbox(id).await),
            _ => drop(client.start_workspace(id).await),
        }
        assert!(Instant::now() < end, "{id} does not come back: {state:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn read(client: &Client, id: &WorkspaceId, path: &str) -> Option<String> {
    let place = at(format!("/workspace/{path}"));
    let (_, content) = client
        .read_file(id, ReadFile::new(place, ReadRange::default()))
        .await
        .ok()?;
    let bytes = crate::support::collect(content).await.ok()?;
    String::from_utf8(bytes).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost() {
    // By hand only: how much it does in a time depends on the machine.
    if std::env::var_os("MOTU_CHAOS_SECONDS").is_none() {
        return;
    }
    let Some(mut world) = World::new() else {
        return;
    };
    let seed = number("MOTU_CHAOS_SEED", SEED);
    let mut dice = Dice::new(seed);
    let source = world.path().join("first");
    for (name, files) in KINDS.map(|name| (name, files_of(name))) {
        std::fs::create_dir_all(source.join(name)).unwrap();
        for number in 0..files {
            std::fs::write(source.join(name).join(number.to_string()), "0\n").unwrap();
        }
    }
    std::fs::create_dir_all(world.path().join("push/push")).unwrap();
    let made = world
        .client()
        .create_workspace(asked("chaos", "container", 64))
        .await;
    let id = made.unwrap().workspace_id;
    let push = SyncPush {
        source_path: source.display().to_string(),
        dest: None,
        gitignore: false,
    };
    world.client().push_workspace_sync(&id, push).await.unwrap();
    let image = world.home().join("kept/chaos/disks-1/disk.img");
    let shore = Arc::new(Shore {
        socket: world.socket(),
        dir: world.path().to_path_buf(),
        id: id.clone(),
        over: AtomicBool::new(false),
        versions: Default::default(),
        acknowledged: AtomicU64::new(0),
        cut_off: AtomicU64::new(0),
        made: Mutex::default(),
    });
    let saved = Arc::new(Mutex::new(Vec::new()));
    let mut clients = tokio::task::JoinSet::new();
    for kind in 0..KINDS.len() {
        clients.spawn(shore.clone().write_on(kind, dice.below(u64::MAX)));
    }
    for _ in 0..2 {
        clients.spawn(shore.clone().come_and_go(dice.below(1000)));
    }
    clients.spawn(shore.clone().save(saved.clone()));
    let mut lost = strike(&mut world, &shore, &mut dice, &image).await;
    shore.over.store(true, Ordering::SeqCst);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    world.restart();
    settle(&shore, &id).await;
    let client = shore.client();
    let mut found = std::collections::BTreeMap::new();
    for (name, files) in KINDS.map(|name| (name, files_of(name))) {
        for number in 0..files {
            let path = format!("{name}/{number}");
            found.insert(path.clone(), read(&client, &id, &path).await);
        }
    }
    lost += shore.judge(
        &shore.least(),
        |path| found.get(path).cloned().flatten(),
        "the end",
    );
    let listed = client.list_snapshots(&id).await.unwrap();
    for name in saved.lock().unwrap().iter() {
        let there = listed
            .snapshots
            .iter()
            .any(|one| one.snapshot_name == *name);
        if !there {
            println!("snapshot {name} is gone");
            lost += 1;
        }
    }
    let made = std::mem::take(&mut *shore.made.lock().unwrap());
    for (id, text) in made {
        settle(&shore, &id).await;
        if read(&client, &id, "seed").await.as_ref() != Some(&text) {
            println!("workspace {id} lost its seed");
            lost += 1;
        }
    }
    println!(
        "seed {seed}: {} acknowledged, {} cut off, {lost} lost",
        shore.acknowledged.load(Ordering::SeqCst),
        shore.cut_off.load(Ordering::SeqCst)
    );
    assert_eq!(lost, 0);
    for row in client.list_workspaces().await.unwrap() {
        let id: SandboxId = row.workspace_id;
        let _ = client.delete_workspace(&id).await;
    }
}
