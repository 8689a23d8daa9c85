//! The e2b runtime on a test service that speaks the E2B API and runs real processes.

mod agent;
mod files;
mod process;
mod sandbox;
mod served;

use bytes::Bytes;
use futures_util::StreamExt as _;
use motu_conformance::life::{argv, eventually, hear, hear_until, next, path, refused, shell};
use motu_conformance::{Bench, Skip, Subject, conformance, subjects};
use motu_core::exec::{AttachFrom, ExecEvent, Selector};
use motu_core::files::{FileType, ReadFile, ReadRange, StatFile, WriteFile, WriteOptions};
use motu_core::sandbox::CreateSandbox;
use motu_core::terminal::{OpenTerminal, RunInTerminal, TerminalId, Wait};
use motu_core::{ErrorKind, Service as _, Terminals as _};
use served::{Kind, Served};
use std::sync::Arc;

fn subject_of(kind: Kind) -> Result<Subject, Skip> {
    on(&Arc::new(Served::start(kind)))
}

fn on(served: &Arc<Served>) -> Result<Subject, Skip> {
    let (url, key_file) = (served.url(), served.key_file());
    let served = served.clone();
    subjects::e2b(&url, &key_file, Box::new(move |id| served.end(id)))
}

conformance!(suite, crate::e2b::subject_of(crate::e2b::Kind::default()));

/// The terminal checks without `a_new_daemon_goes_on_with_the_session`: output printed while no
/// daemon runs is lost here, as docs/e2b.md says.
mod typed {
    motu_conformance::group!(crate::e2b::subject_of(crate::e2b::Kind::default()), terminals: prove, [
        a_run_gives_output_code_directory_and_time,
        silence_does_not_end_a_run,
        two_sessions_work_at_once,
        a_run_can_be_watched_and_interrupted,
        a_password_is_typed_and_never_kept,
        expect_never_finds_the_echo,
        a_program_that_reads_lines_is_talked_to,
        a_signal_reaches_whoever_is_in_front,
        a_new_size_is_everybodys,
        terminate_is_final,
        a_shell_that_has_ended_is_opened_again,
        whoever_goes_away_leaves_the_command_alone,
        somebody_watches_and_takes_over,
        much_output_goes_through_in_order,
        what_is_wrong_is_told,
        a_session_ends_with_its_machine,
        a_shell_without_marks_is_driven_too,
    ]);
    mod across {
        motu_conformance::group!(crate::e2b::subject_of(crate::e2b::Kind::default()), terminals: prove_across, [
            a_session_whose_machine_was_lost_has_ended,
        ]);
    }
}

/// A service of another kind, and a bench on it.
fn bench(kind: Kind) -> (Arc<Served>, Bench) {
    let served = Arc::new(Served::start(kind));
    let subject = on(&served).unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    (served, Bench::new(subject))
}

#[test]
fn an_older_service_is_asked_by_its_own_routes() {
    let kind = Kind {
        old: true,
        ..Kind::default()
    };
    let (served, bench) = bench(kind);
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        life.engine.pause_sandbox(id).await.expect("paused");
        life.engine.resume_sandbox(id).await.expect("resumed");
        let done = life.exec(&sandbox, argv(&["echo", "hi"])).await;
        assert_eq!(done.stdout, "hi\n");
    });
    assert_eq!(
        served.heard("POST /sandboxes"),
        served.heard("POST /sandboxes/") + 1
    );
}

#[test]
fn a_machine_with_the_internet_is_refused() {
    let kind = Kind {
        open: true,
        ..Kind::default()
    };
    let (served, bench) = bench(kind);
    bench.life(|life| async move {
        let made = life.engine.create_sandbox(life.request()).await;
        let error = refused(ErrorKind::Denied, made);
        assert!(error.message.contains("internet"), "{error}");
    });
    assert_eq!(served.count(), 0);
}

