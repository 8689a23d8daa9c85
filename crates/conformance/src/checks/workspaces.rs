//! Workspaces, where a runtime keeps disks.

use crate::bench::Bench;
use crate::life::{Life, eventually, hear, refused, soon};
use motu_core::exec::{ExecMode, ExecResult};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Result};
use std::time::Duration;

fn request(life: &Life) -> CreateWorkspace {
    let sandbox = life.request();
    CreateWorkspace {
        environment: sandbox.environment,
        runtime: sandbox.runtime,
        allow_host_compat: sandbox.allow_host_compat,
        accel: sandbox.accel,
        mem_mib: sandbox.mem_mib,
        disk_mib: sandbox.disk_mib,
        ..CreateWorkspace::default()
    }
}

/// A workspace, or nothing on a runtime that keeps no disks and must say so.
async fn create(life: &Life) -> Option<Workspace> {
    create_with(life, request(life)).await
}

async fn create_with(life: &Life, request: CreateWorkspace) -> Option<Workspace> {
    let made = life.engine.create_workspace(request).await;
    if life.runtime.capabilities().keep {
        return Some(made.expect("a workspace is created"));
    }
    refused(ErrorKind::Unsupported, made);
    None
}

fn script(text: &str) -> WorkspaceExec {
    WorkspaceExec {
        command: vec![text.to_string()],
        mode: ExecMode::Shell,
        ..WorkspaceExec::default()
    }
}

async fn run(life: &Life, workspace: &Workspace, text: &str) -> ExecResult {
    let ran = life
        .engine
        .exec_workspace(&workspace.workspace_id, script(text));
    let result = ran.await.expect("a command runs");
    assert_eq!(result.exit_code, 0, "{text}: {result:?}");
    result
}

async fn write(life: &Life, workspace: &Workspace, path: &str, text: &str) {
    let write = WriteText {
        path: path.to_string(),
        text: text.to_string(),
    };
    let id = &workspace.workspace_id;
    let written = life.engine.write_workspace_file(id, write).await;
    assert_eq!(written.expect("written").bytes_written, text.len() as u64);
}

async fn read(life: &Life, workspace: &Workspace, path: &str) -> Result<String> {
    let id = &workspace.workspace_id;
    let file = life.engine.read_workspace_file(id, path, None).await?;
    Ok(file.content)
}

pub async fn commands_are_remembered(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    assert_eq!(workspace.state, State::Running);
    assert_eq!(workspace.command_count, 0);
    let result = run(&life, &workspace, "pwd; echo out; echo err >&2").await;
    assert!(result.stdout.ends_with("out\n"), "{result:?}");
    let failed = life
        .engine
        .exec_workspace(id, script("echo no; exit 3"))
        .await;
    assert_eq!(failed.expect("a result").exit_code, 3);
    let log = life.engine.logs_workspace(id).await.expect("a history");
    assert_eq!(log.count, 2);
    let statuses: Vec<_> = log.entries.iter().map(|entry| entry.exit_code).collect();
    assert_eq!(statuses, [Some(0), Some(3)]);
    assert!(log.entries[0].stdout.ends_with("out\n"));
    assert_eq!(log.entries[0].stderr, "err\n");
    assert_eq!(log.entries[1].sequence, 2);
    let now = life.engine.status_workspace(id).await.expect("a status");
    assert_eq!(now.command_count, 2);
}

