//! Creation, stop, start, reset, fork and removal of workspaces.

use super::support::*;
use crate::bench::Bench;
use crate::life::{Life, hear, refused, soon};
use motu_core::exec::ExecMode;
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Program, Terminals as _};

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

pub async fn an_undo_goes_back_in_place(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let (id, engine) = (&workspace.workspace_id, &life.engine);
    let saving = |text: &str| WorkspaceExec {
        checkpoint: Some(true),
        ..script(text)
    };
    let ran = |text: &'static str| async move {
        let ran = engine.exec_workspace(id, saving(text)).await;
        assert_eq!(ran.expect("a result").exit_code, 0, "{text}");
    };
    refused(
        ErrorKind::NotFound,
        engine.undo_workspace(id, Undo::default()).await,
    );
    run(
        &life,
        &workspace,
        "mkdir a && echo one > a/f && ln a/f a/g && echo 1 > kept",
    )
    .await;
    let service = StartService {
        service_name: "there".to_string(),
        command: vec!["echo up; exec sleep 600".to_string()],
        mode: ExecMode::Shell,
        ..StartService::default()
    };
    let service = engine.start_service(id, service).await.expect("started");
    ran("echo two > a/f; chmod 600 kept; ln -s a link").await;
    ran("rm -r a; mkdir -p b/c; echo x > b/c/d; echo y > a").await;
    ran("rm kept; mkdir kept; echo z > kept/z").await;
    let undone = engine.undo_workspace(id, Undo::default()).await;
    let undone = undone.expect("undone");
    assert_eq!(undone.checkpoint_count, 2);
    assert_eq!(
        undone.commands[0][0],
        "rm kept; mkdir kept; echo z > kept/z"
    );
    let seen = "cat kept; stat -c %a kept; cat a b/c/d; ls -d kept/z 2>/dev/null || readlink link";
    assert_eq!(
        run(&life, &workspace, seen).await.stdout,
        "1\n600\ny\nx\na\n"
    );
    // Undo two more at once: everything they made is gone.
    let undone = engine.undo_workspace(id, Undo { steps: 2 }).await;
    assert_eq!(undone.expect("undone").checkpoint_count, 0);
    let seen = "cat a/f a/g; stat -c %a kept; ls; [ a/f -ef a/g ] && echo linked";
    assert_eq!(
        run(&life, &workspace, seen).await.stdout,
        "one\none\n644\na\nkept\nlinked\n"
    );
    refused(
        ErrorKind::NotFound,
        engine.undo_workspace(id, Undo::default()).await,
    );
    // The machine and its processes are the same.
    let now = engine.status_workspace(id).await.expect("a status");
    assert_eq!((now.reset_count, now.running_service_count), (0, 1));
    let same = engine.status_service(id, "there").await.expect("a status");
    assert_eq!(same.pid, service.pid);
}

pub async fn checkpoints_are_bounded(life: Life) {
    let most = motu_core::limits::CHECKPOINTS.max;
    let saving = CreateWorkspace {
        checkpoint: true,
        ..request(&life)
    };
    let Some(workspace) = create_with(&life, saving).await else {
        return;
    };
    let (id, engine) = (&workspace.workspace_id, &life.engine);
    // A command through the sandbox verb also counts as one of the workspace.
    let plain = motu_core::exec::ExecRequest::from(Program::shell("echo 0 > n"));
    use motu_core::Service as _;
    engine.exec(id, plain).await.expect("a result");
    for number in 1..=most {
        run(&life, &workspace, &format!("echo {number} > n")).await;
    }
    let now = engine.status_workspace(id).await.expect("a status");
    assert_eq!(now.checkpoint_count, most);
    let log = engine.logs_workspace(id).await.expect("a history");
    assert_eq!(log.entries[0].command, ["echo 0 > n"]);
    assert_eq!(log.entries[0].exit_code, Some(0));
    assert!(log.entries.iter().all(|entry| entry.checkpoint.is_some()));
    let too_far = Undo { steps: most + 1 };
    refused(
        ErrorKind::NotFound,
        engine.undo_workspace(id, too_far).await,
    );
    let all = engine.undo_workspace(id, Undo { steps: most }).await;
    assert_eq!(all.expect("undone").commands.len() as u64, most);
    assert_eq!(read_text(&life, &workspace, "n").await, "0\n");
}

