//! Running commands in the foreground.

use crate::life::{
    Life, argv, eventually, hear, hear_until, long, next, path, place, refused, say, shell, stdout,
};
use bytes::Bytes;
use motu_core::exec::{ExecEvent, ExecInput, ExecRequest, Selector, SignalProcess};
use motu_core::files::MakeDirectory;
use motu_core::{ErrorKind, Program, Service as _, Signal};
use std::time::Duration;

pub async fn argv_never_meets_a_shell(life: Life) {
    let sandbox = life.create().await;
    let words = [
        "$(id)", ";", "exit 9", "'", "\"", "`id`", "$HOME", "*", "a  b", "\\", "",
    ];
    let mut command = vec!["echo"];
    command.extend(words);
    let result = life.exec(&sandbox, argv(&command)).await;
    assert_eq!(result.stdout, format!("{}\n", words.join(" ")));
    assert_eq!(result.exit_code, 0);
}

pub async fn shell_mode_quotes_its_arguments(life: Life) {
    let sandbox = life.create().await;
    let words = ["a b", "it's", "$HOME", "; exit 9", "\"", "$(id)"];
    let mut request = shell("echo first; echo");
    request.program.command.extend(words.map(str::to_string));
    let result = life.exec(&sandbox, request).await;
    assert_eq!(result.stdout, format!("first\n{}\n", words.join(" ")));
    assert_eq!(result.exit_code, 0);
}

pub async fn a_nonzero_exit_is_a_result(life: Life) {
    let sandbox = life.create().await;
    assert_eq!(life.exec(&sandbox, argv(&["false"])).await.exit_code, 1);
    for code in [0, 3, 126, 255] {
        let result = life.exec(&sandbox, shell(&format!("exit {code}"))).await;
        assert_eq!(result.exit_code, code);
        assert_eq!(result.signal, None);
        assert!(!result.timed_out);
    }
}

pub async fn a_missing_program_is_exit_127(life: Life) {
    let sandbox = life.create().await;
    for request in [argv(&["no-such-program"]), shell("no-such-program")] {
        let result = life.exec(&sandbox, request).await;
        assert_eq!(result.exit_code, 127);
        assert!(result.stderr.contains("no-such-program"), "{result:?}");
        assert_eq!(result.stdout, "");
    }
}

pub async fn stdout_and_stderr_stay_apart(life: Life) {
    let sandbox = life.create().await;
    let script = "echo out; echo err >&2; echo out again";
    let result = life.exec(&sandbox, shell(script)).await;
    assert_eq!(result.stdout, "out\nout again\n");
    assert_eq!(result.stderr, "err\n");
    assert_eq!((result.stdout_bytes, result.stderr_bytes), (14, 4));
}

pub async fn variables_and_directory_are_the_callers(life: Life) {
    let mut request = life.request();
    request.env.insert("FIRST".into(), "of the sandbox".into());
    request.env.insert("SECOND".into(), "of the sandbox".into());
    let sandbox = life.engine.create_sandbox(request).await.expect("created");
    let id = &sandbox.sandbox_id;
    let dir = path(&sandbox, "some/where");
    life.engine
        .mkdir(
            id,
            MakeDirectory {
                path: dir,
                mode: None,
                user: None,
            },
        )
        .await
        .expect("a directory");
    let request = ExecRequest::from(Program {
        env: [("SECOND".into(), "of 'the' $command".into())].into(),
        workdir: Some(place(&sandbox, "some/where")),
        ..shell("echo \"$FIRST\"; echo \"$SECOND\"; pwd").program
    });
    let result = life.exec(&sandbox, request).await;
    let expected = format!(
        "of the sandbox\nof 'the' $command\n{}\n",
        place(&sandbox, "some/where")
    );
    assert_eq!(result.stdout, expected);
    let result = life.exec(&sandbox, argv(&["pwd"])).await;
    assert_eq!(result.stdout, format!("{}\n", sandbox.workdir));
}

pub async fn nothing_of_the_daemon_is_inherited(life: Life) {
    let sandbox = life.create().await;
    let result = life.exec(&sandbox, argv(&["env"])).await;
    assert!(result.stdout.contains("PATH="), "{}", result.stdout);
    // The test runs under cargo, which sets variables.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    assert!(!result.stdout.contains("CARGO"), "{}", result.stdout);
}

pub async fn input_streams_and_ends(life: Life) {
    let sandbox = life.create().await;
    let request = ExecRequest::from(Program {
        stdin: true,
        ..argv(&["cat"]).program
    });
    if life.lacks().await.input {
        let asked = life.engine.exec(&sandbox.sandbox_id, request).await;
        refused(ErrorKind::Unsupported, asked);
        return;
    }
    let mut session = life.stream(&sandbox, request).await;
    for text in ["one\n", "two\n"] {
        // Each piece is echoed before the next is sent: output is not buffered until the end.
        say(&session, ExecInput::Stdin(Bytes::from(text))).await;
        hear_until(&mut session, text).await;
    }
    say(&session, ExecInput::CloseStdin).await;
    let heard = hear(session).await;
    assert_eq!(heard.out, b"");
    assert_eq!(heard.exited.expect("an end").exit_code, 0);
}

pub async fn without_input_there_is_none(life: Life) {
    let sandbox = life.create().await;
    let result = life.exec(&sandbox, argv(&["cat"])).await;
    assert_eq!((result.exit_code, result.stdout.as_str()), (0, ""));
}