pub async fn files_are_listed_read_and_written(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "src/deep/a.txt", "first\n").await;
    write(&life, &workspace, "/workspace/src/b.txt", "second\n").await;
    assert_eq!(
        read(&life, &workspace, "src/deep/a.txt")
            .await
            .expect("read"),
        "first\n"
    );
    let list = engine
        .list_workspace_files(id, "src", true)
        .await
        .expect("a list");
    let paths: Vec<_> = list
        .entries
        .iter()
        .map(|entry| {
            entry
                .path
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .collect();
    assert_eq!(list.entries.len(), 3, "{paths:?}");
    let shallow = engine.list_workspace_files(id, "/workspace", false).await;
    assert_eq!(shallow.expect("a list").entries.len(), 1);
    let cut = engine
        .read_workspace_file(id, "src/b.txt", Some(3))
        .await
        .expect("read");
    assert_eq!((cut.content.as_str(), cut.truncated), ("sec", true));
    for bad in ["/etc/passwd", "../x", "a/../../b", ""] {
        refused(
            ErrorKind::Invalid,
            engine.read_workspace_file(id, bad, None).await,
        );
        let write = WriteText {
            path: bad.to_string(),
            text: String::new(),
        };
        refused(
            ErrorKind::Invalid,
            engine.write_workspace_file(id, write).await,
        );
    }
    refused(
        ErrorKind::NotFound,
        engine.read_workspace_file(id, "none", None).await,
    );
}

pub async fn a_patch_is_all_or_nothing(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "a.txt", "one\ntwo\nthree\n").await;
    write(&life, &workspace, "old.txt", "goes\n").await;
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\
                 --- /dev/null\n+++ b/new/file.txt\n@@ -0,0 +1 @@\n+hello\n\
                 --- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-goes\n";
    let report = engine
        .apply_workspace_patch(id, patch)
        .await
        .expect("applied");
    assert_eq!((report.added, report.modified, report.deleted), (1, 1, 1));
    assert_eq!(
        read(&life, &workspace, "a.txt").await.expect("read"),
        "one\n2\nthree\n"
    );
    assert_eq!(
        read(&life, &workspace, "new/file.txt").await.expect("read"),
        "hello\n"
    );
    refused(
        ErrorKind::NotFound,
        read(&life, &workspace, "old.txt").await,
    );
    // The second file does not match: the first is not changed either.
    let bad = "--- a/new/file.txt\n+++ b/new/file.txt\n@@ -1 +1 @@\n-hello\n+bye\n\
               --- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n";
    let error = refused(
        ErrorKind::Conflict,
        engine.apply_workspace_patch(id, bad).await,
    );
    assert!(error.message.contains("a.txt"), "{error}");
    assert_eq!(
        read(&life, &workspace, "new/file.txt").await.expect("read"),
        "hello\n"
    );
    let edit = |old: &str| Edit {
        path: "a.txt".to_string(),
        old: old.to_string(),
        new: "drei".to_string(),
        count: None,
    };
    engine
        .edit_workspace(id, vec![edit("three")])
        .await
        .expect("edited");
    assert_eq!(
        read(&life, &workspace, "a.txt").await.expect("read"),
        "one\n2\ndrei\n"
    );
    refused(
        ErrorKind::Conflict,
        engine.edit_workspace(id, vec![edit("three")]).await,
    );
}

pub async fn a_diff_names_every_kind_of_change(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let clean = engine
        .diff_workspace(id, DiffOptions::default())
        .await
        .expect("a diff");
    assert!(!clean.changed, "{clean:?}");
    write(&life, &workspace, "text.txt", "new text\n").await;
    run(
        &life,
        &workspace,
        "printf 'a\\000b' > binary; mkdir -p sub; ln -s text.txt link",
    )
    .await;
    let diff = engine
        .diff_workspace(id, DiffOptions::default())
        .await
        .expect("a diff");
    assert_eq!(diff.added, 4, "{diff:?}");
    assert!(diff.patch.contains("+new text"), "{}", diff.patch);
    let binary = diff.entries.iter().find(|entry| entry.path == "binary");
    assert!(binary.is_some_and(|entry| entry.binary), "{diff:?}");
    let none = DiffOptions { max_bytes: Some(0) };
    let cut = engine.diff_workspace(id, none).await.expect("a diff");
    assert!(cut.truncated && cut.patch.is_empty());
    assert_eq!(cut.added, 4);
}

pub async fn a_reset_brings_a_snapshot_back(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "kept.txt", "version one\n").await;
    write(&life, &workspace, "gone.txt", "will be removed\n").await;
    let saved = engine.create_snapshot(id, "first").await.expect("saved");
    assert_eq!(saved.snapshot_name, "first");
    refused(
        ErrorKind::Conflict,
        engine.create_snapshot(id, "first").await,
    );
    refused(
        ErrorKind::Invalid,
        engine.create_snapshot(id, "baseline").await,
    );
    refused(
        ErrorKind::Invalid,
        engine.create_snapshot(id, "no/slash").await,
    );
    write(&life, &workspace, "kept.txt", "version two\n").await;
    write(&life, &workspace, "later.txt", "new\n").await;
    run(&life, &workspace, "rm gone.txt").await;
    engine.create_snapshot(id, "second").await.expect("saved");
    let between = engine
        .diff_snapshots(id, "first", "second", DiffOptions::default())
        .await;
    let between = between.expect("a diff");
    assert_eq!(
        (between.added, between.modified, between.deleted),
        (1, 1, 1),
        "{between:?}"
    );
    refused(
        ErrorKind::NotFound,
        engine.reset_workspace(id, "third").await,
    );
    let reset = engine.reset_workspace(id, "first").await.expect("reset");
    assert_eq!(
        (reset.reset_count, reset.command_count, reset.state),
        (1, 0, State::Running)
    );
    assert!(reset.last_reset_at.is_some());
    assert_eq!(
        read(&life, &workspace, "kept.txt").await.expect("read"),
        "version one\n"
    );
    assert_eq!(
        read(&life, &workspace, "gone.txt").await.expect("read"),
        "will be removed\n"
    );
    refused(
        ErrorKind::NotFound,
        read(&life, &workspace, "later.txt").await,
    );
    let reset = engine.reset_workspace(id, "baseline").await.expect("reset");
    assert_eq!(reset.reset_count, 2);
    refused(
        ErrorKind::NotFound,
        read(&life, &workspace, "kept.txt").await,
    );
    assert!(
        !engine
            .diff_workspace(id, DiffOptions::default())
            .await
            .expect("a diff")
            .changed
    );
    engine.reset_workspace(id, "second").await.expect("reset");
    assert_eq!(
        read(&life, &workspace, "later.txt").await.expect("read"),
        "new\n"
    );
    engine.delete_snapshot(id, "first").await.expect("deleted");
    refused(
        ErrorKind::NotFound,
        engine.delete_snapshot(id, "first").await,
    );
    refused(
        ErrorKind::Invalid,
        engine.delete_snapshot(id, "baseline").await,
    );
    let list = engine.list_snapshots(id).await.expect("a list").snapshots;
    let names: Vec<_> = list.iter().map(|one| one.snapshot_name.as_str()).collect();
    assert_eq!(names, ["baseline", "second"]);
}

