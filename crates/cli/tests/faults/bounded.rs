//! Every wait is bounded: guests, machines and daemons are stopped with SIGSTOP, and programs are
//! told to end.

use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, ExecRequest};
use motu_core::files::{ListFiles, ListOptions, RemoveFile};
use motu_core::sandbox::{CreateSandbox, State};
use motu_core::{Error, ErrorKind, Program, SandboxId, Service};
use motu_testkit::world::{World, at, eventually, shell, small, soon};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Longer than every timeout that is tested here.
const BOUNDED: Duration = Duration::from_secs(60);

/// Processes that are stopped (SIGSTOP) while this value exists.
struct Still(BTreeSet<i32>);

impl Still {
    fn new(pids: BTreeSet<i32>) -> Still {
        assert!(!pids.is_empty(), "there is nobody to stop");
        let still = Still(pids);
        still.send(Signal::STOP);
        still
    }

    fn send(&self, signal: Signal) {
        for pid in &self.0 {
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), signal);
        }
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.send(Signal::CONT);
    }
}

/// A world with this guest silence timeout.
fn impatient(seconds: u64) -> Option<World> {
    let mut world = World::bare()?;
    let config = format!("runtime = \"container\"\nguest_silence_seconds = {seconds}\n");
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    world.start();
    Some(world)
}

fn for_seconds(seconds: u64, script: &str) -> ExecRequest {
    ExecRequest::from(Program {
        timeout_seconds: Some(seconds),
        ..shell(script).program
    })
}

fn says_who(error: &Error, id: &SandboxId) {
    assert!(
        matches!(error.kind, ErrorKind::Timeout | ErrorKind::Unavailable),
        "{error:?}"
    );
    assert!(error.message.contains(id.as_str()), "{error:?}");
}

/// Every kind of call to a stopped machine is answered.
async fn assert_answered(world: &World, id: &SandboxId) {
    let client = world.client();
    let (exec, read, list, hash, processes, metrics, ports, write, remove) =
        tokio::time::timeout(BOUNDED, async {
            tokio::join!(
                client.exec(id, for_seconds(2, "true")),
                world.read(id, "/etc/passwd"),
                client.list_files(id, ListFiles::new(at("/"), ListOptions::default())),
                client.hash(id, (at("/etc/passwd")).into()),
                client.list_processes(id),
                client.metrics(id),
                client.list_ports(id),
                world.write(id, "/tmp/x", b"x"),
                client.remove_file(
                    id,
                    RemoveFile {
                        path: at("/tmp/none"),
                        recursive: false,
                        user: None,
                    }
                ),
            )
        })
        .await
        .expect("everything is answered");
    says_who(&exec.unwrap_err(), id);
    says_who(&read.unwrap_err(), id);
    says_who(&list.unwrap_err(), id);
    says_who(&hash.unwrap_err(), id);
    says_who(&processes.unwrap_err(), id);
    says_who(&metrics.unwrap_err(), id);
    says_who(&ports.unwrap_err(), id);
    says_who(&write.unwrap_err(), id);
    says_who(&remove.unwrap_err(), id);
}

#[tokio::test]
async fn a_stopped_guest_is_answered_for() {
    let Some(world) = impatient(4) else { return };
    let id = world.create().await;
    world.assert_works(&id).await;
    let still = Still::new(BTreeSet::from([world.traces.first_process(id.as_str())]));
    assert_answered(&world, &id).await;
    drop(still);
    eventually("it works again", async || {
        let said = world.client().exec(&id, shell("echo again")).await;
        (said.is_ok(), said)
    })
    .await;
}

