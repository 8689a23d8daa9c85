//! Every speed claim of SPECIFICATION.md, measured beside its rival in the same run.
//!
//! ```text
//!   cargo run --release -p motu-benches [-- GROUP…]     groups: memory start exec bytes crowd vm
//!                                                       gvisor workspaces pull terminals egress docker http
//!                                                       build redaction service kept
//! ```
//!
//! `--quick` makes the trees and images of `workspaces` and `pull` small: it shows that they
//! work, and its figures say little.
//!
//! Uses a state directory of its own under `target/bench-home`, starts Docker's
//! daemon on a socket of its own, and ends both. A rival that cannot run here is
//! named and left out; a figure that misses its mark is printed as a miss.

mod api;
mod audit;
mod build;
mod bytes;
mod crowd;
mod docker;
mod egress;
mod exec;
mod gvisor;
mod http;
mod kept;
mod memory;
mod motu;
mod noise;
mod pull;
mod redaction;
mod report;
mod rivals;
mod service;
mod start;
mod stats;
mod terminals;
mod vm;
mod workspaces;

use report::Report;
use std::process::ExitCode;

/// The environment both sides run.
pub const ENVIRONMENT: &str = "debian:12";

fn main() -> ExitCode {
    // The measured gateway is this program itself.
    if std::env::args().nth(1).as_deref() == Some(egress::GATEWAY) {
        std::process::exit(motu_egress::gateway::run());
    }
    let (options, wanted): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word == "--quick");
    let groups: [Group<'_>; 18] = [
        // First: the memory of an idle daemon, before it has done anything.
        ("memory", memory::measure),
        ("start", start::measure),
        ("exec", exec::measure),
        ("audit", audit::measure),
        ("bytes", bytes::measure),
        ("crowd", crowd::measure),
        ("vm", vm::measure),
        ("gvisor", gvisor::measure),
        ("workspaces", workspaces::measure),
        ("pull", pull::measure),
        ("terminals", terminals::measure),
        ("egress", egress::measure),
        ("docker", docker::measure),
        ("http", http::measure),
        ("build", build::measure),
        ("redaction", redaction::measure),
        ("service", service::measure),
        ("kept", kept::measure),
    ];
    if let Some(unknown) = wanted
        .iter()
        .find(|name| groups.iter().all(|(group, _)| group != name))
    {
        let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no group {unknown:?}; groups: {}", names.join(" "));
        return ExitCode::from(2);
    }
    match run(&groups, &wanted, !options.is_empty()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The result of a group of measurements.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// State that every group needs.
#[derive(Debug)]
pub struct Bench {
    pub motu: motu::Motu,
    pub docker: Option<rivals::Docker>,
    pub report: Report,
    /// Small trees and images: a functional check, not a measurement.
    pub quick: bool,
}

impl Bench {
    /// Reports the load of this host, which affects the results.
    pub fn note_load(&self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        self.report
            .note("load of this host", load.split(' ').take(1).collect());
    }
}

/// Groups that compare with Docker's engine.
const WITH_DOCKER: [&str; 6] = ["start", "exec", "bytes", "crowd", "docker", "build"];

type Group<'a> = (&'a str, fn(&mut Bench) -> Outcome);

fn run(groups: &[Group<'_>], wanted: &[String], quick: bool) -> Outcome {
    // These need neither the motu binary nor its daemon.
    let mut alone = Report::default();
    match wanted {
        [only] if only == "egress" => {
            egress::figures(&mut alone)?;
            alone.finish();
            return Ok(());
        }
        [only] if only == "redaction" => {
            redaction::figures(&mut alone);
            alone.finish();
            return Ok(());
        }
        _ => {}
    }
    let motu = motu::Motu::start()?;
    println!("state directory {}", motu.home.display());
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|group| group == name);
    let docker = match WITH_DOCKER.iter().any(|name| is_wanted(name)) {
        true => docker(&motu),
        false => None,
    };
    let mut bench = Bench {
        motu,
        docker,
        report: Report::default(),
        quick,
    };
    for (name, measure) in groups {
        if is_wanted(name) {
            measure(&mut bench)?;
        }
    }
    bench.report.finish();
    Ok(())
}

fn docker(motu: &motu::Motu) -> Option<rivals::Docker> {
    let started = motu
        .environment_root()
        .and_then(|root| rivals::Docker::start(&root));
    started
        .inspect_err(|error| println!("docker is left out: {error}"))
        .ok()
}