pub async fn a_stopped_workspace_keeps_what_it_has(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "file", "kept\n").await;
    run(&life, &workspace, "true").await;
    engine.create_snapshot(id, "before").await.expect("saved");
    let stopped = engine.stop_workspace(id).await.expect("stopped");
    assert_eq!(stopped.state, State::Stopped);
    refused(
        ErrorKind::Conflict,
        engine.exec_workspace(id, script("true")).await,
    );
    assert_eq!(engine.logs_workspace(id).await.expect("a history").count, 1);
    engine.start_workspace(id).await.expect("started");
    assert_eq!(
        read(&life, &workspace, "file").await.expect("read"),
        "kept\n"
    );
    let diff = engine
        .diff_workspace(id, DiffOptions::default())
        .await
        .expect("a diff");
    assert_eq!(diff.added, 1, "{diff:?}");
    assert_eq!(
        engine
            .list_snapshots(id)
            .await
            .expect("a list")
            .snapshots
            .len(),
        2
    );
}

pub async fn what_is_known_of_a_workspace_can_be_changed(life: Life) {
    let asked = CreateWorkspace {
        name: Some("first name".to_string()),
        labels: [("team".to_string(), "red".to_string())].into(),
        ..request(&life)
    };
    let Some(workspace) = create_with(&life, asked).await else {
        return;
    };
    let id = &workspace.workspace_id;
    assert_eq!(workspace.name.as_deref(), Some("first name"));
    let update = UpdateWorkspace {
        name: Some("second".to_string()),
        labels: [("task".to_string(), "x".to_string())].into(),
        clear_labels: vec!["team".to_string()],
        ..UpdateWorkspace::default()
    };
    let updated = life
        .engine
        .update_workspace(id, update)
        .await
        .expect("updated");
    assert_eq!(updated.name.as_deref(), Some("second"));
    assert_eq!(updated.labels.keys().collect::<Vec<_>>(), ["task"]);
    let other = create(&life).await.expect("a second one");
    run(&life, &workspace, "true").await;
    let list = life.engine.list_workspaces().await.expect("a list");
    let order: Vec<_> = list.iter().map(|one| &one.workspace_id).collect();
    assert_eq!(
        order,
        [id, &other.workspace_id],
        "the most recently active first"
    );
}

