//! Clients that write while faults happen, and a record of what they were told.
//!
//! Every file has increasing versions. A client records the version it is about to write and the
//! last acknowledged one; the version found later must be between the two. Workspaces that are
//! created and deleted are recorded in the same way. At the end everything is compared, and nothing
//! may be lost.

use crate::durable::asked;
use motu_api::Client;
use motu_core::files::{ReadFile, ReadRange, WriteFile, WriteOptions};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{Result, Service, Workspaces};
use motu_testkit::world::{Dice, at, stream};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::RwLock;
use tokio::task::JoinSet;

/// Files that are edited or pushed together.
const TOGETHER: usize = 12;
/// How long the final check may take: a killed machine is started again, and read.
const PATIENCE: Duration = Duration::from_secs(120);

/// The last attempted and the last acknowledged version.
#[derive(Debug, Default)]
struct Versions {
    tried: AtomicU64,
    acknowledged: AtomicU64,
}

/// The kinds of clients; each has its own files.
const KINDS: [&str; 5] = ["write", "edit", "push", "copy", "patch"];

/// How many files a kind has.
fn files_of(kind: &str) -> usize {
    match kind {
        "edit" | "push" => TOGETHER,
        _ => 1,
    }
}

/// State that all clients share.
pub struct Shore {
    /// The socket of the current daemon.
    pub socket: Mutex<PathBuf>,
    dir: PathBuf,
    pub id: WorkspaceId,
    runtime: String,
    over: AtomicBool,
    /// Calls hold it for reading; a fault that needs all clients idle takes it for writing.
    pub calm: RwLock<()>,
    versions: [Versions; KINDS.len()],
    acknowledged: AtomicU64,
    cut_off: AtomicU64,
    /// Workspaces that were acknowledged and are not being deleted, with their initial content.
    made: Mutex<Vec<(WorkspaceId, String)>>,
    /// Snapshots that were acknowledged.
    saved: Mutex<Vec<String>>,
}

impl Shore {
    /// Creates the workspace that all clients write to, with the first version of every file.
    pub async fn new(dir: &Path, socket: PathBuf, runtime: &str) -> Arc<Shore> {
        let source = dir.join("first");
        for (name, files) in KINDS.map(|name| (name, files_of(name))) {
            std::fs::create_dir_all(source.join(name)).unwrap();
            for number in 0..files {
                std::fs::write(source.join(name).join(number.to_string()), "0\n").unwrap();
            }
        }
        std::fs::create_dir_all(dir.join("push/push")).unwrap();
        let client = Client::new(motu_api::client::SocketAt(socket.clone()));
        let made = client.create_workspace(asked("chaos", runtime, 64)).await;
        let id = made.unwrap().workspace_id;
        let push = SyncPush {
            source_path: source.display().to_string(),
            dest: None,
            gitignore: false,
        };
        client.push_workspace_sync(&id, push).await.unwrap();
        Arc::new(Shore {
            socket: Mutex::new(socket),
            dir: dir.to_path_buf(),
            id,
            runtime: runtime.to_string(),
            over: AtomicBool::new(false),
            calm: RwLock::new(()),
            versions: Default::default(),
            acknowledged: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            made: Mutex::default(),
            saved: Mutex::default(),
        })
    }