pub async fn a_reset_brings_a_snapshot_back(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let engine = &life.engine;
    write(&life, &workspace, "kept.txt", "version one\n").await;
    write(&life, &workspace, "gone.txt", "will be removed\n").await;
    let saved = engine
        .create_snapshot(id, SaveAs::named("first"))
        .await
        .expect("saved");
    assert_eq!(saved.snapshot_name, "first");
    refused(
        ErrorKind::Conflict,
        engine.create_snapshot(id, SaveAs::named("first")).await,
    );
    refused(
        ErrorKind::Invalid,
        engine.create_snapshot(id, SaveAs::named("baseline")).await,
    );
    refused(
        ErrorKind::Invalid,
        engine.create_snapshot(id, SaveAs::named("no/slash")).await,
    );
    write(&life, &workspace, "kept.txt", "version two\n").await;
    write(&life, &workspace, "later.txt", "new\n").await;
    run(&life, &workspace, "rm gone.txt").await;
    engine
        .create_snapshot(id, SaveAs::named("second"))
        .await
        .expect("saved");
    let between = engine
        .diff_snapshots(id, "first", Since::new("second", DiffOptions::default()))
        .await;
    let between = between.expect("a diff");
    assert_eq!(
        (between.added, between.modified, between.deleted),
        (1, 1, 1),
        "{between:?}"
    );
    refused(
        ErrorKind::NotFound,
        engine.reset_workspace(id, ResetTo::snapshot("third")).await,
    );
    let reset = engine
        .reset_workspace(id, ResetTo::snapshot("first"))
        .await
        .expect("reset");
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
    let reset = engine
        .reset_workspace(id, ResetTo::snapshot("baseline"))
        .await
        .expect("reset");
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
    engine
        .reset_workspace(id, ResetTo::snapshot("second"))
        .await
        .expect("reset");
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
    let list = engine
        .list_snapshots(id, Default::default())
        .await
        .expect("a list")
        .snapshots;
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
    engine
        .create_snapshot(id, SaveAs::named("before"))
        .await
        .expect("saved");
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
            .list_snapshots(id, Default::default())
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
    let list = life
        .engine
        .list_workspaces(Default::default())
        .await
        .expect("a list");
    let order: Vec<_> = list.iter().map(|one| &one.workspace_id).collect();
    assert_eq!(
        order,
        [id, &other.workspace_id],
        "the most recently active first"
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
            .list_workspaces(Default::default())
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
        engine.reset_workspace(id, ResetTo::snapshot("baseline")),
        engine.reset_workspace(id, ResetTo::snapshot("baseline"))
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
    // The shared baseline still exists.
    engine
        .reset_workspace(&copies[1].workspace_id, ResetTo::snapshot("baseline"))
        .await
        .expect("reset");
}

pub fn a_new_daemon_finds_workspaces_and_what_runs_in_them(bench: &Bench) {
    let id = bench.life(|life| async move {
        let workspace = create(&life).await?;
        let id = workspace.workspace_id.clone();
        write(&life, &workspace, "file", "kept\n").await;
        life.engine
            .create_snapshot(&id, SaveAs::named("saved"))
            .await
            .expect("saved");
        let service = StartService {
            service_name: "web".to_string(),
            command: vec!["echo up; sleep 600".to_string()],
            mode: ExecMode::Shell,
            // The readiness line is logged before the daemon ends.
            readiness: Some(Readiness::Log {
                pattern: "^up".to_string(),
            }),
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
            .reset_workspace(&id, ResetTo::snapshot("saved"))
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