pub async fn a_service_is_ready_when_its_probe_says_so(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let service = |name: &str, text: &str, readiness| StartService {
        service_name: name.to_string(),
        command: vec![text.to_string()],
        mode: ExecMode::Shell,
        readiness,
        ready_timeout_seconds: Some(15),
        ..StartService::default()
    };
    let file = Some(Readiness::File {
        path: "ready".to_string(),
    });
    let script = "echo begun; sleep 0.3; echo yes > ready; echo listening; sleep 600";
    let started = engine.start_service(id, service("web", script, file)).await;
    let started = started.expect("ready");
    assert_eq!(started.state, ServiceState::Running);
    assert!(started.ready_at.is_some());
    refused(
        ErrorKind::Conflict,
        engine.start_service(id, service("web", "true", None)).await,
    );
    eventually("its output is there", || async {
        let logs = engine.logs_service(id, "web", LogOptions::default()).await;
        logs.expect("logs").stdout == "begun\nlistening\n"
    })
    .await;
    let log = Some(Readiness::Log {
        pattern: "up on [0-9]+".to_string(),
    });
    let started = engine.start_service(
        id,
        service("logged", "sleep 0.2; echo up on 80; sleep 600", log),
    );
    assert_eq!(started.await.expect("ready").state, ServiceState::Running);
    let command = Some(Readiness::Command {
        command: "test -e ready".to_string(),
    });
    engine
        .start_service(id, service("asked", "sleep 600", command))
        .await
        .expect("ready");
    let never = StartService {
        ready_timeout_seconds: Some(1),
        ..service("never", "sleep 600", Some(Readiness::Tcp { port: 9 }))
    };
    refused(ErrorKind::Timeout, engine.start_service(id, never).await);
    let failed = engine.status_service(id, "never").await.expect("a status");
    assert_eq!(failed.state, ServiceState::Failed);
    let ended = service("ended", "echo oh; exit 7", Some(Readiness::Tcp { port: 9 }));
    refused(
        ErrorKind::Unavailable,
        engine.start_service(id, ended).await,
    );
    let ended = engine.status_service(id, "ended").await.expect("a status");
    assert_eq!(
        (ended.state, ended.exit_code),
        (ServiceState::Failed, Some(7))
    );
    let status = engine.status_workspace(id).await.expect("a status");
    assert_eq!((status.service_count, status.running_service_count), (5, 3));
    let stopped = engine.stop_service(id, "web").await.expect("stopped");
    assert_eq!(stopped.state, ServiceState::Stopped);
    let logs = engine.logs_service(id, "web", LogOptions::default()).await;
    assert_eq!(logs.expect("logs").stdout, "begun\nlistening\n");
    refused(
        ErrorKind::NotFound,
        engine.status_service(id, "nobody").await,
    );
}

pub async fn a_failed_service_is_started_again_when_asked_to(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let service = StartService {
        service_name: "worker".to_string(),
        command: vec!["echo x >> starts; exit 1".to_string()],
        mode: ExecMode::Shell,
        restart: Restart::OnFailure,
        ..StartService::default()
    };
    life.engine
        .start_service(id, service)
        .await
        .expect("started");
    eventually("it is started again", || async {
        let status = life.engine.status_service(id, "worker").await;
        status.expect("a status").restart_count >= 2
    })
    .await;
    let stopped = life
        .engine
        .stop_service(id, "worker")
        .await
        .expect("stopped");
    assert_eq!(stopped.state, ServiceState::Stopped);
}

