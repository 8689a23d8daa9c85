//! Commands, services, shells and secrets in a workspace.

use super::support::*;
use crate::bench::Bench;
use crate::life::{Life, eventually, refused};
use motu_core::exec::ExecMode;
use motu_core::workspace::*;
use motu_core::{ErrorKind, Terminals as _};
use std::time::Duration;

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
    let error = refused(
        ErrorKind::Unavailable,
        engine.start_service(id, ended).await,
    );
    assert!(error.message.contains("exit code 7"), "{error:?}");
    assert!(error.message.contains("its last lines:\n  oh"), "{error:?}");
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

pub async fn a_service_that_dies_at_once_says_why(life: Life) {
    let Some(workspace) = create(&life).await else {
        return;
    };
    let id = &workspace.workspace_id;
    let service = || StartService {
        service_name: "typo".to_string(),
        command: vec!["echo begun; echo no such option >&2; exit 64".to_string()],
        mode: ExecMode::Shell,
        ..StartService::default()
    };
    // A machine that notices the end late reports it later, so ask again. One with its own kernel
    // may be late each time on a busy host.
    let slow = life.runtime.isolation() > motu_core::Isolation::Container;
    eventually("its end is told by the call that started it", || async {
        let Err(error) = life.engine.start_service(id, service()).await else {
            return slow;
        };
        if error.kind == ErrorKind::Conflict {
            return false;
        }
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
        assert!(error.message.contains("exit code 64"), "{error:?}");
        assert!(error.message.contains("no such option"), "{error:?}");
        true
    })
    .await;
    eventually("it has failed", || async {
        let status = life.engine.status_service(id, "typo").await;
        status.expect("a status").state == ServiceState::Failed
    })
    .await;
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
    let can = life.runtime.capabilities();
    if !can.keep {
        return;
    }
    let engine = &life.engine;
    if !can.network {
        let created = engine.create_workspace(open).await;
        drop(refused(ErrorKind::Unsupported, created));
        return;
    }
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
        // nc does not listen for a moment between two connections.
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

fn type_in(text: &str) -> WriteShell {
    WriteShell {
        input: text.to_string(),
        append_newline: None,
    }
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
        // Repeated, as a person would, if the first signal came too early.
        let signalled = engine
            .signal_shell(
                id,
                name,
                SignalShell {
                    signal: "INT".to_string(),
                },
            )
            .await;
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
    is_read_in_parts(life, id).await;
    let unknown = WorkspaceExec {
        secret_env: vec!["NOBODY".parse().expect("a mapping")],
        ..script("true")
    };
    refused(
        ErrorKind::NotFound,
        life.engine.exec_workspace(id, unknown).await,
    );
}

/// However small the reads of a shell are, none shows a part of the value.
async fn is_read_in_parts(life: &Life, id: &WorkspaceId) {
    let engine = &life.engine;
    let shell = engine.open_shell(id, OpenShell::default()).await;
    let shell = shell.expect("a shell").shell_id;
    let (one, two) = SECRET.split_at(5);
    let script = format!("printf '<%s%s>' {one} {two}; echo; echo end''ed");
    let typed = engine.write_shell(id, &shell, type_in(&script)).await;
    typed.expect("written");
    let read = |cursor, max_chars| {
        let ask = ReadShell {
            cursor,
            max_chars,
            ..ReadShell::default()
        };
        engine.read_shell(id, &shell, ask)
    };
    eventually("the end of the script", || async {
        let all = read(0, None).await.expect("output");
        all.output.contains("ended")
    })
    .await;
    let (mut text, mut cursor) = (String::new(), 0);
    while !text.contains("ended") {
        let part = read(cursor, Some(3)).await.expect("output");
        assert!(part.next_cursor > cursor, "{part:?}");
        cursor = part.next_cursor;
        text.push_str(&part.output);
    }
    assert!(!text.contains(SECRET), "{text}");
    assert!(text.contains("<[redacted TOKEN]>"), "{text}");
    engine.close_shell(id, &shell).await.expect("closed");
}

/// Checks every file of the state directory that is small enough to be one of ours.
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