#[test]
fn a_missing_template_is_not_found() {
    let (_served, bench) = bench(Kind::default());
    bench.life(|life| async move {
        let request = CreateSandbox {
            environment: "no-such-template".into(),
            ..life.request()
        };
        let error = refused(
            ErrorKind::NotFound,
            life.engine.create_sandbox(request).await,
        );
        assert!(error.hint.is_some_and(|hint| hint.contains("template")));
    });
}

/// Exit code and output are stored in the machine, so neither the agent nor a daemon needs to have
/// been there.
#[test]
fn what_ended_while_nobody_looked_is_known() {
    let kind = Kind {
        forgetful: true,
        rangeless: true,
        ..Kind::default()
    };
    let (_served, bench) = bench(kind);
    let before = bench.life(|life| async move {
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        let request = shell("while [ ! -e go ]; do sleep 0.1; done; echo late; exit 7");
        let started = life.engine.exec_background(id, request).await;
        (sandbox, started.expect("started").pid)
    });
    let (sandbox, pid) = before;
    std::fs::write(format!("{}/go", sandbox.workdir), "").expect("a file of the machine");
    bench.life(|life| async move {
        eventually("the end", || async {
            let found = life.process(&sandbox, pid).await;
            found.is_some_and(|process| process.exited.is_some())
        })
        .await;
        let from = AttachFrom::Offsets {
            stdout: 2,
            stderr: 0,
        };
        let id = &sandbox.sandbox_id;
        let session = life
            .engine
            .attach(id, &Selector::Pid(pid), from.into())
            .await;
        let heard = hear(session.expect("attached")).await;
        assert_eq!(heard.out, b"te\n");
        assert_eq!(heard.exited.expect("an end").exit_code, 7);
    });
}

/// After a crash of the daemon, commands with waiting callers do not continue.
#[test]
fn a_new_daemon_ends_what_nobody_waits_for() {
    let (_served, bench) = bench(Kind::default());
    let (sandbox, pid) = bench.life(|life| async move {
        let sandbox = life.create().await;
        let mut session = life.stream(&sandbox, shell("echo $$; sleep 600")).await;
        let mut out = Vec::new();
        while !out.ends_with(b"\n") {
            match next(&mut session).await {
                Some(ExecEvent::Stdout(bytes)) => out.extend_from_slice(&bytes),
                Some(ExecEvent::Started(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        let pid = String::from_utf8(out).expect("a number");
        // As if the daemon was killed: no destructor runs.
        std::mem::forget(session);
        (sandbox, pid.trim().to_string())
    });
    bench.life(|life| async move {
        life.exec(&sandbox, argv(&["true"])).await;
        eventually("the end of the command", || async {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            state.map_or(true, |state| state.contains(") Z "))
        })
        .await;
    });
}

#[test]
fn machines_are_given_time_as_long_as_a_daemon_has_them() {
    let (served, bench) = bench(Kind::default());
    bench.life(|life| async move {
        life.create().await;
    });
    let first = served.heard("POST /sandboxes/");
    let heard = served.clone();
    bench.life(|_| async move {
        // A new daemon does not know the remaining time: it prolongs it at once.
        eventually("more time", || async {
            heard.heard("POST /sandboxes/") > first
        })
        .await;
    });
}

/// Files larger than any buffer pass in pieces.
#[test]
fn files_of_any_size_go_through_in_pieces() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 192;
    let (_served, bench) = bench(Kind::default());
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        let pieces = (0..PIECES).map(|number| Ok(Bytes::from(vec![number as u8; PIECE])));
        let content = futures_util::stream::iter(pieces).boxed();
        let file = path(&sandbox, "large");
        let write = WriteFile::new(file.clone(), WriteOptions::default());
        let written = life.engine.write_file(id, write, content).await;
        assert_eq!(
            written.expect("written").size_bytes,
            (PIECE * PIECES) as u64
        );
        let read = ReadFile::new(file, ReadRange::default());
        let (_, mut content) = life.engine.read_file(id, read).await.expect("read");
        let mut at = 0;
        while let Some(piece) = content.next().await {
            let piece = piece.expect("a piece");
            let same = |(offset, byte): (usize, &u8)| *byte == ((at + offset) / PIECE) as u8;
            assert!(piece.iter().enumerate().all(same), "at {at}");
            at += piece.len();
        }
        assert_eq!(at, PIECE * PIECES);
    });
    let peak = std::fs::read_to_string("/proc/self/status").expect("our own status");
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    let peak = peak.expect("the kernel counts") * 1024;
    assert!(
        peak < PIECE * PIECES,
        "{peak} bytes for a file of {}",
        PIECE * PIECES
    );
}

/// Operations without a call of the agent, and symbolic links.
#[test]
fn links_and_modes_are_what_they_are_elsewhere() {
    let (_served, bench) = bench(Kind::default());
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        life.write(&sandbox, "file", b"old").await;
        let made = life.exec(
            &sandbox,
            shell("ln -s file link; chmod 750 file; ln -s none broken"),
        );
        assert_eq!(made.await.exit_code, 0);
        let stat = async |name: &str, follow| {
            let path = path(&sandbox, name);
            life.engine
                .stat(
                    id,
                    StatFile {
                        path,
                        follow,
                        user: None,
                    },
                )
                .await
        };
        let link = stat("link", false).await.expect("a link");
        assert_eq!(link.kind, FileType::Symlink);
        let file = stat("link", true).await.expect("a file");
        assert_eq!((file.kind, file.mode), (FileType::File, 0o750));
        refused(ErrorKind::NotFound, stat("broken", true).await);
        stat("broken", false)
            .await
            .expect("a link that leads nowhere");
        // Written through the link; the mode stays.
        life.write(&sandbox, "link", b"new").await;
        assert_eq!(life.read(&sandbox, "file").await.expect("read"), b"new");
        assert_eq!(stat("file", false).await.expect("a file").mode, 0o750);
        assert_eq!(
            stat("link", false).await.expect("a link").kind,
            FileType::Symlink
        );
    });
}

