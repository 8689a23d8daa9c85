//! Tests of the docker runtime on real engines: each test starts its own Docker or Podman with all
//! of its files in one directory, and stops it at the end.

use motu_conformance::subjects::{docker, with_bash};
use motu_conformance::{Bench, Life, Subject, checks, conformance_one_by_one, skip};
use motu_core::exec::ExecRequest;
use motu_core::sandbox::{CreateSandbox, State};
use motu_core::{ErrorKind, Isolation, Program, Service as _, Size};
use motu_testkit::engine::{Engine, Kind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The longest wait for anything, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Runs every check of the suite in sequence; failed ones are listed at the end.
fn whole_suite(engine: &Engine) {
    let mut failed = Vec::new();
    let mut count = 0;
    let mut run = |name: &str, check: &dyn Fn(Subject)| {
        let begun = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| check(subject(engine))));
        let how = if ran.is_ok() { "ok" } else { "FAILED" };
        println!("{how} {name} {} ms", begun.elapsed().as_millis());
        count += 1;
        if ran.is_err() {
            failed.push(name.to_string());
        }
    };
    conformance_one_by_one!(run);
    assert!(count > 90, "only {count} checks");
    assert!(failed.is_empty(), "{} of {count}: {failed:?}", failed.len());
    assert_eq!(engine.containers(), "[]", "something is left");
}

fn subject(engine: &Engine) -> Subject {
    docker(&engine.socket(), None).expect("the engine works")
}

fn script(text: &str) -> ExecRequest {
    ExecRequest::from(Program::shell(text))
}

