//! Every verb of workspaces: what the client sends is what the service gets, and its answer comes back.

use super::*;
use futures_util::SinkExt;
use motu_core::limits;
use motu_core::lists::*;
use motu_core::workspace::*;
use motu_core::{Program, Size, Terminals as _};
use motu_testkit::answers as made;
use serde_json::json;
use std::collections::BTreeMap;

fn ws() -> WorkspaceId {
    WorkspaceId::parse("ws-a").unwrap()
}

/// A name that must be encoded wherever it stands in an address.
const ODD: &str = "a/b %2f?#\u{e4}";
const FORCED: ExportOptions = ExportOptions {
    force: true,
    max_bytes: Some(9),
};

#[tokio::test]
async fn the_life_of_a_workspace() {
    let world = world();
    let one = made::workspace();
    let request = CreateWorkspace {
        environment: "debian:12".to_string(),
        workspace_id: Some(ws()),
        seed_path: Some("/src".to_string()),
        name: Some("n".to_string()),
        labels: BTreeMap::from([("k".to_string(), "v=w".to_string())]),
        network_policy: NetworkPolicy::Egress,
        secrets: vec![SecretSource {
            name: "KEY".to_string(),
            value: Some("hunter2".to_string()),
            path: None,
        }],
        size: Size {
            disk_mib: Some(64),
            ..Size::default()
        },
        ttl_seconds: Some(0),
        ..CreateWorkspace::default()
    };
    verb!(world.create_workspace(request.clone()) of CreateWorkspace gets [request], answers one);
    let summary = WorkspaceSummary::from(&one);
    verb!(world.list_workspaces(Default::default()) of ListWorkspaces gets [{}], answers WorkspaceList::new(vec![summary]));
    verb!(world.status_workspace(&ws()) of StatusWorkspace gets ["ws-a", null], answers one);
    let update = UpdateWorkspace {
        clear_name: true,
        clear_labels: vec!["team".to_string()],
        ..UpdateWorkspace::default()
    };
    verb!(world.update_workspace(&ws(), update.clone()) of UpdateWorkspace gets ["ws-a", update], answers one);
    verb!(world.stop_workspace(&ws()) of StopWorkspace gets ["ws-a", null], answers one);
    verb!(world.start_workspace(&ws()) of StartWorkspace gets ["ws-a", null], answers one);
    verb!(world.reset_workspace(&ws(), ResetTo::snapshot(ODD)) of ResetWorkspace gets ["ws-a", {"snapshot": ODD}], answers one);
    let undo = Undo { steps: 2 };
    let undone = Undone {
        workspace_id: ws(),
        steps: 2,
        commands: vec![vec!["make".to_string(), "it so".to_string()]],
        restored_count: 3,
        removed_count: 1,
        checkpoint_count: 4,
    };
    verb!(world.undo_workspace(&ws(), undo) of UndoWorkspace gets ["ws-a", undo], answers undone);
    let fork = ForkWorkspace {
        count: Some(2),
        name: Some("try".to_string()),
    };
    verb!(world.fork_workspace(&ws(), fork.clone()) of ForkWorkspace gets ["ws-a", fork], answers WorkspaceCopies::new(vec![one.clone(), one.clone()]));
    verb!(world.delete_workspace(&ws()) of DeleteWorkspace gets ["ws-a", null], answers one);

    let refused = Error::invalid("no names are made up here");
    let told = refused.clone();
    let it = &world.recorder;
    it.on(move |_: verb::CreateWorkspace| Err(told.clone()));
    let error = world
        .client
        .create_workspace(CreateWorkspace::default())
        .await
        .unwrap_err();
    assert_eq!(error, refused);
}

#[tokio::test]
async fn commands_of_a_workspace() {
    let world = world();
    let request = WorkspaceExec {
        program: Program {
            stdin: true,
            timeout_seconds: Some(7),
            ..Program::shell("cat")
        },
        secret_env: vec!["KEY=TOKEN".parse().unwrap()],
        ..WorkspaceExec::default()
    };
    let it = &world.recorder;
    it.on(|call: verb::ExecWorkspace| made::result(&call.id));
    let result = world.client.exec_workspace(&ws(), request.clone()).await;
    let result = result.unwrap();
    assert_eq!((result.exit_code, result.stdout.as_str()), (3, "out"));
    assert_eq!(world.called(), ("exec_workspace", json!(["ws-a", request])));

    let mut session = world
        .client
        .exec_workspace_stream(&ws(), request.clone())
        .await
        .unwrap();
    assert_eq!(
        world.called(),
        ("exec_workspace_stream", json!(["ws-a", request]))
    );
    session.events.next().await.unwrap().unwrap();
    let word = ExecInput::Stdin(Bytes::from_static(b"hi"));
    session.input.send(word).await.unwrap();
    let echoed = within(session.events.next()).await.unwrap().unwrap();
    assert_eq!(echoed, ExecEvent::Stdout("hi".into()));

    let log = CommandLog {
        workspace_id: ws(),
        count: 0,
        entries: Vec::new(),
    };
    verb!(world.logs_workspace(&ws()) of LogsWorkspace gets ["ws-a", null], answers log);
}