#[tokio::test]
async fn a_stopped_sandbox_process_of_gvisor_is_answered_for() {
    let Some(world) = impatient(8) else { return };
    let request = CreateSandbox {
        runtime: Some("gvisor".to_string()),
        ..small()
    };
    let id = match world.client().create_sandbox(request).await {
        Ok(sandbox) => sandbox.sandbox_id,
        Err(error) => return motu_needs::skip(&format!("no gVisor here: {error}")),
    };
    world.assert_works(&id).await;
    let record = world.home().join("machines/gvisor").join(id.as_str());
    let record = std::fs::read(record.join("machine.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let pid = record["process"]["pid"].as_i64().unwrap() as i32;
    let still = Still::new(BTreeSet::from([pid]));
    assert_answered(&world, &id).await;
    drop(still);
}

#[tokio::test]
async fn a_paused_machine_keeps_its_calls() {
    let Some(world) = impatient(4) else { return };
    let id = world.create().await;
    let client = world.client();
    let running = tokio::spawn({
        let (client, id) = (client.clone(), id.clone());
        async move {
            client
                .exec(&id, for_seconds(60, "sleep 8; echo done"))
                .await
        }
    });
    eventually("it runs", async || {
        let found = client.list_processes(&id).await.unwrap();
        (!found.is_empty(), found)
    })
    .await;
    client.pause_sandbox(&id).await.unwrap();
    // Longer than the guest silence timeout.
    tokio::time::sleep(Duration::from_secs(6)).await;
    client.resume_sandbox(&id).await.unwrap();
    let said = soon("the end", running).await.unwrap().unwrap();
    assert_eq!(said.stdout, "done\n", "{said:?}");
}

#[tokio::test]
async fn a_stopped_daemon_is_not_waited_for() {
    let Some(world) = World::new() else { return };
    let still = Still::new(BTreeSet::from([world.daemon_pid() as i32]));
    let told = tokio::task::spawn_blocking({
        let command = world.command(&["ps", "--json"]);
        move || motu_testkit::story::Told::of(command)
    });
    let told = tokio::time::timeout(BOUNDED, told)
        .await
        .expect("it is answered")
        .unwrap();
    assert_eq!(told.code, 107, "{told:?}");
    assert_eq!(told.error().kind, ErrorKind::Unavailable, "{told:?}");
    assert!(told.stderr.contains("daemon does not answer"), "{told:?}");
    drop(still);
    let told = world.motu(&["ps", "--json"]);
    assert!(told.stdout.contains("\"count\": 0"), "{told:?}");
}

#[tokio::test]
async fn calls_right_after_a_kill_reach_the_next_daemon() {
    let Some(world) = World::bare() else { return };
    let told = world.motu(&["create", "busybox", "--id", "stays"]);
    assert_eq!(told.code, 0, "{told:?}");
    for _ in 0..8 {
        let daemon = world.client().version().await.unwrap().pid;
        kill_process(Pid::from_raw(daemon as i32).unwrap(), Signal::KILL).unwrap();
        // Without waiting for its exit: its socket still exists for a moment.
        let calls: Vec<Child> = (0..4)
            .flat_map(|_| {
                let exec = ["exec", "stays", "--", "echo", "here"];
                let mut all = [world.command(&["ps", "--json"]), world.command(&exec)];
                all.each_mut().map(|command| {
                    command.stdout(Stdio::piped()).stderr(Stdio::piped());
                    command.spawn().unwrap()
                })
            })
            .collect();
        for call in calls {
            let output = call.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
}

/// Sends SIGTERM until the program has ended.
fn ends_when_told(mut program: Child) -> i32 {
    let deadline = Instant::now() + BOUNDED;
    loop {
        if let Some(status) = program.try_wait().unwrap() {
            use std::os::unix::process::ExitStatusExt;
            return status.code().unwrap_or(128 + status.signal().unwrap_or(0));
        }
        if Instant::now() > deadline {
            let _ = program.kill();
            panic!("it does not end on SIGTERM");
        }
        let _ = kill_process(Pid::from_child(&program), Signal::TERM);
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[tokio::test]
async fn sigterm_ends_a_command_whose_program_ignores_it() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let words = [
        "exec",
        "--timeout-seconds",
        "300",
        id.as_str(),
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut command = world.command(&words);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert_eq!(ends_when_told(program), 143);
    eventually("the program went with it", async || {
        let found = world.client().list_processes(&id).await.unwrap();
        (found.iter().all(|process| process.exited.is_some()), found)
    })
    .await;
}

#[tokio::test]
async fn sigterm_ends_a_command_while_the_daemon_is_stopped() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let still = Still::new(BTreeSet::from([world.daemon_pid() as i32]));
    let words = ["exec", id.as_str(), "--", "sleep", "300"];
    let program = world.command(&words).spawn().unwrap();
    assert_eq!(ends_when_told(program), 143);
    drop(still);
}

#[tokio::test]
async fn a_command_cannot_evade_its_time_limit() {
    let Some(world) = World::new() else { return };
    for script in [
        "kill -9 $PPID; while :; do sleep 1; done",
        "kill -STOP $PPID; sleep 300",
        "kill -9 $PPID; setsid sh -c 'sleep 300 & sleep 300' & sleep 300",
        // A daemon as usual: two forks, two sessions, no parent.
        "(setsid sh -c '(setsid sleep 300 &) & exit' &); sleep 300",
        // One that then kills the shim that watches its process tree.
        "shim=$PPID; (setsid sh -c \"sleep 0.5; kill -9 $shim; (setsid sleep 300 &); sleep 300\" &); sleep 300",
        // One that starts new daemons all the time, also while the others are being killed.
        "kill -9 $PPID; while :; do (setsid sh -c '(setsid sleep 20 &)' &); sleep 0.02; done",
    ] {
        let id = world.create().await;
        let client = world.client();
        let said = client.exec(&id, for_seconds(2, script));
        let said = tokio::time::timeout(BOUNDED, said).await;
        let said = said.expect("it is answered").unwrap();
        assert!(said.timed_out, "{script}: {said:?}");
        let guest = world.traces.first_process(id.as_str());
        eventually("nothing of it is left", async || {
            let left = world.traces.processes(id.as_str());
            (left == BTreeSet::from([guest]), left)
        })
        .await;
        world.assert_works(&id).await;
    }
}

#[tokio::test]
async fn a_guest_that_does_not_end_a_command_loses_its_machine() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let request = for_seconds(1, "sleep 300");
    let mut session = world.client().exec_stream(&id, request).await.unwrap();
    let started = soon("its start", session.events.next()).await;
    assert!(matches!(started, Some(Ok(ExecEvent::Started(_)))));
    let still = Still::new(BTreeSet::from([world.traces.first_process(id.as_str())]));
    let ended = tokio::time::timeout(BOUNDED, session.events.next()).await;
    let error = ended.expect("it is answered").unwrap().unwrap_err();
    says_who(&error, &id);
    assert_eq!(error.kind, ErrorKind::Timeout, "{error:?}");
    eventually("its machine is ended", async || {
        let found = world.client().get_sandbox(&id).await.unwrap();
        let why = found.reason.clone().unwrap_or_default();
        let ended = found.state == State::Failed && why.contains("time limit");
        (
            ended && world.traces.processes(id.as_str()).is_empty(),
            found,
        )
    })
    .await;
    drop(still);
}

/// The pid of the emulator of this sandbox.
fn emulator(id: &SandboxId) -> BTreeSet<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter_map(|process| {
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let mut words = line.split(|byte| *byte == 0);
        let ours = words.any(|word| word == id.as_str().as_bytes());
        let ours = name.starts_with("qemu-system") && ours;
        ours.then(|| process.file_name().to_str()?.parse().ok())?
    });
    found.collect()
}

#[tokio::test]
async fn a_stopped_emulator_is_answered_for() {
    let Some(world) = impatient(15) else { return };
    let id = SandboxId::parse(&format!("still-{}", std::process::id())).unwrap();
    let request = CreateSandbox {
        sandbox_id: Some(id.clone()),
        runtime: Some("qemu".to_string()),
        accel: motu_needs::accelerator().parse().unwrap(),
        pids_max: None,
        ..small()
    };
    if let Err(error) = world.client().create_sandbox(request).await {
        return motu_needs::skip(&format!("no virtual machines here: {error}"));
    }
    world.assert_works(&id).await;
    let still = Still::new(emulator(&id));
    assert_answered(&world, &id).await;
    drop(still);
}
