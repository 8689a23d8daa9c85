//! All faults at once: clients write ([`crate::shore`]) while daemons, machines, disks and hosts
//! fail. Nothing acknowledged may be lost.
//!
//! Without `MOTU_CHAOS_SECONDS` each run is short and deterministic. `MOTU_CHAOS_SEED` selects
//! the sequence of faults, and `MOTU_CHAOS_RUNTIME` limits the run to one runtime. `tools/chaos`
//! sets them.

use crate::durable::{Cut, cut};
use crate::full::Small;
use crate::shore::{Shore, settle};
use motu_core::sandbox::State;
use motu_core::workspace::WorkspaceId;
use motu_core::{Service, Workspaces};
use motu_testkit::world::{Dice, World};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const SECONDS: u64 = 5;
const SEED: u64 = 0x0063_6861_6f73;
/// A disk that fills up: its size, and the space that must stay free.
const SMALL_MIB: u64 = 700;
const SMALL: &str = "runtime = \"container\"\nmin_free_disk_mib = 160";
/// How often the disk is filled at most until the machine was paused once.
const FILLS: u32 = 12;
/// How long the daemon may take to notice a full disk.
const NOTICED: Duration = Duration::from_secs(10);

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

/// Whether this run is selected by `MOTU_CHAOS_RUNTIME`.
fn wanted(storm: &str) -> bool {
    std::env::var("MOTU_CHAOS_RUNTIME").is_ok_and(|name| name == storm || name == "all")
        || std::env::var_os("MOTU_CHAOS_RUNTIME").is_none()
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    /// The daemon is killed and started again.
    Daemon,
    /// The machine that all clients write to is killed.
    Machine,
    /// The image is copied while the machine is paused, and read as after a power cut.
    PowerCut,
    /// The daemon is killed and the write-ahead log of its store damaged.
    Log,
    /// The daemon is killed, its store damaged, and rebuilt by the recover command.
    Store,
    /// Everything is stopped, and the state directory is moved.
    Move,
}

/// How a runtime's machines look on the host.
struct Runtime {
    name: &'static str,
    /// The path of `/workspace` in the disk image; `None` if the disk is not a plain image.
    upper: Option<&'static str>,
    blows: &'static [Blow],
}

const CONTAINER: Runtime = Runtime {
    name: "container",
    upper: Some("workspace/upper"),
    blows: &[
        Blow::Daemon,
        Blow::Machine,
        Blow::PowerCut,
        Blow::Log,
        Blow::Store,
        Blow::Move,
    ],
};
const GVISOR: Runtime = Runtime {
    name: "gvisor",
    upper: Some("workspace-upper"),
    blows: CONTAINER.blows,
};
const QEMU: Runtime = Runtime {
    name: "qemu",
    upper: None,
    blows: &[
        Blow::Daemon,
        Blow::Machine,
        Blow::Log,
        Blow::Store,
        Blow::Move,
    ],
};

/// Kills the first process of a machine.
fn kill_machine(home: &Path, runtime: &str, id: &WorkspaceId) {
    let record = home.join("machines").join(runtime).join(id.as_str());
    let record = std::fs::read(record.join("machine.json")).unwrap_or_default();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
    let pid = record["process"]["pid"].as_i64().unwrap_or(0) as i32;
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn damage(file: &Path, how: u64) {
    let length = file.metadata().map_or(0, |found| found.len());
    match how {
        0 => drop(std::fs::remove_file(file)),
        1 => {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8 | 1).collect();
            std::fs::write(file, bytes).unwrap();
        }
        _ => drop(std::fs::write(file, "")),
    }
}

/// A chaos run on one runtime.
struct Storm<'a> {
    world: World,
    shore: &'a Shore,
    dice: Dice,
    runtime: &'static Runtime,
    blows: BTreeMap<Blow, u32>,
    moves: u32,
}