pub async fn output_arrives_while_the_command_runs(life: Life) {
    let sandbox = life.create().await;
    if life.lacks().await.live_output {
        // Late, but complete and in order.
        let request = shell("echo first; sleep 1; echo last");
        let heard = hear(life.stream(&sandbox, request).await).await;
        assert_eq!(heard.out, b"first\nlast\n");
        return;
    }
    let request = shell("echo first; sleep 600; echo last");
    let mut session = life.stream(&sandbox, request).await;
    hear_until(&mut session, "first\n").await;
}

pub async fn a_dropped_session_ends_its_command(life: Life) {
    let sandbox = life.create().await;
    let request = shell("echo up; sleep 600");
    let mut session = life.stream(&sandbox, request).await;
    let Some(ExecEvent::Started(started)) = next(&mut session).await else {
        panic!("a session begins with its start");
    };
    if life.lacks().await.cancel {
        // A runtime that cannot kill it must not claim to.
        let kill = SignalProcess {
            signal: Signal::KILL,
            tree: true,
        };
        let (id, process) = (&sandbox.sandbox_id, Selector::Pid(started.pid));
        let asked = life.engine.signal_process(id, &process, kill).await;
        refused(ErrorKind::Unsupported, asked);
        return;
    }
    hear_until(&mut session, "up\n").await;
    assert!(life.process(&sandbox, started.pid).await.is_some());
    drop(session);
    eventually("the end of the command", || async {
        let found = life.process(&sandbox, started.pid).await;
        found.is_none_or(|process| process.exited.is_some() && process.alive == 0)
    })
    .await;
}

pub async fn a_timeout_keeps_the_output_and_ends_the_tree(life: Life) {
    let sandbox = life.create().await;
    let late = place(&sandbox, "late");
    let script = format!("echo before; sh -c 'sleep 3; echo x > {late}' & sleep 600; echo after");
    let request = ExecRequest::from(Program {
        timeout_seconds: Some(1),
        ..shell(&script).program
    });
    let result = life.exec(&sandbox, request).await;
    assert!(result.timed_out);
    if life.lacks().await.cancel {
        // It may keep running, which is reported.
        assert!(result.stderr.contains("may run on"), "{result:?}");
        return;
    }
    assert_eq!(result.stdout, "before\n");
    assert_ne!(result.exit_code, 0);
    assert!((900..10_000).contains(&result.duration_ms), "{result:?}");
    // Only time can show that something does not happen: the child would have written by now.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        !life.exists(&sandbox, "late").await,
        "a child outlived the timeout"
    );
    assert_eq!(life.exec(&sandbox, argv(&["true"])).await.exit_code, 0);
}

pub async fn binary_output_is_intact(life: Life) {
    let sandbox = life.create().await;
    let content: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    if life.lacks().await.binary {
        let written = life.write_with(&sandbox, "binary", &content, Default::default());
        refused(ErrorKind::Unsupported, written.await);
        return;
    }
    life.write(&sandbox, "binary", &content).await;
    let file = place(&sandbox, "binary");
    let result = life.exec(&sandbox, argv(&["cat", &file])).await;
    assert!(stdout(&result) == content, "the bytes differ");
    assert!(!result.truncated);
}

pub async fn much_output_arrives_whole(life: Life) {
    let sandbox = life.create().await;
    // Several times what the link and the machine buffer.
    let content = long(9_000_000, life.lacks().await.binary);
    life.write(&sandbox, "much", &content).await;
    let session = life
        .stream(&sandbox, argv(&["cat", &place(&sandbox, "much")]))
        .await;
    let heard = hear(session).await;
    assert_eq!(heard.out.len(), content.len());
    assert!(heard.out == content, "the bytes differ");
    let exited = heard.exited.expect("an end");
    assert_eq!(exited.stdout_bytes, content.len() as u64);
}

pub async fn output_is_cut_at_its_budget(life: Life) {
    let sandbox = life.create().await;
    let request = ExecRequest::from(Program {
        max_output_bytes: Some(10),
        ..argv(&["echo", "0123456789abcdef"]).program
    });
    let result = life.exec(&sandbox, request).await;
    assert_eq!(result.stdout, "0123456789");
    assert!(result.truncated);
    assert_eq!(result.stdout_bytes, 17);
    assert_eq!(result.exit_code, 0);
}

pub async fn many_commands_run_at_once(life: Life) {
    let sandbox = life.create().await;
    let runs = (0..16).map(|number| {
        let (life, sandbox) = (life.clone(), sandbox.clone());
        async move {
            let text = format!("number {number}");
            let result = life.exec(&sandbox, argv(&["echo", &text])).await;
            assert_eq!(result.stdout, format!("{text}\n"));
        }
    });
    futures_util::future::join_all(runs).await;
}

pub async fn bad_commands_are_invalid(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let requests = [
        argv(&[]),
        argv(&["echo", "a\0b"]),
        ExecRequest::from(Program {
            workdir: Some("relative".into()),
            ..argv(&["true"]).program
        }),
        ExecRequest::from(Program {
            timeout_seconds: Some(0),
            ..argv(&["true"]).program
        }),
        ExecRequest::from(Program {
            env: [("A=B".into(), "c".into())].into(),
            ..argv(&["true"]).program
        }),
    ];
    for request in requests {
        refused(ErrorKind::Invalid, life.engine.exec(id, request).await);
    }
    let huge = "x".repeat(200_000);
    refused(
        ErrorKind::Limit,
        life.engine.exec(id, argv(&["echo", &huge])).await,
    );
}
