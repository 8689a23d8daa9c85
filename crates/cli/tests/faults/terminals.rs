//! Terminal sessions whose shells, machines, places or watchers misbehave.

use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, TtySize};
use motu_core::sandbox::State;
use motu_core::terminal::*;
use motu_core::workspace::{CreateWorkspace, ResetTo};
use motu_core::{ErrorKind, SandboxId, Size, TerminalId, Workspaces};
use motu_testkit::world::{ENVIRONMENT, World, eventually, refused, soon};
use std::path::PathBuf;
use std::process::Stdio;

/// The longest wait for anything, on a busy machine.
const PATIENCE: f64 = 20.0;

/// A world whose daemon has this configuration under `[terminal]`.
fn configured(terminal: &str) -> Option<World> {
    let mut world = World::bare()?;
    configure(&world, terminal);
    world.start();
    Some(world)
}

fn configure(world: &World, terminal: &str) {
    let text = format!(
        "runtime = \"container\"\n\n[terminal]\nenvironment = \"{ENVIRONMENT}\"\n{terminal}\n"
    );
    std::fs::write(world.home().join("config.toml"), text).unwrap();
}

fn id(name: &str) -> TerminalId {
    TerminalId::parse(name).unwrap()
}

fn patient() -> Wait {
    Wait {
        timeout: Some(PATIENCE),
        ..Wait::default()
    }
}

/// A session with `sh`, the only shell of the environment.
fn sh(name: &str, place: Option<&SandboxId>) -> OpenTerminal {
    OpenTerminal {
        session_id: name.to_string(),
        sandbox_id: place.cloned(),
        command: vec!["sh".to_string()],
        ..OpenTerminal::default()
    }
}

/// Opens a session and waits for its prompt.
async fn open(world: &World, request: OpenTerminal) -> Terminal {
    let session = id(&request.session_id);
    let client = world.client();
    let opened = client.open_terminal(request).await.unwrap();
    assert!(opened.created, "{opened:?}");
    let ready = client.expect_terminal_prompt(&session, patient());
    let ready = ready.await.unwrap();
    assert_eq!(ready.state.status, Status::Ready, "{ready:?}");
    opened.terminal
}

async fn run(world: &World, session: &str, command: &str) -> TerminalAnswer {
    let run = RunInTerminal {
        command: command.to_string(),
        wait: patient(),
        ..RunInTerminal::default()
    };
    let client = world.client();
    client.run_in_terminal(&id(session), run).await.unwrap()
}

/// Checks that the shell works.
async fn works(world: &World, session: &str) {
    let said = run(world, session, "echo works").await;
    assert_eq!(said.output, "works\n", "{said:?}");
}

/// The directory of a session's files.
async fn files(world: &World, session: &str) -> PathBuf {
    let read = ReadTranscript::default();
    let client = world.client();
    let transcript = client.terminal_transcript(&id(session), read).await;
    PathBuf::from(transcript.unwrap().directory)
}

async fn names(world: &World) -> Vec<String> {
    let all = world
        .client()
        .list_terminals(Default::default())
        .await
        .unwrap();
    let mut all: Vec<String> = all.iter().map(|one| one.session_id.to_string()).collect();
    all.sort();
    all
}

async fn are_known(world: &World, expected: &[&str]) {
    eventually("the old sessions are forgotten", async || {
        let known = names(world).await;
        (known == expected, known)
    })
    .await;
}

#[tokio::test]
async fn the_oldest_ended_sessions_are_forgotten() {
    let Some(mut world) = configured("kept = 2") else {
        return;
    };
    let place = world.create().await;
    for name in ["one", "two", "three"] {
        open(&world, sh(name, Some(&place))).await;
        let ended = run(&world, name, "echo from before; exit 3").await;
        assert_eq!(ended.end, End::SessionEnded, "{ended:?}");
    }
    let oldest = files(&world, "one").await;
    assert!(oldest.join("recording.cast").exists());
    open(&world, sh("four", Some(&place))).await;
    are_known(&world, &["four", "three", "two"]).await;
    eventually("its files are gone", async || {
        (!oldest.exists(), oldest.clone())
    })
    .await;
    let client = world.client();
    refused(ErrorKind::NotFound, client.get_terminal(&id("one")).await);
    works(&world, "four").await;
    client.terminate_terminal(&id("four")).await.unwrap();
    are_known(&world, &["four", "three"]).await;
    // The same after the daemon was killed.
    world.restart();
    are_known(&world, &["four", "three"]).await;
    // A forgotten name can be used like a new one.
    open(&world, sh("one", Some(&place))).await;
    let all = ReadTranscript {
        from: Some(0),
        ..ReadTranscript::default()
    };
    let all = world.client().terminal_transcript(&id("one"), all).await;
    assert!(!all.unwrap().text.contains("from before"));
    // A daemon with a lower limit applies it at the start; live sessions are not counted.
    world.kill();
    configure(&world, "kept = 1");
    world.start();
    are_known(&world, &["four", "one"]).await;
    works(&world, "one").await;
}