#[tokio::test]
async fn a_command_ends_with_its_stream() {
    let world = world();
    let request = WorkspaceExec::from(Program::argv(["sleep"]));
    let mut session = world
        .client
        .exec_workspace_stream(&ws(), request)
        .await
        .unwrap();
    session.events.next().await.unwrap().unwrap();
    drop(session);
    within(world.sessions.killed.notified()).await;
}

#[tokio::test]
async fn the_content_of_a_workspace() {
    let world = world();
    let push = SyncPush {
        source_path: "/src".to_string(),
        dest: Some("/workspace/x".to_string()),
        gitignore: true,
    };
    let report = SyncReport {
        workspace_id: ws(),
        mode: "directory".to_string(),
        source_path: "/src".to_string(),
        destination: "/workspace/x".to_string(),
        entry_count: 3,
        sent_count: 2,
        unchanged_count: 1,
        bytes_written: 9,
    };
    verb!(world.push_workspace_sync(&ws(), push.clone()) of PushWorkspaceSync gets ["ws-a", push], answers report);
    let list = ListPaths::new(ODD, true);
    verb!(world.list_workspace_files(&ws(), list.clone()) of ListWorkspaceFiles
        gets ["ws-a", {"path": ODD, "recursive": true}], answers made::path_list(&list));
    let read = ReadText::new(ODD, Some(9));
    verb!(world.read_workspace_file(&ws(), read.clone()) of ReadWorkspaceFile
        gets ["ws-a", {"path": ODD, "max_bytes": 9}], answers made::file_text(&read));
    let exported = Exported {
        workspace_id: ws(),
        workspace_path: ODD.to_string(),
        output_path: "/out".to_string(),
        kind: FileType::Directory,
        entry_count: 1,
        bytes_written: 2,
    };
    verb!(world.export_workspace(&ws(), ExportFiles::new(ODD, "/out", FORCED)) of ExportWorkspace
        gets ["ws-a", {"path": ODD, "output_path": "/out", "force": true, "max_bytes": 9}], answers exported);
    let edits = vec![Edit {
        path: ODD.to_string(),
        old: "\u{1b}".to_string(),
        new: String::new(),
        count: Some(2),
    }];
    verb!(world.edit_workspace(&ws(), EditFiles { edits: edits.clone() }) of EditWorkspace gets ["ws-a", {"edits": edits}],
        answers made::patch_report());
    let options = DiffOptions { max_bytes: Some(0) };
    verb!(world.diff_workspace(&ws(), options.clone()) of DiffWorkspace gets ["ws-a", options],
        answers made::diff_report(BASELINE, "now"));
}

#[tokio::test]
async fn texts_at_their_limit_fit_however_they_are_escaped() {
    let world = world();
    // JSON writes each of these as six bytes.
    let text = "\u{1}".repeat(limits::FILE_WRITE_BYTES.max as usize);
    let bytes = text.len() as u64;
    let write = WriteText {
        path: "/workspace/f".to_string(),
        text,
    };
    world.recorder.on(|call: verb::WriteWorkspaceFile| {
        let bytes = call.ask.text.len() as u64;
        Ok(FileWritten {
            workspace_id: call.id,
            path: call.ask.path,
            size_bytes: bytes,
            bytes_written: bytes,
        })
    });
    let written = within(world.client.write_workspace_file(&ws(), write)).await;
    assert_eq!(written.unwrap().size_bytes, bytes);
    let patch = "\u{1}".repeat(limits::PATCH_BYTES.max as usize);
    let it = &world.recorder;
    it.always::<verb::ApplyWorkspacePatch>(made::patch_report());
    let report = within(
        world
            .client
            .apply_workspace_patch(&ws(), Patch::new(&patch)),
    )
    .await;
    assert_eq!(report.unwrap(), made::patch_report());
    let (name, got) = world.called();
    assert_eq!(name, "apply_workspace_patch");
    assert!(got == json!(["ws-a", {"patch": patch}]));
    let secret = SecretSource {
        name: "KEY".to_string(),
        value: Some("x".repeat(limits::SECRET_BYTES.max as usize)),
        path: None,
    };
    let request = CreateWorkspace {
        workspace_id: Some(ws()),
        secrets: vec![secret; limits::SECRETS.max as usize],
        ..CreateWorkspace::default()
    };
    world
        .recorder
        .always::<verb::CreateWorkspace>(made::workspace());
    within(world.client.create_workspace(request))
        .await
        .unwrap();

    let patch = "x".repeat(limits::REQUEST_BODY_BYTES.max as usize);
    let error = within(
        world
            .client
            .apply_workspace_patch(&ws(), Patch::new(&patch)),
    )
    .await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit, "{error}");
}