pub async fn ports_are_published_only_by_policy(life: Life) {
    let open = CreateWorkspace {
        network_policy: NetworkPolicy::EgressPublishedPorts,
        ..request(&life)
    };
    if !life.runtime.capabilities().keep || !life.runtime.capabilities().uses_environment {
        return;
    }
    let engine = &life.engine;
    let closed = create(&life).await.expect("a workspace");
    let serve = |host_port| StartService {
        service_name: "web".to_string(),
        command: vec!["while true; do echo hello | nc -l -p 8000; done".to_string()],
        mode: ExecMode::Shell,
        readiness: Some(Readiness::Tcp { port: 8000 }),
        published_ports: vec![Publish {
            guest_port: 8000,
            host_port,
        }],
        ..StartService::default()
    };
    let denied = engine
        .start_service(&closed.workspace_id, serve(None))
        .await;
    refused(ErrorKind::Denied, denied);
    let workspace = create_with(&life, open).await.expect("a workspace");
    let id = &workspace.workspace_id;
    refused(
        ErrorKind::Invalid,
        engine.start_service(id, serve(Some(80))).await,
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken_port = taken.local_addr().expect("an address").port();
    refused(
        ErrorKind::Conflict,
        engine.start_service(id, serve(Some(taken_port))).await,
    );
    assert!(engine.list_services(id).await.expect("a list").is_empty());
    let started = engine.start_service(id, serve(None)).await.expect("ready");
    let port = started.published_ports[0].host_port;
    let answer = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        // Between two callers nc is not there for a moment.
        for _ in 0..100 {
            let mut text = String::new();
            let dialled = std::net::TcpStream::connect(("127.0.0.1", port));
            if let Ok(mut stream) = dialled
                && stream
                    .set_read_timeout(Some(Duration::from_secs(5)))
                    .is_ok()
                && stream.read_to_string(&mut text).is_ok()
                && !text.is_empty()
            {
                return text;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        String::new()
    });
    assert_eq!(answer.await.expect("no panic"), "hello\n");
    engine.stop_service(id, "web").await.expect("stopped");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

pub async fn a_shell_is_there_for_the_next_call(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let shell = engine
        .open_shell(id, OpenShell::default())
        .await
        .expect("opened");
    let name = &shell.shell_id;
    let type_in = |text: &str| WriteShell {
        input: text.to_string(),
        append_newline: None,
    };
    engine
        .write_shell(id, name, type_in("x=4$((1+1)); echo value-$x"))
        .await
        .expect("typed");
    eventually("it answers", || async {
        let output = engine.read_shell(id, name, ReadShell::default()).await;
        output.expect("output").output.contains("value-42")
    })
    .await;
    let all = engine
        .read_shell(id, name, ReadShell::default())
        .await
        .expect("output");
    engine
        .write_shell(id, name, type_in("echo again-$x"))
        .await
        .expect("typed");
    let more = ReadShell {
        cursor: all.next_cursor,
        plain: true,
        wait_for_idle_ms: Some(500),
        ..ReadShell::default()
    };
    let next = engine.read_shell(id, name, more).await.expect("output");
    assert!(next.output.contains("again-42"), "{next:?}");
    assert!(
        !next.output.contains("value-42") && !next.output.contains('\u{1b}'),
        "{next:?}"
    );
    engine
        .write_shell(id, name, type_in("sleep 600"))
        .await
        .expect("typed");
    eventually("it is back", || async {
        // As a person does: again, if the first one came too early.
        let signalled = engine.signal_shell(id, name, "INT").await;
        signalled.expect("signalled");
        let typed = engine.write_shell(id, name, type_in("echo back-$x")).await;
        typed.expect("typed");
        let output = engine.read_shell(id, name, ReadShell::default()).await;
        output.expect("output").output.contains("back-42")
    })
    .await;
    let beyond = ReadShell {
        cursor: 1 << 40,
        ..ReadShell::default()
    };
    refused(
        ErrorKind::Invalid,
        engine.read_shell(id, name, beyond).await,
    );
    let closed = engine.close_shell(id, name).await.expect("closed");
    assert_eq!(closed.state, "closed");
    refused(
        ErrorKind::NotFound,
        engine.read_shell(id, name, ReadShell::default()).await,
    );
}

pub async fn deleting_ends_what_runs(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = workspace.workspace_id.clone();
    let session = life
        .engine
        .exec_workspace_stream(&id, script("echo on; sleep 600"))
        .await;
    let mut session = session.expect("started");
    crate::life::hear_until(&mut session, "on\n").await;
    let deleted = life.engine.delete_workspace(&id).await.expect("deleted");
    assert_eq!(deleted.state, State::Destroyed);
    let ended = soon("the command's end", async {
        use futures_util::StreamExt as _;
        while let Some(event) = session.events.next().await {
            if let Err(error) = event {
                return Some(error);
            }
        }
        None
    });
    let error = ended.await.expect("a typed error");
    assert!(
        matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict),
        "{error:?}"
    );
    refused(ErrorKind::NotFound, life.engine.status_workspace(&id).await);
    assert!(
        life.engine
            .list_workspaces()
            .await
            .expect("a list")
            .is_empty()
    );
    assert!(!life.machine_dir(&id).exists());
    assert!(!life.kept_dir(&id).exists());
}

pub async fn one_change_of_the_whole_at_a_time(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let (first, second) = tokio::join!(
        engine.reset_workspace(id, "baseline"),
        engine.reset_workspace(id, "baseline")
    );
    let (won, lost) = match first {
        Ok(workspace) => (workspace, second),
        Err(error) => (second.expect("one of them is done"), Err(error)),
    };
    assert_eq!(won.reset_count, 1);
    refused(ErrorKind::Conflict, lost);
    run(&life, &workspace, "true").await;
}

pub async fn a_fork_has_the_files_and_a_life_of_its_own(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "file", "shared\n").await;
    let fork = ForkWorkspace {
        count: Some(2),
        name: Some("copy".to_string()),
    };
    let copies = engine.fork_workspace(id, fork).await.expect("copies");
    assert_eq!(copies.len(), 2);
    assert_eq!(copies[1].name.as_deref(), Some("copy-2"));
    for copy in &copies {
        assert_eq!(read(&life, copy, "file").await.expect("read"), "shared\n");
    }
    write(&life, &copies[0], "file", "own\n").await;
    assert_eq!(
        read(&life, &workspace, "file").await.expect("read"),
        "shared\n"
    );
    assert_eq!(
        read(&life, &copies[1], "file").await.expect("read"),
        "shared\n"
    );
    engine.delete_workspace(id).await.expect("deleted");
    // The baseline they share is still there.
    engine
        .reset_workspace(&copies[1].workspace_id, "baseline")
        .await
        .expect("reset");
}