fn workspace(name: &str) -> CreateWorkspace {
    CreateWorkspace {
        environment: ENVIRONMENT.to_string(),
        workspace_id: Some(SandboxId::parse(name).unwrap()),
        runtime: Some("container".to_string()),
        size: Size::of(256, 64),
        ..CreateWorkspace::default()
    }
}

/// Waits until the session has ended for this reason.
async fn ended(world: &World, session: &str, why: &str) {
    eventually(&format!("an end because of {why:?}"), async || {
        let found = world.client().get_terminal(&id(session)).await.unwrap();
        let so = found.state.status == Status::Eof && found.state.state_reason.contains(why);
        (so && !found.alive, found)
    })
    .await;
}

#[tokio::test]
async fn a_session_ends_with_its_workspace_and_is_opened_again() {
    let Some(world) = configured("") else {
        return;
    };
    let client = world.client();
    let made = client.create_workspace(workspace("ws-a")).await.unwrap();
    let place = made.workspace_id;
    open(&world, sh("one", Some(&place))).await;
    works(&world, "one").await;
    client.stop_workspace(&place).await.unwrap();
    ended(&world, "one", "stopped").await;
    // It reopens in the same place; a stopped workspace is started.
    let again = open(&world, sh("one", None)).await;
    assert_eq!(again.sandbox_id, place);
    let found = client.status_workspace(&place).await.unwrap();
    assert_eq!(found.state, State::Running);
    works(&world, "one").await;
    client
        .reset_workspace(&place, ResetTo::snapshot("baseline"))
        .await
        .unwrap();
    ended(&world, "one", "reset").await;
    let again = open(&world, sh("one", Some(&place))).await;
    assert_eq!(again.sandbox_id, place);
    works(&world, "one").await;
    client.delete_workspace(&place).await.unwrap();
    ended(&world, "one", "destroyed").await;
    refused(
        ErrorKind::NotFound,
        client.open_terminal(sh("one", Some(&place))).await,
    );
    // Its place is gone, so it opens in the default place.
    let again = open(&world, sh("one", None)).await;
    assert_eq!(again.sandbox_id.as_str(), DEFAULT_PLACE);
    works(&world, "one").await;
}

#[tokio::test]
async fn the_default_place_is_made_once_and_kept() {
    let Some(mut world) = configured("") else {
        return;
    };
    let (one, two) = tokio::join!(open(&world, sh("one", None)), open(&world, sh("two", None)));
    for terminal in [one, two] {
        assert_eq!(terminal.sandbox_id.as_str(), DEFAULT_PLACE);
    }
    let places = world
        .client()
        .list_workspaces(Default::default())
        .await
        .unwrap();
    assert_eq!(places.len(), 1, "{places:?}");
    run(&world, "one", "echo kept > /workspace/note").await;
    world.restart();
    works(&world, "two").await;
    open(&world, sh("three", None)).await;
    let said = run(&world, "three", "cat /workspace/note").await;
    assert_eq!(said.output, "kept\n", "{said:?}");
    let places = world
        .client()
        .list_workspaces(Default::default())
        .await
        .unwrap();
    assert_eq!(places.len(), 1, "{places:?}");
}

#[tokio::test]
async fn the_host_is_only_for_those_whose_owner_says_so() {
    let Some(mut world) = configured("") else {
        return;
    };
    let on_host = || OpenTerminal {
        session_id: "one".to_string(),
        host: true,
        ..OpenTerminal::default()
    };
    let denied = world.client().open_terminal(on_host()).await;
    let denied = refused(ErrorKind::Denied, denied);
    let hint = denied.hint.unwrap();
    assert!(hint.contains("host = true"), "{hint}");
    assert_eq!(names(&world).await, Vec::<String>::new());
    world.kill();
    configure(&world, "host = true");
    world.start();
    let terminal = open(&world, on_host()).await;
    assert_eq!(terminal.runtime, "host");
    assert_eq!(terminal.isolation, motu_core::Isolation::None);
    // A file of the host is visible in the session.
    let note = world.path().join("note");
    std::fs::write(&note, "of the host\n").unwrap();
    let said = run(&world, "one", &format!("cat {}", note.display())).await;
    assert_eq!(
        (said.output.as_str(), said.exit_code),
        ("of the host\n", Some(0)),
        "{said:?}"
    );
    world.client().terminate_terminal(&id("one")).await.unwrap();
}

/// The soft and the hard limit in a line about open files.
fn soft_and_hard(limits: &str) -> (u64, u64) {
    let line = limits.lines().find(|line| line.starts_with("Max open"));
    let mut numbers = line.unwrap().split_whitespace().skip(3);
    let mut next = || numbers.next().unwrap().parse().unwrap();
    (next(), next())
}