impl Storm<'_> {
    /// Injects faults until the time is over; returns how many losses power cuts would have caused.
    async fn rage(&mut self) -> u64 {
        let end = Instant::now() + Duration::from_secs(number("MOTU_CHAOS_SECONDS", SECONDS));
        let mut lost = 0;
        let all = self.runtime.blows;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(150) + self.dice.moment(400)).await;
            let blow = all[self.dice.below(all.len() as u64) as usize];
            *self.blows.entry(blow).or_default() += 1;
            lost += self.strike(blow).await;
        }
        println!("{}: {:?}", self.runtime.name, self.blows);
        lost
    }

    async fn strike(&mut self, blow: Blow) -> u64 {
        let how = self.dice.below(3);
        match blow {
            Blow::Daemon => self.world.restart(),
            Blow::Machine => kill_machine(self.world.home(), self.runtime.name, &self.shore.id),
            Blow::PowerCut => return self.cut_power().await,
            Blow::Log => {
                self.world.kill();
                damage(&self.world.home().join("motu.db-wal"), how);
                self.world.start();
            }
            Blow::Store => {
                self.world.kill();
                damage(&self.world.home().join("motu.db"), how);
                for log in ["motu.db-wal", "motu.db-shm"] {
                    let _ = std::fs::remove_file(self.world.home().join(log));
                }
                let told = self.world.motu(&["recover", "--rebuild"]);
                assert_eq!(told.code, 0, "{told:?}");
                self.world.start();
            }
            Blow::Move => self.move_home().await,
        }
        0
    }

    /// Pauses the machine briefly, so that the copy is consistent.
    async fn cut_power(&mut self) -> u64 {
        let (shore, upper) = (self.shore, self.runtime.upper.unwrap());
        if shore.client().pause_sandbox(&shore.id).await.is_err() {
            return 0;
        }
        let least = shore.least();
        let copy = self.world.path().join("chaos.img");
        let image = self.world.home().join("kept/chaos/disks-1/disk.img");
        cut(&image, &copy);
        settle(shore, &shore.id).await;
        let mut found = Cut::open(&copy, upper);
        shore.judge(&least, |path| found.text(path), "a power cut")
    }

    /// Clients wait meanwhile: nothing may run in a state directory that is moved.
    async fn move_home(&mut self) {
        let _calm = self.shore.calm.write().await;
        let client = self.shore.client();
        for row in client.list_workspaces(Default::default()).await.unwrap() {
            if row.state == State::Paused {
                let _ = client.resume_sandbox(&row.workspace_id).await;
            }
            let _ = client.stop_workspace(&row.workspace_id).await;
        }
        self.world.stop();
        self.moves += 1;
        let place = self.world.path().join(format!("moved-{}", self.moves));
        std::fs::rename(self.world.home(), &place).unwrap();
        self.world.live_at(&place);
        self.world.start();
        *self.shore.socket.lock().unwrap() = self.world.socket();
    }
}

async fn storm(runtime: &'static Runtime) {
    if !wanted(runtime.name) {
        return;
    }
    let Some(world) = World::new() else {
        return;
    };
    if !crate::durable::works(&world, runtime.name) {
        return;
    }
    let seed = number("MOTU_CHAOS_SEED", SEED);
    let mut dice = Dice::new(seed);
    println!("{}: seed {seed}", runtime.name);
    let shore = Shore::new(world.path(), world.socket(), runtime.name).await;
    let clients = shore.unleash(&mut dice);
    let mut storm = Storm {
        world,
        shore: &shore,
        dice,
        runtime,
        blows: BTreeMap::new(),
        moves: 0,
    };
    let lost = storm.rage().await;
    storm.world.restart();
    assert_eq!(shore.clone().finish(clients, lost).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost() {
    storm(&CONTAINER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost_with_gvisor() {
    storm(&GVISOR).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost_with_qemu() {
    // Only on request: under emulation machines take half a minute for anything.
    if std::env::var_os("MOTU_CHAOS_SECONDS").is_some() {
        storm(&QEMU).await;
    }
}

/// The host's disk fills up and is freed again while machines are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost_on_a_disk_that_fills_up() {
    if !wanted("disk") {
        return;
    }
    let Some(disk) = Small::ext4(SMALL_MIB, SMALL) else {
        return;
    };
    let seed = number("MOTU_CHAOS_SEED", SEED);
    let mut dice = Dice::new(seed);
    let shore = Shore::new(disk.path(), disk.socket(), "container").await;
    let clients = shore.unleash(&mut dice);
    let end = Instant::now() + Duration::from_secs(number("MOTU_CHAOS_SECONDS", SECONDS));
    let (mut fills, mut paused, mut kills) = (0, 0, 0);
    // On a busy host a machine that was just killed takes long to come back, and only one that runs is paused.
    while Instant::now() < end || (paused == 0 && fills < FILLS) {
        tokio::time::sleep(Duration::from_millis(150) + dice.moment(400)).await;
        if fills > 0 && dice.below(2) == 0 && Instant::now() < end {
            kills += 1;
            kill_machine(disk.home(), "container", &shore.id);
            continue;
        }
        fills += 1;
        let mut filling = disk.filling();
        let noticed = Instant::now() + NOTICED;
        while Instant::now() < noticed {
            filling.grow(8 << 20);
            let status = shore.client().status_workspace(&shore.id).await;
            if status.is_ok_and(|found| found.state == State::Paused) {
                paused += 1;
                break;
            }
        }
        filling.end();
    }
    println!("disk: {fills} times full, {paused} times paused, {kills} machines killed");
    assert_eq!(shore.finish(clients, 0).await, 0);
    assert!(
        paused > 0,
        "the disk was full {fills} times, and the machine was never paused"
    );
}
