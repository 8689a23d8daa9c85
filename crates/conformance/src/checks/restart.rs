//! What a new daemon finds after a crash of the previous one.

use crate::bench::Bench;
use crate::life::{argv, eventually, hear_until, refused, shell};
use motu_core::exec::{AttachFrom, ExecRequest, Selector};
use motu_core::sandbox::State;
use motu_core::{ErrorKind, Program, Service as _};

pub fn a_new_daemon_adopts_what_runs(bench: &Bench) {
    let before = bench.life(|life| async move {
        let sandbox = life.create().await;
        life.write(&sandbox, "file", b"kept").await;
        sandbox
    });
    bench.life(|life| async move {
        let listed = life
            .engine
            .list_sandboxes(Default::default())
            .await
            .expect("a list");
        assert_eq!(listed.len(), 1);
        let now = &listed[0];
        assert_eq!(now.sandbox_id, before.sandbox_id);
        assert_eq!(now.state, State::Running);
        assert_eq!(now.created_at, before.created_at);
        assert_eq!(now.expires_at, before.expires_at);
        assert_eq!(life.read(now, "file").await.expect("read"), b"kept");
        assert_eq!(life.exec(now, argv(&["true"])).await.exit_code, 0);
        let pwd = life.exec(now, argv(&["pwd"])).await;
        assert_eq!(pwd.stdout, format!("{}\n", before.workdir));
    });
}

pub fn output_of_both_lives_is_complete(bench: &Bench) {
    let before = bench.life(|life| async move {
        // If processes end with their call, there is nothing to find.
        if life.lacks().await.background {
            return None;
        }
        let sandbox = life.create().await;
        let request = ExecRequest {
            program: Program {
                stdin: true,
                ..shell("echo one; sleep 1; echo two; sleep 1; echo three; sleep 600").program
            },
            tag: Some("job".into()),
            ..shell("echo one; sleep 1; echo two; sleep 1; echo three; sleep 600")
        };
        let id = &sandbox.sandbox_id;
        let started = life.engine.exec_background(id, request).await;
        let started = started.expect("started");
        let from = AttachFrom::Oldest;
        let job = Selector::Tag("job".into());
        let session = life.engine.attach(id, &job, from.into()).await;
        let mut session = session.expect("attached");
        hear_until(&mut session, "one\n").await;
        Some((sandbox, started.pid))
    });
    let Some((before, pid)) = before else {
        return;
    };
    bench.life(|life| async move {
        let id = &before.sandbox_id;
        let process = life.process(&before, pid).await.expect("it is listed");
        assert_eq!(process.tag, "job");
        assert!(process.exited.is_none(), "{process:?}");
        let from = AttachFrom::Oldest;
        let session = life
            .engine
            .attach(id, &Selector::Pid(pid), from.into())
            .await;
        let mut session = session.expect("attached");
        hear_until(&mut session, "one\ntwo\nthree\n").await;
        life.engine.destroy_sandbox(id).await.expect("destroyed");
        assert!(!life.machine_dir(id).exists());
    });
}

pub fn a_paused_sandbox_stays_paused(bench: &Bench) {
    let before = bench.life(|life| async move {
        if !life.runtime.capabilities().pause {
            return None;
        }
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        life.engine.pause_sandbox(id).await.expect("paused");
        Some(sandbox)
    });
    let Some(before) = before else {
        return;
    };
    bench.life(|life| async move {
        let id = &before.sandbox_id;
        assert_eq!(life.get(id).await.state, State::Paused);
        refused(
            ErrorKind::Conflict,
            life.engine.exec(id, argv(&["true"])).await,
        );
        life.engine.resume_sandbox(id).await.expect("resumed");
        assert_eq!(life.exec(&before, argv(&["true"])).await.exit_code, 0);
    });
}

pub fn what_was_destroyed_stays_destroyed(bench: &Bench) {
    let before = bench.life(|life| async move {
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        life.engine.destroy_sandbox(id).await.expect("destroyed");
        sandbox
    });
    bench.life(|life| async move {
        let id = &before.sandbox_id;
        assert!(
            life.engine
                .list_sandboxes(Default::default())
                .await
                .expect("a list")
                .is_empty()
        );
        assert_eq!(life.get(id).await.state, State::Destroyed);
        refused(
            ErrorKind::NotFound,
            life.engine.exec(id, argv(&["true"])).await,
        );
    });
}

pub fn a_machine_that_died_meanwhile_is_failed(bench: &Bench) {
    let before = bench.life(|life| async move { life.create().await });
    let id = &before.sandbox_id;
    let dir = bench
        .home()
        .join("machines")
        .join(bench.subject().name)
        .join(id.as_str());
    (bench.subject().end_machine)(id, &dir);
    bench.life(|life| async move {
        // A killed process may take a moment to disappear.
        eventually("the end is seen", || async {
            life.get(id).await.state == State::Failed
        })
        .await;
        let now = life.get(id).await;
        assert!(now.reason.is_some_and(|reason| !reason.is_empty()));
        refused(
            ErrorKind::Unavailable,
            life.engine.exec(id, argv(&["true"])).await,
        );
        let gone = life.engine.destroy_sandbox(id).await.expect("destroyed");
        assert_eq!(gone.state, State::Destroyed);
        assert!(!life.machine_dir(id).exists());
    });
}