#[tokio::test]
async fn the_daemon_may_open_many_files_and_hands_that_to_nobody() {
    let Some(mut world) = World::bare() else {
        return;
    };
    configure(&world, "host = true");
    let mut few = motu_needs::command("sh");
    few.args(["-c", "ulimit -S -n 300; exec \"$0\" serve"])
        .arg(motu_testkit::program())
        .env("MOTU_HOME", world.home())
        .current_dir(world.path())
        .stdin(Stdio::null());
    world.start_by(few);
    let limits = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let (soft, hard) = soft_and_hard(&limits(world.daemon_pid()));
    assert_eq!(soft, hard);
    assert!(hard > 300, "{hard}");
    let place = world.create().await;
    let inside = world.sh(&place, "cat /proc/self/limits").await;
    // The requested number, or the most that root may set on this host.
    let asked = motu_core::limits::NOFILE.default.min(hard);
    assert_eq!(soft_and_hard(&inside.stdout), (asked, asked));
    let on_host = OpenTerminal {
        session_id: "one".to_string(),
        host: true,
        ..OpenTerminal::default()
    };
    open(&world, on_host).await;
    let said = run(&world, "one", "ulimit -S -n").await;
    assert_eq!(said.output, "300\n", "{said:?}");
}

#[tokio::test]
async fn where_there_is_no_bash_the_shells_that_are_there_are_named() {
    let Some(world) = World::new() else {
        return;
    };
    let place = world.create().await;
    let plain = OpenTerminal {
        command: Vec::new(),
        ..sh("one", Some(&place))
    };
    let error = refused(
        ErrorKind::Invalid,
        world.client().open_terminal(plain).await,
    );
    assert!(error.message.contains("no bash"), "{error:?}");
    let hint = error.hint.unwrap();
    assert!(hint.contains("`command` [\""), "{hint}");
    let shells = error.details["shells"].clone();
    let shells: Vec<String> = serde_json::from_value(shells).unwrap();
    assert!(shells.contains(&"sh".to_string()), "{shells:?}");
    assert_eq!(names(&world).await, Vec::<String>::new());
    for shell in shells {
        let named = OpenTerminal {
            command: vec![shell.clone()],
            ..sh(&shell, Some(&place))
        };
        open(&world, named).await;
        works(&world, &shell).await;
    }
}

// The watcher's connection is closed by a thread that does not wait for the daemon's exit.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watcher_who_does_not_read_holds_nothing_up() {
    let Some(world) = World::new() else {
        return;
    };
    let place = world.create().await;
    open(&world, sh("one", Some(&place))).await;
    let watching = world
        .client()
        .attach_terminal(&id("one"), None.into())
        .await;
    let mut watching = watching.unwrap();
    // More than the buffers to a client that does not read can hold.
    let said = run(&world, "one", "seq 1 300000; echo a''ll").await;
    assert!(said.output.ends_with("300000\nall\n"), "{:?}", said.end);
    let mut gap = None;
    let mut screen = Vec::new();
    while !String::from_utf8_lossy(&screen).contains("299999") || gap.is_none() {
        match soon("output", watching.events.next()).await {
            Some(Ok(ExecEvent::Stdout(bytes))) if gap.is_some() => screen.extend_from_slice(&bytes),
            Some(Ok(ExecEvent::Gap(lost))) => gap = Some(lost),
            Some(Ok(ExecEvent::Stdout(_) | ExecEvent::Started(_))) => {}
            other => panic!("{other:?} after {gap:?}"),
        }
    }
    let gap = gap.unwrap();
    assert!(gap.from < gap.to, "{gap:?}");
    // The current screen, not the output that led to it.
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert!(
        screen.contains("all") && !screen.contains("299000"),
        "{screen}"
    );
    // A watcher that has caught up receives new output.
    works(&world, "one").await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\nworks") {
        match soon("output", watching.events.next()).await {
            Some(Ok(ExecEvent::Stdout(bytes))) => seen.extend_from_slice(&bytes),
            other => panic!("{other:?} after {}", String::from_utf8_lossy(&seen)),
        }
    }
    // It receives the end as well.
    world.client().terminate_terminal(&id("one")).await.unwrap();
    let mut last = None;
    while let Some(event) = soon("the end", watching.events.next()).await {
        last = Some(event.unwrap());
    }
    assert!(matches!(last, Some(ExecEvent::Exited(_))), "{last:?}");
}

/// Anonymous memory of the daemon in KiB, without its program file.
fn anonymous(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    words[1].parse().unwrap()
}

#[tokio::test]
async fn the_memory_of_a_burst_is_given_back() {
    const ENOUGH: u64 = 40 << 10;
    let Some(world) = configured("") else {
        return;
    };
    let place = world.create().await;
    let names: Vec<String> = (0..30).map(|n| format!("burst-{n}")).collect();
    for name in &names {
        let wide = OpenTerminal {
            size: Some(TtySize {
                cols: 200,
                rows: 50,
            }),
            ..sh(name, Some(&place))
        };
        open(&world, wide).await;
        // More rows than the scrollback holds.
        run(&world, name, "seq 1 20000").await;
    }
    let busy = anonymous(world.daemon_pid());
    assert!(busy > ENOUGH, "{busy} KiB are no burst");
    for name in &names {
        world.client().terminate_terminal(&id(name)).await.unwrap();
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    loop {
        let left = anonymous(world.daemon_pid());
        if left < ENOUGH {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{left} KiB of {busy} KiB are still kept"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
