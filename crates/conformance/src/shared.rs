//! Several checks on one machine, for runtimes whose machines take long to start.
//!
//! Checks of commands, processes and files need a running sandbox and nothing of its life. In one test they get the same
//! machine one after the other; between two of them its processes are ended and its working directory is emptied. A
//! check that fails is named, and the next one gets a new machine.

use crate::bench::Bench;
use crate::life::{Life, Shared};
use crate::subject::{Skip, Subject};
use futures_util::FutureExt as _;
use motu_core::exec::{Selector, SignalProcess};
use motu_core::files::{GuestPath, ListFiles, ListOptions, RemoveFile};
use motu_core::{Service as _, Signal};
use motu_needs::skip;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

/// A check, for a list of them.
pub type Check = Box<dyn Fn(Life) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Runs checks one after the other on one machine.
///
/// # Panics
///
/// With the names of the checks that failed.
pub fn prove_together(subject: Result<Subject, Skip>, checks: &[(&str, Check)]) {
    let bench = match subject {
        Ok(subject) => Bench::new(subject),
        Err(Skip(reason)) => return skip(&reason),
    };
    let failed = bench.life(|life| async move {
        let shared = Shared::default();
        let mut failed = Vec::new();
        for (name, check) in checks {
            println!("check {name}");
            let done = AssertUnwindSafe(check(life.sharing(&shared)));
            match done.catch_unwind().await {
                Ok(()) => tidy(&life, &shared).await,
                Err(_) => {
                    failed.push(*name);
                    shared.lock().await.take();
                }
            }
        }
        failed
    });
    assert!(failed.is_empty(), "checks that failed: {failed:?}");
}

/// Leaves the machine as the next check expects it.
async fn tidy(life: &Life, shared: &Shared) {
    let Some(sandbox) = shared.lock().await.clone() else {
        return;
    };
    let id = &sandbox.sandbox_id;
    let running = life.engine.list_processes(id).await.expect("processes");
    for process in running.iter().filter(|process| process.exited.is_none()) {
        let kill = SignalProcess {
            signal: Signal::KILL,
            tree: true,
        };
        let chosen = Selector::Pid(process.pid);
        // It may have ended meanwhile.
        let _ = life.engine.signal_process(id, &chosen, kill).await;
    }
    let place = GuestPath::new(sandbox.workdir.clone()).expect("the path is absolute");
    let list = ListFiles::new(place, ListOptions::default());
    let found = life.engine.list_files(id, list).await.expect("a list");
    for entry in found.entries {
        let remove = RemoveFile {
            path: GuestPath::new(entry.path.clone()).expect("the path is absolute"),
            recursive: true,
            user: None,
        };
        life.engine.remove_file(id, remove).await.expect("removed");
    }
}

/// The checks of one group as one test.
#[doc(hidden)]
#[macro_export]
macro_rules! together {
    ($subject:expr, across $rest:tt) => {
        $crate::group!($subject, across $rest);
    };
    ($subject:expr, exec: prove, $checks:tt) => {
        $crate::on_one_machine!($subject, exec, $checks);
    };
    ($subject:expr, processes: prove, $checks:tt) => {
        $crate::on_one_machine!($subject, processes, $checks);
    };
    ($subject:expr, files: prove, $checks:tt) => {
        $crate::on_one_machine!($subject, files, $checks);
    };
    ($subject:expr, $group:ident: $prove:ident, $checks:tt) => {
        $crate::group!($subject, $group: $prove, $checks);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! on_one_machine {
    ($subject:expr, $group:ident, [$($check:ident),* $(,)?]) => {
        #[test]
        fn $group() {
            let checks: [(&str, $crate::shared::Check); _] = [$((
                stringify!($check),
                Box::new(|life| Box::pin($crate::checks::$group::$check(life))),
            )),*];
            $crate::shared::prove_together($subject, &checks);
        }
    };
}