/// A broken connection does not end a command: it is followed again.
#[test]
fn a_broken_stream_is_taken_up_again() {
    let (served, bench) = bench(Kind::default());
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let script = "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two; exit 3";
        let mut session = life.stream(&sandbox, shell(script)).await;
        hear_until(&mut session, "one\n").await;
        let before = served.heard("agent Connect");
        served.cut();
        eventually("it is followed again", || async {
            served.heard("agent Connect") > before
        })
        .await;
        life.write(&sandbox, "go", b"").await;
        let heard = hear(session).await;
        assert_eq!(heard.out, b"two\n");
        assert_eq!(heard.exited.expect("an end").exit_code, 3);
    });
}

/// Output printed while no daemon runs is lost; the session itself is not.
#[test]
fn a_session_is_there_for_the_next_daemon() {
    let (_served, bench) = bench(Kind::default());
    let run = |command: &str| RunInTerminal {
        command: command.to_string(),
        wait: Wait {
            timeout: Some(20.0),
            ..Wait::default()
        },
        ..RunInTerminal::default()
    };
    let session = TerminalId::parse("one").expect("a name");
    let (id, first) = (session.clone(), run("marker=kept"));
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let open = OpenTerminal {
            session_id: "one".to_string(),
            sandbox_id: Some(sandbox.sandbox_id.clone()),
            ..OpenTerminal::default()
        };
        life.engine.open_terminal(open).await.expect("opened");
        let done = life.engine.run_in_terminal(&id, first).await;
        assert_eq!(done.expect("it runs").exit_code, Some(0));
    });
    let second = run("echo $marker");
    bench.life(|life| async move {
        let done = life.engine.run_in_terminal(&session, second).await;
        let done = done.expect("it runs");
        assert_eq!((done.output.as_str(), done.exit_code), ("kept\n", Some(0)));
    });
}