#[tokio::test]
async fn snapshots_and_the_disk() {
    let world = world();
    verb!(world.create_snapshot(&ws(), SaveAs::named(ODD)) of CreateSnapshot
        gets ["ws-a", {"snapshot_name": ODD}], answers made::snapshot(ODD));
    let both = [BASELINE, "before"].map(made::snapshot);
    let list = SnapshotList::new(ws(), both.to_vec());
    verb!(world.list_snapshots(&ws(), Default::default()) of ListSnapshots gets ["ws-a", {}], answers list);
    for name in [ODD, "diff", ".."] {
        verb!(world.delete_snapshot(&ws(), name) of DeleteSnapshot
            gets ["ws-a", name, null], answers made::snapshot(name));
        let since = Since::new(ODD, DiffOptions { max_bytes: Some(5) });
        verb!(world.diff_snapshots(&ws(), name, since.clone()) of DiffSnapshots
            gets ["ws-a", name, {"to": ODD, "max_bytes": 5}], answers made::diff_report(name, ODD));
    }
    let error = world.client.delete_snapshot(&ws(), "").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);

    let exported = DiskExported {
        workspace_id: ws(),
        output_path: "/out.ext4".to_string(),
        disk_format: "ext4".to_string(),
        bytes_written: 1 << 40,
    };
    verb!(world.export_workspace_disk(&ws(), ExportDisk::new("/out.ext4", ExportOptions::default())) of ExportWorkspaceDisk
        gets ["ws-a", {"output_path": "/out.ext4"}], answers exported);
    let list = ListPaths::new("/", false);
    verb!(world.list_workspace_disk(&ws(), list.clone()) of ListWorkspaceDisk
        gets ["ws-a", {"path": "/", "recursive": false}], answers made::path_list(&list));
    let read = ReadText::new(ODD, None);
    verb!(world.read_workspace_disk(&ws(), read.clone()) of ReadWorkspaceDisk
        gets ["ws-a", {"path": ODD}], answers made::file_text(&read));
}

