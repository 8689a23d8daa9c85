//! Every speed claim of SPECIFICATION.md, measured beside its rival in the same run.
//!
//! ```text
//!   cargo run --release -p motu-benches [-- GROUP…]     groups: memory start exec bytes crowd vm
//! ```
//!
//! Uses a state directory of its own under `target/bench-home`, starts Docker's
//! daemon on a socket of its own, and ends both. A rival that cannot run here is
//! named and left out; a figure that misses its mark is printed as a miss.

mod api;
mod bytes;
mod crowd;
mod exec;
mod memory;
mod motu;
mod report;
mod rivals;
mod start;
mod stats;
mod vm;

use report::Report;
use std::process::ExitCode;

/// The environment both sides run.
pub const ENVIRONMENT: &str = "debian:12";

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let groups: [Group<'_>; 6] = [
        // First: what an empty daemon weighs, before it has done anything.
        ("memory", memory::measure),
        ("start", start::measure),
        ("exec", exec::measure),
        ("bytes", bytes::measure),
        ("crowd", crowd::measure),
        ("vm", vm::measure),
    ];
    if let Some(unknown) = wanted
        .iter()
        .find(|name| groups.iter().all(|(group, _)| group != name))
    {
        eprintln!("there is no group {unknown:?}; groups: memory start exec bytes crowd vm");
        return ExitCode::from(2);
    }
    match run(&groups, &wanted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How a group of measurements went.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What every group needs.
#[derive(Debug)]
pub struct Bench {
    pub motu: motu::Motu,
    pub docker: Option<rivals::Docker>,
    pub report: Report,
}

type Group<'a> = (&'a str, fn(&mut Bench) -> Outcome);

fn run(groups: &[Group<'_>], wanted: &[String]) -> Outcome {
    let motu = motu::Motu::start()?;
    println!("state directory {}", motu.home.display());
    let docker = match rivals::Docker::start(&motu.environment_root()?) {
        Ok(docker) => Some(docker),
        Err(error) => {
            println!("docker is left out: {error}");
            None
        }
    };
    let mut bench = Bench {
        motu,
        docker,
        report: Report::default(),
    };
    for (name, measure) in groups {
        if wanted.is_empty() || wanted.iter().any(|group| group == name) {
            measure(&mut bench)?;
        }
    }
    bench.report.finish();
    Ok(())
}
