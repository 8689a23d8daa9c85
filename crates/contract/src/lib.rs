//! Checks the contract of a runtime from outside: creates, uses and destroys a sandbox through the
//! service, and reports for each promise whether it holds.
//!
//! ```text
//!   lib      the list of promises, and the findings
//!   asks     short forms of the calls that checks use
//!   checks   one function per promise
//!   trial    a self-test of a runtime on this host; outside: its machines as the host sees them
//! ```
//!
//! Nothing here is specific to a runtime. `motu doctor --conformance` shows the findings to
//! authors of providers; the conformance suite asserts that all promises hold.

mod asks;
mod checks;
mod outside;
mod trial;

pub use trial::{Came, Step, Subject, Trial, try_out};

use asks::Asks;
use motu_core::Service;
use motu_core::sandbox::CreateSandbox;
use serde::Serialize;

/// The result of checking one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Holds,
    Fails,
    /// Not checked, because something it depends on failed.
    Untried,
}

/// One promise and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub promise: &'static str,
    pub outcome: Outcome,
    /// What happened instead; empty if the promise holds.
    pub detail: String,
}

/// All findings about a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    pub runtime: String,
    pub environment: String,
    pub holds: bool,
    pub findings: Vec<Finding>,
}

/// An error says why the promise does not hold.
type Broken = Result<(), String>;

/// Runs checks and records their results.
macro_rules! look {
    ($all:ident, $asks:expr, $($check:ident: $promise:literal,)*) => {
        $(
            let found = checks::$check($asks).await;
            $all.push(finding(stringify!($check), $promise, found));
        )*
    };
}

/// Creates a sandbox from this request and runs all checks on it. The sandbox is destroyed at the
/// end.
pub async fn examine(service: &dyn Service, request: CreateSandbox) -> Findings {
    let runtime = request
        .runtime
        .clone()
        .unwrap_or_else(|| "auto".to_string());
    let environment = request.environment.clone();
    let mut all = Vec::new();
    let promise = "a sandbox is made, has an id and is running";
    match service.create_sandbox(request).await {
        Err(error) => {
            all.push(finding("spawn", promise, Err(error.to_string())));
            all.push(Finding {
                name: "everything else",
                promise: "needs a sandbox",
                outcome: Outcome::Untried,
                detail: String::new(),
            });
        }
        Ok(sandbox) => {
            let asks = Asks::new(service, sandbox);
            all.push(finding("spawn", promise, checks::spawned(&asks).await));
            used(&asks, &mut all).await;
        }
    }
    let holds = all.iter().all(|found| found.outcome == Outcome::Holds);
    Findings {
        runtime,
        environment,
        holds,
        findings: all,
    }
}

async fn used(asks: &Asks<'_>, all: &mut Vec<Finding>) {
    look!(all, asks,
        output_and_exit: "a command's output and exit code come back",
        nonzero_exit: "an exit code that is not 0 is a result, not an error",
        channels: "standard output and standard error stay apart",
        shell_mode: "in shell mode arguments are quoted and appended to the script",
        argv_mode: "in argv mode no shell is involved",
        surroundings: "variables and the working directory are the caller's",
        missing_program: "a program that is missing is exit code 127",
        time_limit: "a command that takes too long is said to have timed out",
        stream: "a stream has all output, and ends",
        at_once: "commands run beside each other",
        write_and_read: "what is written is read, and its parents are made",
        large_file: "a megabyte survives the round trip",
        same_tree: "commands and file calls see the same files",
        stat: "a file's kind, size and mode are told",
        list: "a directory lists what is in it",
        glob: "a pattern finds what it fits",
        move_file: "a file moves with its content",
        chmod: "a mode is changed",
        delete: "files go, and directories with what is in them only when told",
        missing_file: "a missing file is an error, and the sandbox is still there",
        unknown_sandbox: "what never was is not found",
        health: "asking for health is fast",
        destroy: "destroying ends it, and may be repeated",
        after_destroy: "after that commands and files are not found",
    );
}

fn finding(name: &'static str, promise: &'static str, found: Broken) -> Finding {
    let (outcome, detail) = match found {
        Ok(()) => (Outcome::Holds, String::new()),
        Err(detail) => (Outcome::Fails, detail),
    };
    Finding {
        name,
        promise,
        outcome,
        detail,
    }
}
