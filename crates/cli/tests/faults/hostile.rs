//! Hostile programs inside, in sandboxes whose limits were verified first.

use futures_util::StreamExt;
use motu_core::exec::ExecRequest;
use motu_core::files::{GuestPath, ReadFile, ReadRange};
use motu_core::sandbox::CreateSandbox;
use motu_core::{Program, SandboxId, Service, Size};
use motu_testkit::world::{World, eventually, shell, small};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PIDS_MAX: u64 = 64;
const MEM_MIB: u64 = 64;
const DISK_MIB: u64 = 64;

/// A fork bomb: every copy starts more while it can; the program itself only waits.
const BOMB: &str = "b() { while :; do b & sleep 0.05; done; }; b & exec sleep 100";

fn tight() -> CreateSandbox {
    CreateSandbox {
        size: Size::of(MEM_MIB, DISK_MIB),
        pids_max: Some(PIDS_MAX),
        ..small()
    }
}

fn for_seconds(seconds: u64, script: &str) -> ExecRequest {
    ExecRequest::from(Program {
        timeout_seconds: Some(seconds),
        ..shell(script).program
    })
}

/// The sandbox runs only the processes that it ran before.
async fn assert_quiet(world: &World, id: &SandboxId, before: &BTreeSet<i32>) {
    eventually("only the guest is left", async || {
        let now = world.traces.processes(id.as_str());
        (now == *before, now)
    })
    .await;
}