#[test]
fn docker_takes_the_suite() {
    match Engine::start(Kind::Docker) {
        Ok(engine) => whole_suite(&engine),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn podman_takes_the_suite() {
    match Engine::start(Kind::Podman) {
        Ok(engine) => whole_suite(&engine),
        Err(reason) => skip(&reason),
    }
}

/// Checks of terminals on machines of an engine. Most share one state directory, so that its image
/// is imported only once.
fn terminals(engine: &Engine) {
    let bench = Bench::new(with_bash(docker(&engine.socket(), None)).expect("a Debian"));
    macro_rules! each {
        ($($check:ident),* $(,)?) => {$(
            println!("{}", stringify!($check));
            bench.life(checks::terminals::$check);
            bench.life(|life| async move { clear(&life).await });
        )*};
    }
    each!(
        a_run_gives_output_code_directory_and_time,
        a_run_can_be_watched_and_interrupted,
        a_password_is_typed_and_never_kept,
        a_program_that_reads_lines_is_talked_to,
        a_signal_reaches_whoever_is_in_front,
        a_new_size_is_everybodys,
        much_output_goes_through_in_order,
        a_session_ends_with_its_machine,
    );
    // This check reads everything ever printed, so it needs a fresh bench.
    let fresh = Bench::new(with_bash(docker(&engine.socket(), None)).expect("a Debian"));
    checks::terminals::a_new_daemon_goes_on_with_the_session(&fresh);
}

/// Removes the sandboxes that a check left.
async fn clear(life: &Life) {
    let listed = life.engine.list_sandboxes(Default::default()).await;
    for sandbox in listed.expect("a list") {
        let destroyed = life.engine.destroy_sandbox(&sandbox.sandbox_id).await;
        destroyed.expect("destroyed");
    }
}

#[test]
fn docker_has_terminals() {
    match Engine::start(Kind::Docker) {
        Ok(engine) => terminals(&engine),
        Err(reason) => skip(&reason),
    }
}

/// Checks only an external engine needs: containers of others, images, and restarts of the engine.
#[test]
fn an_engine_is_somebody_elses() {
    let mut engine = match Engine::start(Kind::Docker) {
        Ok(engine) => engine,
        Err(reason) => return skip(&reason),
    };
    walls_are_what_they_are_said_to_be(&engine);
    a_memory_limit_holds(&engine);
    strangers_are_left_alone(&engine);
    images_go_with_their_environment(&engine);
    gvisor_is_had_by_name(&engine);
    an_engine_may_die_under_a_machine(&mut engine);
    a_living_daemon_sees_its_engine_go_and_come(&mut engine);
    what_an_engine_missed_is_made_up_for(&mut engine);
}

fn walls_are_what_they_are_said_to_be(engine: &Engine) {
    let bench = Bench::new(subject(engine));
    bench.life(|life| async move {
        let sandbox = life.create().await;
        assert_eq!(sandbox.isolation, Isolation::Container);
        assert_eq!(sandbox.network, "off");
        let enforced = |name: &str| {
            let limit = sandbox.limits.iter().find(|limit| limit.name == name);
            limit.is_some_and(|limit| limit.enforced)
        };
        assert!(enforced("mem_mib") && enforced("pids_max") && enforced("vcpu_count"));
        assert!(!enforced("disk_mib"));
        let root = CreateSandbox {
            user: Some("root".into()),
            ..life.request()
        };
        let root = life.engine.create_sandbox(root).await.expect("a sandbox");
        let asks = [
            // Only the capabilities of the container runtime.
            ("grep CapEff /proc/self/status", "00000000a00405fb"),
            ("grep CapBnd /proc/self/status", "00000000a00405fb"),
            ("grep NoNewPrivs /proc/self/status", "1"),
            ("grep Seccomp: /proc/self/status", "2"),
            // The guest's directory is not writable, and the files on the host's side are not
            // visible.
            (
                "touch /dev/motu/link/x 2>&1; ls /dev/motu/link | wc -l",
                "0",
            ),
            ("mknod /tmp/null c 1 3 2>&1; ls /tmp | wc -l", "0"),
            ("mount -t tmpfs x /mnt 2>&1; echo $?", "1"),
            ("cat /etc/resolv.conf", "10.107.0.1"),
            ("ls -A /sys/class/net", "lo"),
        ];
        for (ask, answer) in asks {
            let said = life.exec(&root, script(ask)).await;
            let last = said.stdout.split_whitespace().last().map(str::to_string);
            assert_eq!(last.as_deref(), Some(answer), "{ask}: {said:?}");
        }
        let error = life
            .engine
            .create_sandbox(CreateSandbox {
                size: Size {
                    disk_mib: Some(64),
                    ..life.request().size
                },
                ..life.request()
            })
            .await
            .expect_err("nobody bounds the disk");
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.hint.is_some());
    });
}

fn a_memory_limit_holds(engine: &Engine) {
    let bench = Bench::new(subject(engine));
    bench.life(|life| async move {
        let small = CreateSandbox {
            size: Size {
                mem_mib: Some(32),
                ..life.request().size
            },
            ..life.request()
        };
        let sandbox = life.engine.create_sandbox(small).await.expect("a sandbox");
        let hog = life
            .exec(&sandbox, script("x=a; while :; do x=$x$x; done"))
            .await;
        assert_ne!(hog.exit_code, 0, "{hog:?}");
        // The process ran out of memory; the machine survives.
        let after = life.exec(&sandbox, script("echo here")).await;
        assert_eq!(after.stdout, "here\n");
    });
}

fn strangers_are_left_alone(engine: &Engine) {
    let one = Bench::new(subject(engine));
    let other = Bench::new(subject(engine));
    let id = one.life(|life| async move { life.create().await.sandbox_id });
    // Another state directory removes everything it considers its own.
    other.life(|life| async move {
        let gone = life.create().await;
        life.engine
            .destroy_sandbox(&gone.sandbox_id)
            .await
            .expect("destroyed");
        life.runtime.prune().await.expect("pruned");
    });
    one.life(|life| async move {
        let sandbox = life.get(&id).await;
        assert_eq!(sandbox.state, State::Running);
        life.exec(&sandbox, script("true")).await;
    });
}

fn images_go_with_their_environment(engine: &Engine) {
    let bench = Bench::new(subject(engine));
    let home = bench.home().to_path_buf();
    let identity = || std::fs::read_to_string(home.join("docker.id")).expect("an identity");
    bench.life(|life| async move {
        let sandbox = life.create().await;
        assert_eq!(engine.images_of(&identity()), 1);
        // The environment exists, so its image stays, used or not.
        life.runtime.environments_removed().await.expect("told");
        assert_eq!(engine.images_of(&identity()), 1);
        life.engine
            .destroy_sandbox(&sandbox.sandbox_id)
            .await
            .expect("destroyed");
        assert!(life.runtime.prune().await.expect("pruned") > 0);
        assert_eq!(engine.images_of(&identity()), 0);
        // The image is imported again, without a notice that it was removed.
        life.create().await;
        assert_eq!(engine.images_of(&identity()), 1);
    });
}

fn gvisor_is_had_by_name(engine: &Engine) {
    let subject = docker(&engine.socket(), Some("runsc")).expect("the engine has runsc");
    let bench = Bench::new(subject);
    let id = bench.life(|life| async move {
        let sandbox = life.create().await;
        assert_eq!(sandbox.isolation, Isolation::Gvisor);
        // The kernel is gVisor's, not the host's.
        let kernel = life.exec(&sandbox, script("dmesg | head -n 1")).await;
        assert!(kernel.stdout.contains("gVisor"), "{kernel:?}");
        let inside = life.exec(&sandbox, script("ls /dev/motu/link")).await;
        assert_eq!(inside.stdout, "", "{inside:?}");
        let network = CreateSandbox {
            network: true,
            ..life.request()
        };
        let error = life.engine.create_sandbox(network).await;
        assert_eq!(error.expect_err("refused").kind, ErrorKind::Unsupported);
        sandbox.sandbox_id
    });
    bench.life(|life| async move {
        let sandbox = life.get(&id).await;
        assert_eq!(sandbox.state, State::Running, "{sandbox:?}");
        let said = life.exec(&sandbox, script("echo again")).await;
        assert_eq!(said.stdout, "again\n");
    });
}

fn an_engine_may_die_under_a_machine(engine: &mut Engine) {
    let bench = Bench::new(subject(engine));
    let id = bench.life(|life| async move { life.create().await.sandbox_id });
    engine.kill();
    // A new daemon finds the machine while the engine is stopped, and the machine works.
    let known = id.clone();
    bench.life(|life| async move {
        let sandbox = life.get(&known).await;
        assert_eq!(sandbox.state, State::Running, "{sandbox:?}");
        let said = life.exec(&sandbox, script("echo still here")).await;
        assert_eq!(said.stdout, "still here\n");
        let begun = Instant::now();
        let error = life.engine.create_sandbox(life.request()).await;
        assert_eq!(error.expect_err("no engine").kind, ErrorKind::Unavailable);
        assert!(begun.elapsed() < SOON);
    });
    engine.again().expect("the engine starts again");
    // A restarted engine kills the containers it finds running; either way the sandbox can be
    // destroyed.
    bench.life(|life| async move {
        let destroyed = life.engine.destroy_sandbox(&id).await;
        destroyed.expect("destroyed by the engine that is there again");
    });
    assert_eq!(engine.containers(), "[]");
}

/// A running daemon reports the right state before, during and after a stop of the engine.
fn a_living_daemon_sees_its_engine_go_and_come(engine: &mut Engine) {
    let bench = Bench::new(subject(engine));
    let there = &mut *engine;
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let id = &sandbox.sandbox_id;
        let counting = script("i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.05; done");
        let counting = life.engine.exec_background(id, counting).await;
        counting.expect("started");
        there.kill();
        // Processes continue: they are not the engine's children.
        let grows =
            "a=$(cat /tmp/n); while [ \"$(cat /tmp/n)\" = \"$a\" ]; do sleep 0.05; done; echo grew";
        let said = life.exec(&sandbox, script(grows)).await;
        assert_eq!(said.stdout, "grew\n", "{said:?}");
        there.again().expect("the engine starts again");
        // The engine may kill the containers it finds running, or keep them; the reported state
        // must match.
        let second = life.create().await;
        let said = life.exec(&second, script("echo new")).await;
        assert_eq!(said.stdout, "new\n", "{said:?}");
        let begun = Instant::now();
        loop {
            let now = life.get(id).await;
            let answered = life.engine.exec(id, script("echo here")).await;
            match (now.state, answered) {
                (State::Running, Ok(said)) => {
                    assert_eq!(said.stdout, "here\n");
                    break;
                }
                (State::Failed, Err(error)) => {
                    assert!(now.reason.is_some_and(|reason| !reason.is_empty()));
                    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
                    break;
                }
                // Any other state may only be reported briefly.
                other => assert!(begun.elapsed() < SOON, "{other:?}"),
            }
        }
        for id in [id, &second.sandbox_id] {
            life.engine.destroy_sandbox(id).await.expect("destroyed");
        }
    });
    assert_eq!(engine.containers(), "[]");
}

fn what_an_engine_missed_is_made_up_for(engine: &mut Engine) {
    let bench = Bench::new(subject(engine));
    let engine = &mut *engine;
    bench.life(|life| async move {
        let sandbox = life.create().await;
        let dir = life.machine_dir(&sandbox.sandbox_id);
        engine.kill();
        // The machine is killed while the engine is stopped, and its container stays recorded for
        // removal.
        let _ = life.engine.destroy_sandbox(&sandbox.sandbox_id).await;
        assert!(dir.exists());
        engine.again().expect("the engine starts again");
        assert!(engine.containers().contains(sandbox.sandbox_id.as_str()));
        life.create().await;
        assert!(!engine.containers().contains(sandbox.sandbox_id.as_str()));
        assert!(!dir.exists());
    });
}
