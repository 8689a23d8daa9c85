//! The docker runtime compared with the docker command, on the same engine and root.

use crate::rivals::quiet;
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::time::Instant;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const EXECS: usize = 200;
const ROUNDS: usize = 10;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("machines in a Docker engine, beside docker itself (p50)");
    bench.note_load();
    let Some(docker) = &bench.docker else {
        bench.report.note("left out", "docker is missing".into());
        return Ok(());
    };
    let socket = docker.socket().display().to_string();
    let settings = format!("[docker]\nsocket = {socket:?}\n");
    bench.motu.configure(Some(&settings))?;
    let measured = figures(bench);
    bench.motu.configure(None)?;
    measured
}

fn figures(bench: &mut Bench) -> Outcome {
    let Some(docker) = &bench.docker else {
        return Ok(());
    };
    // The first create imports the environment.
    let begun = Instant::now();
    let id = create(bench)?;
    let import = begun.elapsed().as_secs_f64();
    let mut api = bench.motu.api()?;
    let exec = Timings::of(EXECS, || api.exec(&id, &["true"]).map(drop))?.p50();
    api.destroy(&id)?;
    let name = docker.keep()?;
    let theirs = Timings::of(20, || quiet(docker.command(&["exec", &name, "true"])))?.p50();
    docker.remove(&name)?;

    // Alternate, so that both run under the same load.
    let (mut ours, mut rivals) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let id = create(bench)?;
        ours.push(begun.elapsed());
        api.destroy(&id)?;
        let begun = Instant::now();
        let name = docker.keep()?;
        rivals.push(begun.elapsed());
        docker.remove(&name)?;
    }
    let (ours, rivals) = (Timings::from(ours).p50(), Timings::from(rivals).p50());
    let report = &mut bench.report;
    report.note("the first, with the import", format!("{import:.1} s"));
    report.note("exec of true, through the API", format!("{exec:.2} ms"));
    report.note("docker exec", format!("{theirs:.1} ms"));
    report.at_most("ratio to docker exec", exec / theirs, 0.1, "x");
    report.note("motu create --runtime docker", format!("{ours:.0} ms"));
    report.note("docker run -d", format!("{rivals:.0} ms"));
    report.at_most("ratio to docker run -d", ours / rivals, 1.15, "x");
    Ok(())
}

/// Creates a sandbox with the command; it returns when the guest has answered.
fn create(bench: &Bench) -> Fallible<String> {
    let words = ["create", ENVIRONMENT, "--runtime", "docker", "--json"];
    let made = bench.motu.json(&words)?;
    let id = made["sandbox_id"].as_str().ok_or("no id")?;
    Ok(id.to_string())
}
