//! The http runtime on services with the provider protocol: ours, and one without any extensions.
//! Each is started by its test on loopback, with its own machines.

mod bare;
mod served;
mod twisted;

use motu_conformance::subjects::{self, http};
use motu_conformance::{Bench, Skip, Subject, conformance_one_by_one, skip};
use motu_contract::{Outcome, examine};
use motu_core::exec::ExecRequest;
use motu_core::sandbox::State;
use motu_core::{ErrorKind, Program, Service as _};
use served::{Kind, Served};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use twisted::{Twist, Way};

fn subject(served: &Served) -> Subject {
    http(&served.url(), &served.key_file(), served.ends()).expect("the service works")
}

/// All checks of the suite, one after the other; failures are reported at the end.
fn whole_suite(kind: Kind, behind: Result<Subject, Skip>) {
    let served = match behind {
        Ok(behind) => Served::start(kind, behind),
        Err(Skip(reason)) => return skip(&reason),
    };
    let mut failed = Vec::new();
    let mut count = 0;
    let mut run = |name: &str, check: &dyn Fn(Subject)| {
        let begun = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| check(subject(&served))));
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
    assert_eq!(served.count(), 0, "something is left at the service");
}

#[test]
fn our_service_takes_the_suite() {
    whole_suite(Kind::Ours, subjects::fake());
}

#[test]
fn our_service_takes_the_suite_with_real_machines() {
    whole_suite(Kind::Ours, subjects::container());
}

#[test]
fn a_bare_service_takes_the_suite() {
    whole_suite(Kind::Bare, subjects::fake());
}

/// The output of `motu doctor --conformance` for authors of a service.
#[test]
fn the_contract_is_found_kept_and_found_broken() {
    let fake = || subjects::fake().unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    for kind in [Kind::Ours, Kind::Bare] {
        let served = Served::start(kind, fake());
        let bench = Bench::new(subject(&served));
        let found = bench.life(|life| async move { examine(&life.engine, life.request()).await });
        assert!(found.holds, "{kind:?}: {:#?}", found.findings);
        assert!(found.findings.len() > 20);
        assert_eq!(served.count(), 0, "something is left at the service");
    }
    // A service that refuses everyone fulfils nothing, which is reported.
    let served = Served::start(Kind::Bare, fake());
    let bench = Bench::new(subject(&served));
    std::fs::write(served.key_file(), "another-key-than-the-right-one").expect("a key");
    let found = bench.life(|life| async move { examine(&life.engine, life.request()).await });
    assert!(!found.holds);
    assert_eq!(found.findings[0].outcome, Outcome::Fails);
    assert!(found.findings[0].detail.contains("401"), "{found:?}");
    assert_eq!(found.findings[1].outcome, Outcome::Untried);
}

/// Answers that fail in the middle: the call fails with an error, and the machine is unaffected.
#[test]
fn a_service_that_fails_in_the_middle_of_an_answer_fails_that_call_alone() {
    let fake = subjects::fake().unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    let served = Served::start(Kind::Ours, fake);
    let way = Way::to(served.address());
    let url = format!("http://{}", way.address);
    let subject = http(&url, &served.key_file(), served.ends()).expect("the service works");
    let bench = Bench::new(subject);
    // A silent service is given up after this time.
    std::fs::write(
        bench.home().join("config.toml"),
        "guest_silence_seconds = 2\n",
    )
    .expect("a configuration");
    bench.life(|life| {
        let way = &way;
        async move {
            let sandbox = life.create().await;
            for twist in [Twist::Cut, Twist::Rubbish, Twist::Hang] {
                way.twist(twist, "begun");
                let script =
                    ExecRequest::from(Program::argv(["sh", "-c", "echo begun; sleep 600"]));
                let failed = life.engine.exec(&sandbox.sandbox_id, script).await;
                let error = failed.expect_err("it went wrong");
                let kinds = [ErrorKind::Transport, ErrorKind::Unavailable];
                assert!(kinds.contains(&error.kind), "{twist:?}: {error:?}");
                way.twist(Twist::Nothing, "");
                // The machine still counts as running: no answer said that it is gone.
                let still = life.get(&sandbox.sandbox_id).await;
                assert_eq!(still.state, State::Running, "{twist:?}");
                let command = ["echo", "again"].map(String::from).into();
                let again = ExecRequest::from(Program {
                    command,
                    ..Program::default()
                });
                let again = life.exec(&sandbox, again).await;
                assert_eq!(again.stdout, "again\n", "{twist:?}");
            }
            let gone = life.engine.destroy_sandbox(&sandbox.sandbox_id).await;
            gone.expect("it is destroyed");
        }
    });
    assert_eq!(served.count(), 0, "something is left at the service");
}