pub fn a_new_daemon_finds_workspaces_and_what_runs_in_them(bench: &Bench) {
    let id = bench.life(|life| async move {
        let workspace = create(&life).await?;
        let id = workspace.workspace_id.clone();
        write(&life, &workspace, "file", "kept\n").await;
        life.engine
            .create_snapshot(&id, "saved")
            .await
            .expect("saved");
        let service = StartService {
            service_name: "web".to_string(),
            command: vec!["echo up; sleep 600".to_string()],
            mode: ExecMode::Shell,
            ..StartService::default()
        };
        life.engine
            .start_service(&id, service)
            .await
            .expect("started");
        let shell = life.engine.open_shell(&id, OpenShell::default()).await;
        shell.expect("opened");
        Some(id)
    });
    let Some(id) = id else { return };
    bench.life(|life| async move {
        let found = life.engine.status_workspace(&id).await.expect("found");
        assert_eq!(found.state, State::Running);
        assert_eq!(
            (
                found.running_service_count,
                found.shell_count,
                found.snapshot_count
            ),
            (1, 1, 1)
        );
        assert_eq!(read(&life, &found, "file").await.expect("read"), "kept\n");
        let logs = life
            .engine
            .logs_service(&id, "web", LogOptions::default())
            .await;
        assert_eq!(logs.expect("logs").stdout, "up\n");
        let stopped = life.engine.stop_service(&id, "web").await.expect("stopped");
        assert_eq!(stopped.state, ServiceState::Stopped);
        life.engine
            .reset_workspace(&id, "saved")
            .await
            .expect("reset");
        assert_eq!(read(&life, &found, "file").await.expect("read"), "kept\n");
        let session = life
            .engine
            .exec_workspace_stream(&id, script("echo live"))
            .await;
        assert_eq!(hear(session.expect("started")).await.out, b"live\n");
        life.engine.delete_workspace(&id).await.expect("deleted");
    });
}

pub async fn a_seed_is_the_baseline_and_comes_back_out(life: Life) {
    let host = tempfile::tempdir().expect("a directory");
    let source = host.path().join("project");
    std::fs::create_dir_all(source.join("src")).expect("made");
    std::fs::write(source.join("src/main.txt"), "seeded\n").expect("written");
    std::fs::write(source.join("big"), vec![0u8; 3 << 20]).expect("written");
    std::os::unix::fs::symlink("src/main.txt", source.join("link")).expect("linked");
    let asked = CreateWorkspace {
        seed_path: Some(source.display().to_string()),
        ..request(&life)
    };
    let Some(workspace) = create_with(&life, asked).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let seed = &workspace.workspace_seed;
    assert_eq!(
        (seed.mode.as_str(), seed.entry_count),
        ("directory", 4),
        "{seed:?}"
    );
    let clean = engine.diff_workspace(id, DiffOptions::default()).await;
    assert!(!clean.expect("a diff").changed);
    run(
        &life,
        &workspace,
        "test -w src && echo more >> src/main.txt && rm big",
    )
    .await;
    let diff = engine.diff_workspace(id, DiffOptions::default()).await;
    let diff = diff.expect("a diff");
    assert_eq!(
        (diff.modified, diff.deleted, diff.added),
        (1, 1, 0),
        "{diff:?}"
    );
    assert!(diff.patch.contains("+more"), "{}", diff.patch);
    // The source is a source, not a mount.
    assert_eq!(
        std::fs::read_to_string(source.join("src/main.txt")).expect("read"),
        "seeded\n"
    );
    let out = host.path().join("out");
    let text = out.display().to_string();
    let exported = engine
        .export_workspace(id, "/workspace", &text)
        .await
        .expect("exported");
    assert_eq!(exported.entry_count, 3, "{exported:?}");
    let read = std::fs::read_to_string(out.join("src/main.txt")).expect("read");
    assert_eq!(read, "seeded\nmore\n");
    assert!(out.join("link").is_symlink());
    refused(
        ErrorKind::Conflict,
        engine.export_workspace(id, "src", &text).await,
    );
    let file = host.path().join("one.txt").display().to_string();
    engine
        .export_workspace(id, "src/main.txt", &file)
        .await
        .expect("exported");
    assert_eq!(
        std::fs::read_to_string(&file).expect("read"),
        "seeded\nmore\n"
    );
    refused(
        ErrorKind::Invalid,
        engine.export_workspace(id, "link", &file).await,
    );
    refused(
        ErrorKind::Invalid,
        engine.export_workspace(id, "src", "relative").await,
    );
    engine.reset_workspace(id, "baseline").await.expect("reset");
    assert_eq!(
        read_text(&life, &workspace, "src/main.txt").await,
        "seeded\n"
    );
    let missing = CreateWorkspace {
        seed_path: Some("/nowhere/at/all".to_string()),
        ..request(&life)
    };
    refused(ErrorKind::NotFound, engine.create_workspace(missing).await);
    assert_eq!(engine.list_workspaces().await.expect("a list").len(), 1);
}

