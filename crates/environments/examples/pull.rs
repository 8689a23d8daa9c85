//! Pulls one environment into a home directory and prints its progress.
//!
//! `cargo run -p motu-environments --example pull -- HOME NAME`

use std::{path::Path, process::ExitCode, time::Instant};

use motu_environments::{Environments, Privilege, Progress};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [home, name] = arguments.as_slice() else {
        eprintln!("usage: pull HOME NAME");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let progress = Progress::new(move |event| {
        let at = started.elapsed().as_secs_f64();
        let count = match (event.done, event.total) {
            (Some(done), Some(total)) => format!(" ({done}/{total})"),
            _ => String::new(),
        };
        eprintln!("{at:7.2} s  {:<10} {}{count}", event.stage, event.message);
    });
    let pulled = match Environments::open(Path::new(home), Privilege::detect()) {
        Ok(environments) => match environments.pull(name, progress).await {
            Ok(_) => environments.resolve(name).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match pulled {
        Ok(environment) => {
            println!("{} {}", environment.digest, environment.root.display());
            eprintln!("{:7.2} s  done", started.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