#[tokio::test]
async fn services_of_a_workspace() {
    let world = world();
    let request = StartService {
        service_name: "web".to_string(),
        command: vec!["serve".to_string()],
        secret_env: vec!["KEY".parse().unwrap()],
        readiness: Some(Readiness::Log {
            pattern: "^ready$".to_string(),
        }),
        restart: Restart::Always,
        published_ports: vec!["8080:80".parse().unwrap()],
        ..StartService::default()
    };
    let status = made::service_status("web");
    verb!(world.start_service(&ws(), request.clone()) of StartService gets ["ws-a", request], answers status);
    verb!(world.list_services(&ws()) of ListServices gets ["ws-a", null], answers ServiceList::new(ws(), vec![status]));
    verb!(world.status_service(&ws(), ODD) of StatusService gets ["ws-a", ODD, null],
        answers made::service_status(ODD));
    let options = LogOptions {
        tail_lines: Some(5),
        all: true,
    };
    let logs = ServiceLogs {
        workspace_id: ws(),
        service_name: ODD.to_string(),
        stdout: "out\n".to_string(),
        stderr: "err\n".to_string(),
        truncated: true,
    };
    verb!(world.logs_service(&ws(), ODD, options) of LogsService gets ["ws-a", ODD, options], answers logs);
    verb!(world.stop_service(&ws(), ODD) of StopService gets ["ws-a", ODD, null],
        answers made::service_status(ODD));

    let session = world.client.follow_service(&ws(), ODD).await.unwrap();
    assert_eq!(
        world.called(),
        ("follow_service", json!(["ws-a", ODD, null]))
    );
    let events: Vec<_> = within(session.events.collect()).await;
    assert_eq!(events[0], Ok(ExecEvent::Stderr("a line\n".into())));
    assert!(matches!(events[1], Ok(ExecEvent::Exited(_))));
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn shells_of_a_workspace() {
    let world = world();
    let request = OpenShell {
        cwd: Some("/".to_string()),
        cols: Some(80),
        secret_env: vec!["KEY".parse().unwrap()],
        ..OpenShell::default()
    };
    verb!(world.open_shell(&ws(), request.clone()) of OpenShell gets ["ws-a", request],
        answers made::shell("sh-1"));
    verb!(world.list_shells(&ws()) of ListShells gets ["ws-a", null], answers ShellList::new(ws(), vec![made::shell("sh-1")]));
    let read = ReadShell {
        cursor: 11,
        max_chars: Some(100),
        plain: true,
        wait_for_idle_ms: Some(300),
    };
    let output = ShellOutput {
        workspace_id: ws(),
        shell_id: ODD.to_string(),
        state: "running".to_string(),
        cursor: 11,
        next_cursor: 15,
        output: "\u{1b}[1m$ ".to_string(),
        truncated: false,
        lost: true,
        plain: true,
    };
    verb!(world.read_shell(&ws(), ODD, read) of ReadShell gets ["ws-a", ODD, read], answers output);
    let write = WriteShell {
        input: "ls\t".to_string(),
        append_newline: Some(false),
    };
    let shell = made::shell(ODD);
    verb!(world.write_shell(&ws(), ODD, write.clone()) of WriteShell gets ["ws-a", ODD, write], answers shell);
    verb!(world.signal_shell(&ws(), ODD, SignalShell { signal: "INT".to_string() }) of SignalShell
        gets ["ws-a", ODD, {"signal": "INT"}], answers shell);
    let size = TtySize { cols: 99, rows: 9 };
    verb!(world.resize_shell(&ws(), ODD, size) of ResizeShell gets ["ws-a", ODD, size], answers shell);
    verb!(world.close_shell(&ws(), ODD) of CloseShell gets ["ws-a", ODD, null], answers shell);

    let mut session = world
        .client
        .attach_shell(&ws(), ODD, size.into())
        .await
        .unwrap();
    assert_eq!(world.called(), ("attach_shell", json!(["ws-a", ODD, size])));
    session.events.next().await.unwrap().unwrap();
    let screen = session.events.next().await.unwrap().unwrap();
    assert_eq!(screen, ExecEvent::Stdout("the screen\r\n".into()));
    session.input.send(ExecInput::Resize(size)).await.unwrap();
    let echoed = within(session.events.next()).await.unwrap().unwrap();
    assert_eq!(echoed, ExecEvent::Stdout("99x9\n".into()));
}

#[tokio::test]
async fn what_is_left_out_has_its_default() {
    let world = world();
    world
        .raw("POST /v1/workspaces/ws-a/reset HTTP/1.1", "{}")
        .await;
    assert_eq!(
        world.called(),
        ("reset_workspace", json!(["ws-a", {"snapshot": "baseline"}]))
    );
    world
        .raw("GET /v1/workspaces/ws-a/files HTTP/1.1", "")
        .await;
    let all = json!(["ws-a", {"path": "/workspace", "recursive": false}]);
    assert_eq!(world.called(), ("list_workspace_files", all));
    let signal = "POST /v1/workspaces/ws-a/shells/sh-1/signal HTTP/1.1";
    world.raw(signal, "{}").await;
    let interrupt = json!(["ws-a", "sh-1", {"signal": "INT"}]);
    assert_eq!(world.called(), ("signal_shell", interrupt));
    let answer = world
        .raw("GET /v1/workspaces/ws-a/files/text HTTP/1.1", "")
        .await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("path is missing"), "{answer}");
    let answer = world
        .raw("GET /v1/workspaces/ws-a/files?pth=x HTTP/1.1", "")
        .await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn a_shell_over_a_websocket() {
    use tokio_tungstenite::tungstenite::Message;
    let world = world();
    let stream = UnixStream::connect(&world.socket).await.unwrap();
    let address = "ws://motu/v1/workspaces/ws-a/shells/sh-1/stream/ws?cols=70";
    let (mut socket, _) = tokio_tungstenite::client_async(address, stream)
        .await
        .unwrap();
    let attached = json!(["ws-a", "sh-1", {"cols": 70, "rows": 30}]);
    assert_eq!(world.called(), ("attach_shell", attached));
    socket.next().await.unwrap().unwrap();
    socket.next().await.unwrap().unwrap();
    socket
        .send(Message::binary(&b"\x01\x00\x00\x00\x02hi"[..]))
        .await
        .unwrap();
    let echoed = within(socket.next()).await.unwrap().unwrap().into_data();
    assert_eq!(echoed, &b"\x01\x00\x00\x00\x02hi"[..]);
}