    /// Starts the clients: five write, two create and delete workspaces, one takes snapshots.
    pub fn unleash(self: &Arc<Self>, dice: &mut Dice) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for kind in 0..KINDS.len() {
            clients.spawn(self.clone().write_on(kind, dice.below(u64::MAX)));
        }
        for _ in 0..2 {
            clients.spawn(self.clone().come_and_go(dice.below(1000)));
        }
        clients.spawn(self.clone().save());
        clients
    }

    pub fn client(&self) -> Client {
        Client::new(motu_api::client::SocketAt(
            self.socket.lock().unwrap().clone(),
        ))
    }

    fn count(&self, outcome: &Result<()>) {
        match outcome {
            Ok(()) => self.acknowledged.fetch_add(1, Ordering::SeqCst),
            Err(_) => self.cut_off.fetch_add(1, Ordering::SeqCst),
        };
    }

    /// Writes versions in sequence until the run is over.
    async fn write_on(self: Arc<Self>, kind: usize, seed: u64) {
        let mut dice = Dice::new(seed);
        while !self.over.load(Ordering::SeqCst) {
            let versions = &self.versions[kind];
            let next = versions.tried.fetch_add(1, Ordering::SeqCst) + 1;
            let calm = self.calm.read().await;
            let done = self.write(kind, next).await;
            self.count(&done);
            match done {
                Ok(()) => versions.acknowledged.store(next, Ordering::SeqCst),
                // There is no daemon, or the machine has ended: start it again.
                Err(_) => {
                    let _ = self.client().start_workspace(&self.id).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            drop(calm);
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
                // The file may have any version that was attempted.
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
                    .edit_workspace(id, EditFiles { edits })
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

    /// Creates seeded workspaces and deletes some of them.
    async fn come_and_go(self: Arc<Self>, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut serial = 0;
        while !self.over.load(Ordering::SeqCst) {
            serial += 1;
            let name = format!("guest-{seed}-{serial}");
            let source = self.dir.join(&name);
            std::fs::create_dir_all(&source).unwrap();
            std::fs::write(source.join("seed"), &name).unwrap();
            let mut request = asked(&name, &self.runtime, 32);
            request.seed_path = Some(source.display().to_string());
            let calm = self.calm.read().await;
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
            drop(calm);
            tokio::time::sleep(dice.moment(50)).await;
        }
    }

    /// Takes snapshots and records those that were acknowledged.
    async fn save(self: Arc<Self>) {
        let mut serial = 0;
        while !self.over.load(Ordering::SeqCst) && serial < 100 {
            serial += 1;
            let name = format!("state-{serial}");
            let calm = self.calm.read().await;
            let done = self
                .client()
                .create_snapshot(&self.id, SaveAs::named(&name))
                .await
                .map(drop);
            self.count(&done);
            if done.is_ok() {
                self.saved.lock().unwrap().push(name);
            }
            drop(calm);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The lowest version that must be found now, by kind.
    pub fn least(&self) -> Vec<u64> {
        let all = self.versions.iter();
        all.map(|versions| versions.acknowledged.load(Ordering::SeqCst))
            .collect()
    }

    /// Compares every file with the acknowledged versions; returns the number of losses.
    pub fn judge(
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

    /// Stops the clients and compares everything; returns the number of losses, including those
    /// found before in `lost`.
    pub async fn finish(self: Arc<Self>, mut clients: JoinSet<()>, mut lost: u64) -> u64 {
        self.over.store(true, Ordering::SeqCst);
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
        settle(&self, &self.id).await;
        let client = self.client();
        let mut found = BTreeMap::new();
        for (name, files) in KINDS.map(|name| (name, files_of(name))) {
            for number in 0..files {
                let path = format!("{name}/{number}");
                found.insert(path.clone(), read(&client, &self.id, &path).await);
            }
        }
        let text = |path: &str| found.get(path).cloned().flatten();
        lost += self.judge(&self.least(), text, "the end");
        let listed = client
            .list_snapshots(&self.id, Default::default())
            .await
            .unwrap()
            .snapshots;
        for name in self.saved.lock().unwrap().iter() {
            if !listed.iter().any(|one| one.snapshot_name == *name) {
                println!("snapshot {name} is gone");
                lost += 1;
            }
        }
        let made = std::mem::take(&mut *self.made.lock().unwrap());
        for (id, text) in made {
            settle(&self, &id).await;
            let found = read(&client, &id, "seed").await;
            if found.as_ref() != Some(&text) {
                println!("workspace {id} lost its seed: {found:?}");
                lost += 1;
            }
        }
        println!(
            "{}: {} acknowledged, {} cut off, {lost} lost",
            self.runtime,
            self.acknowledged.load(Ordering::SeqCst),
            self.cut_off.load(Ordering::SeqCst)
        );
        for row in client.list_workspaces(Default::default()).await.unwrap() {
            let _ = client.delete_workspace(&row.workspace_id).await;
        }
        lost
    }
}

/// Waits until the workspace runs again.
pub async fn settle(shore: &Shore, id: &WorkspaceId) {
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
    let bytes = motu_testkit::world::collect(content).await.ok()?;
    String::from_utf8(bytes).ok()
}