async fn read_text(life: &Life, workspace: &Workspace, path: &str) -> String {
    read(life, workspace, path).await.expect("read")
}

pub async fn a_push_sends_only_what_changed(life: Life) {
    let host = tempfile::tempdir().expect("a directory");
    let source = host.path().join("project");
    std::fs::create_dir_all(source.join("src")).expect("made");
    for name in ["src/a", "src/b", "top", "skip.log"] {
        std::fs::write(source.join(name), name).expect("written");
    }
    std::fs::write(source.join(".gitignore"), "*.log\n").expect("written");
    let asked = CreateWorkspace {
        seed_path: Some(source.display().to_string()),
        ..request(&life)
    };
    let Some(workspace) = create_with(&life, asked).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    let push = |dest: Option<&str>, gitignore| SyncPush {
        source_path: source.display().to_string(),
        dest: dest.map(str::to_string),
        gitignore,
    };
    let same = engine.push_workspace_sync(id, push(None, false)).await;
    let same = same.expect("pushed");
    assert_eq!((same.sent_count, same.entry_count), (0, 6), "{same:?}");
    std::fs::write(source.join("src/a"), "changed on the host").expect("written");
    std::fs::create_dir(source.join("new")).expect("made");
    std::fs::write(source.join("new/c"), "c").expect("written");
    run(&life, &workspace, "echo mine > top; echo own > other").await;
    let changed = engine.push_workspace_sync(id, push(None, false)).await;
    let changed = changed.expect("pushed");
    assert_eq!(changed.unchanged_count, 4, "{changed:?}");
    assert_eq!(
        read_text(&life, &workspace, "src/a").await,
        "changed on the host"
    );
    assert_eq!(read_text(&life, &workspace, "top").await, "top");
    assert_eq!(read_text(&life, &workspace, "other").await, "own\n");
    let beside = engine
        .push_workspace_sync(id, push(Some("deep/copy"), true))
        .await;
    let beside = beside.expect("pushed");
    assert_eq!(beside.destination, "/workspace/deep/copy");
    assert_eq!(read_text(&life, &workspace, "deep/copy/new/c").await, "c");
    refused(
        ErrorKind::NotFound,
        read(&life, &workspace, "deep/copy/skip.log").await,
    );
    for outside in ["/etc", "../x"] {
        let pushed = engine
            .push_workspace_sync(id, push(Some(outside), false))
            .await;
        refused(ErrorKind::Invalid, pushed);
    }
    let hostile = host.path().join("hostile.tar");
    let archive = archive_with(&[("fine", "ok"), ("../../escaped", "no")]);
    std::fs::write(&hostile, archive).expect("written");
    let bad = SyncPush {
        source_path: hostile.display().to_string(),
        ..SyncPush::default()
    };
    engine
        .push_workspace_sync(id, bad)
        .await
        .expect_err("it is refused");
    refused(ErrorKind::NotFound, read(&life, &workspace, "fine").await);
    let good = host.path().join("good.tar");
    std::fs::write(&good, archive_with(&[("dir/fine", "ok")])).expect("written");
    let good = SyncPush {
        source_path: good.display().to_string(),
        ..SyncPush::default()
    };
    let sent = engine.push_workspace_sync(id, good).await.expect("pushed");
    assert_eq!(sent.mode, "tar_archive");
    assert_eq!(read_text(&life, &workspace, "dir/fine").await, "ok");
}