async fn assert_removed(world: &World, id: &SandboxId) {
    world.client().destroy_sandbox(id).await.unwrap();
    let found = world.traces.found();
    assert!(!found.cgroups.contains(id.as_str()), "{found:?}");
    assert!(!found.directories.contains(id.as_str()), "{found:?}");
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_processes() {
    let Some(world) = World::new() else { return };
    let (id, other) = (world.bounded(tight()).await, world.create().await);
    let before = world.traces.processes(id.as_str());
    let bomb = for_seconds(3, BOMB);
    let client = world.client();
    let target = id.clone();
    let exploding = tokio::spawn(async move { client.exec(&target, bomb).await });
    let mut most = 0;
    while !exploding.is_finished() {
        most = most.max(world.traces.task_count(id.as_str()));
        // A neighbour is not affected.
        let begin = Instant::now();
        world.assert_works(&other).await;
        assert!(
            begin.elapsed() < Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(most <= PIDS_MAX, "{most} processes");
    assert!(most > PIDS_MAX / 2, "only {most} processes: no bomb");
    let ended = exploding.await.unwrap().unwrap();
    assert!(ended.timed_out, "{ended:?}");
    assert_quiet(&world, &id, &before).await;
    world.assert_works(&id).await;
    assert_removed(&world, &id).await;
}

#[tokio::test]
async fn files_are_served_while_no_process_can_be_made() {
    let Some(world) = World::new() else { return };
    let roomy = CreateSandbox {
        environment: "debian:12".to_string(),
        size: Size::of(256, DISK_MIB),
        ..tight()
    };
    let id = world.bounded(roomy).await;
    let client = world.client();
    world.sh(&id, "echo found > /tmp/file").await;
    // Threads that did some work have ended, so that the reads below need new ones.
    let guest = *world.traces.processes(id.as_str()).first().unwrap();
    eventually("the guest has no thread too many", async || {
        let threads = std::fs::read_dir(format!("/proc/{guest}/task"))
            .unwrap()
            .count();
        (threads <= 3, threads)
    })
    .await;
    // Goes on when it finds no room, which a shell does not.
    let fill = r#"perl -e 'while (1) { my $made = fork; sleep 1000 if defined $made && !$made }'"#;
    client.exec_background(&id, shell(fill)).await.unwrap();
    eventually("every process is taken", async || {
        let made = world.traces.task_count(id.as_str());
        (made == PIDS_MAX, made)
    })
    .await;
    for _ in 0..3 {
        let reads = (0..8).map(|_| client.read_file(&id, read("/tmp/file")));
        for found in futures_util::future::join_all(reads).await {
            let (_, content) = found.unwrap();
            let pieces: Vec<_> = content.collect().await;
            let text: Vec<u8> = pieces
                .into_iter()
                .flat_map(|piece| piece.unwrap())
                .collect();
            assert_eq!(text, b"found\n");
        }
    }
    assert_removed(&world, &id).await;
}

fn read(path: &str) -> ReadFile {
    let path = GuestPath::new(path.to_string()).unwrap();
    ReadFile::new(path, ReadRange::default())
}

#[tokio::test]
async fn a_fork_bomb_in_the_background_ends_with_its_sandbox() {
    let Some(world) = World::new() else { return };
    let id = world.bounded(tight()).await;
    let bomb = shell(BOMB);
    world.client().exec_background(&id, bomb).await.unwrap();
    eventually("the sandbox is full", async || {
        let now = world.traces.processes(id.as_str()).len() as u64;
        (now > PIDS_MAX / 2, now)
    })
    .await;
    assert_removed(&world, &id).await;
}

#[tokio::test]
async fn a_memory_hog_is_killed_and_nobody_else() {
    let Some(world) = World::new() else { return };
    let (id, other) = (world.bounded(tight()).await, world.create().await);
    let said = world
        .sh(&id, "exec dd if=/dev/zero of=/dev/null bs=512M count=1")
        .await;
    assert!(said.out_of_memory && said.signal == Some(9), "{said:?}");
    assert_eq!(said.exit_code, 137, "{said:?}");
    world.assert_works(&other).await;
    // Its own guest and its next command are not affected either.
    world.assert_works(&id).await;
    let told = world.motu(&[
        "run",
        "busybox",
        "--mem-mib",
        "64",
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=512M",
        "count=1",
    ]);
    assert_eq!(told.code, 137, "{told:?}");
    assert!(told.stderr.contains("memory"), "{told:?}");
    assert_removed(&world, &id).await;
}

/// Used bytes of the file system of the state directory.
fn used(world: &World) -> u64 {
    let stat = rustix::fs::statvfs(world.home()).unwrap();
    (stat.f_blocks - stat.f_bfree) * stat.f_frsize
}

#[tokio::test]
async fn a_disk_filler_meets_the_end_of_its_own_disk() {
    let Some(world) = World::new() else { return };
    let (id, other) = (world.bounded(tight()).await, world.create().await);
    let filling = for_seconds(
        25,
        "dd if=/dev/zero of=/work.bin bs=1M; sync; du -k /work.bin",
    );
    let said = world.client().exec(&id, filling).await.unwrap();
    assert!(said.stderr.contains("No space left on device"), "{said:?}");
    let kib: u64 = said
        .stdout
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        (DISK_MIB / 2..=DISK_MIB).contains(&(kib / 1024)),
        "{kib} KiB"
    );
    // Writes through the API report a limit as well.
    let error = world
        .write(&id, "/more", &vec![1; 4 << 20])
        .await
        .unwrap_err();
    assert_eq!(error.kind, motu_core::ErrorKind::Limit, "{error:?}");
    let metrics = world.client().metrics(&id).await.unwrap();
    assert!(metrics.disk_total_bytes <= DISK_MIB << 20, "{metrics:?}");
    world.assert_works(&id).await;
    world.assert_works(&other).await;
    world
        .write(&other, "/fine", &vec![1; 4 << 20])
        .await
        .unwrap();

    let full = used(&world);
    assert_removed(&world, &id).await;
    eventually("the space is free again", async || {
        let now = used(&world);
        // Others write to this disk as well, so half of the expected space is enough.
        (now + (DISK_MIB << 19) < full, (now, full))
    })
    .await;
}

/// A process that resists termination: it ignores every signal it can, forks twice and leaves its
/// session.
const STUBBORN: &str = "trap '' TERM INT HUP QUIT;
    for n in 1 2 3; do setsid sh -c 'trap \"\" TERM INT HUP QUIT;
        (setsid sh -c \"trap \\\"\\\" TERM INT HUP; while :; do sleep 1; done\" &) ; while :; do sleep 1; done' & done;
    echo grown; while :; do sleep 1; done";

#[tokio::test]
async fn a_timeout_reaches_everything_a_stubborn_program_started() {
    let Some(world) = World::new() else { return };
    let id = world.bounded(tight()).await;
    let before = world.traces.processes(id.as_str());
    let client = world.client();
    let target = id.clone();
    let running = tokio::spawn(async move { client.exec(&target, for_seconds(2, STUBBORN)).await });
    eventually("it has grown", async || {
        let now = world.traces.processes(id.as_str()).len();
        (now > before.len() + 6, now)
    })
    .await;
    let said = running.await.unwrap().unwrap();
    assert!(said.timed_out, "{said:?}");
    assert_eq!(said.stdout, "grown\n");
    assert_quiet(&world, &id, &before).await;
    world.assert_works(&id).await;
}

#[tokio::test]
async fn a_destroy_reaches_everything_a_stubborn_program_started() {
    let Some(world) = World::new() else { return };
    let id = world.bounded(tight()).await;
    let before = world.traces.processes(id.as_str()).len();
    world
        .client()
        .exec_background(&id, shell(STUBBORN))
        .await
        .unwrap();
    eventually("it has grown", async || {
        let now = world.traces.processes(id.as_str()).len();
        (now > before + 6, now)
    })
    .await;
    let all = world.traces.processes(id.as_str());
    assert_removed(&world, &id).await;
    for pid in all {
        assert_eq!(motu_testkit::traces::started(pid), None, "process {pid}");
    }
}

#[tokio::test]
async fn what_outlives_its_command_ends_with_the_one_shot() {
    let Some(world) = World::new() else { return };
    let script = "(setsid sleep 1000 >/dev/null 2>&1 &); echo gone; exit 4";
    let told = world.motu(&["run", "busybox", "--", "sh", "-c", script]);
    assert_eq!((told.code, told.stdout.as_str()), (4, "gone\n"), "{told:?}");
    eventually("nothing of it is left", async || {
        let found = world.traces.found();
        (
            found.cgroups.is_empty() && found.directories.is_empty(),
            found,
        )
    })
    .await;
}