/// A tar archive, names unchecked.
fn archive_with(files: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, text) in files {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..116].copy_from_slice(b"0000000\0");
        header[116..124].copy_from_slice(b"0000000\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", text.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(text.as_bytes());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

const SECRET: &str = "correct-horse-battery-staple-9000";

pub fn secrets_are_used_and_never_shown(bench: &Bench) {
    let id = bench.life(|life| async move {
        let asked = CreateWorkspace {
            secrets: vec![SecretSource {
                name: "TOKEN".to_string(),
                value: Some(SECRET.to_string()),
                path: None,
            }],
            ..request(&life)
        };
        let workspace = create_with(&life, asked).await?;
        assert_eq!(workspace.secrets[0].name, "TOKEN");
        assert_eq!(workspace.secrets[0].source_kind, "literal");
        uses_its_secret(&life, &workspace).await;
        Some(workspace.workspace_id)
    });
    let Some(id) = id else { return };
    nowhere_in_clear(bench.home());
    bench.life(|life| async move {
        let workspace = life.engine.status_workspace(&id).await.expect("found");
        uses_its_secret(&life, &workspace).await;
    });
}

async fn uses_its_secret(life: &Life, workspace: &Workspace) {
    let id = &workspace.workspace_id;
    let without = run(life, workspace, "echo [$TOKEN]").await;
    assert_eq!(without.stdout, "[]\n");
    let with = WorkspaceExec {
        secret_env: vec!["TOKEN=API_KEY".parse().expect("a mapping")],
        ..script("echo [$API_KEY]; printf %s \"$API_KEY\" | wc -c; echo $API_KEY >&2")
    };
    let result = life
        .engine
        .exec_workspace(id, with)
        .await
        .expect("a result");
    assert!(!format!("{result:?}").contains(SECRET), "{result:?}");
    assert!(
        result.stdout.contains(&SECRET.len().to_string()),
        "{result:?}"
    );
    let log = life.engine.logs_workspace(id).await.expect("a history");
    assert!(!format!("{log:?}").contains(SECRET));
    let unknown = WorkspaceExec {
        secret_env: vec!["NOBODY".parse().expect("a mapping")],
        ..script("true")
    };
    refused(
        ErrorKind::NotFound,
        life.engine.exec_workspace(id, unknown).await,
    );
}

/// Looks at every file of the state directory that is small enough to be one of ours.
fn nowhere_in_clear(home: &std::path::Path) {
    let mut rest = vec![home.to_path_buf()];
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                rest.push(entry.path());
            } else if kind.is_file() && entry.metadata().is_ok_and(|meta| meta.len() < 64 << 20) {
                let content = std::fs::read(entry.path()).unwrap_or_default();
                let found = content
                    .windows(SECRET.len())
                    .any(|bytes| bytes == SECRET.as_bytes());
                assert!(!found, "{} holds a secret in clear", entry.path().display());
            }
        }
    }
}

pub async fn a_stopped_disk_is_read_without_a_machine(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "src/file.txt", "on the disk\n").await;
    if workspace.host_compat {
        engine.stop_workspace(id).await.expect("stopped");
        let listed = engine.list_workspace_disk(id, "/workspace", true).await;
        refused(ErrorKind::Unsupported, listed);
        return;
    }
    refused(
        ErrorKind::Conflict,
        engine.list_workspace_disk(id, "/workspace", true).await,
    );
    let marked = ["/etc/mark", "/root/mark"];
    run(
        &life,
        &workspace,
        "echo root > /etc/mark; mkdir -p /root; echo r > /root/mark; rm -f /bin/wget",
    )
    .await;
    engine.stop_workspace(id).await.expect("stopped");
    let list = engine.list_workspace_disk(id, "/workspace", true).await;
    let paths: Vec<_> = list
        .expect("a list")
        .entries
        .into_iter()
        .map(|one| one.path)
        .collect();
    assert_eq!(paths, ["/workspace/src", "/workspace/src/file.txt"]);
    let read = |path: &'static str| async move { engine.read_workspace_disk(id, path, None).await };
    assert_eq!(
        read("src/file.txt").await.expect("read").content,
        "on the disk\n"
    );
    assert_eq!(read("/etc/mark").await.expect("read").content, "root\n");
    for path in marked {
        read(path).await.expect("read");
    }
    refused(ErrorKind::NotFound, read("/bin/wget").await);
    let passwd = read("/etc/passwd").await.expect("what the environment has");
    assert!(passwd.content.contains("root"));
    refused(ErrorKind::Invalid, read("/workspace/src").await);
    let host = tempfile::tempdir().expect("a directory");
    let output = host.path().join("disk.ext4").display().to_string();
    let exported = engine
        .export_workspace_disk(id, &output)
        .await
        .expect("exported");
    assert_eq!(exported.disk_format, "ext4");
    let shown = std::process::Command::new("debugfs")
        .args(["-R", "cat /workspace/src/file.txt", &output])
        .output()
        .expect("debugfs runs");
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "on the disk\n");
    refused(
        ErrorKind::Conflict,
        engine.export_workspace_disk(id, &output).await,
    );
    engine.start_workspace(id).await.expect("started");
    assert_eq!(
        read_text(&life, &workspace, "src/file.txt").await,
        "on the disk\n"
    );
}
