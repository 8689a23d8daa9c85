//! A command in a sandbox that is already there.

use crate::rivals::quiet;
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};

pub fn measure(bench: &mut Bench) -> Outcome {
    bench.report.group("exec of true in a live sandbox (p50)");
    let mut api = bench.motu.api()?;
    let id = api.create(ENVIRONMENT)?;
    let ours = Timings::of(500, || api.exec(&id, &["true"]).map(drop))?;
    let command = Timings::of(100, || {
        quiet(bench.motu.command(&["exec", &id, "--", "true"]))
    })?;
    api.destroy(&id)?;
    bench
        .report
        .at_most("through the API", ours.p50(), 2.5, "ms");
    bench
        .report
        .note("  p99", format!("{:.2} ms", ours.quantile(0.99)));
    bench.report.note(
        "motu exec, whole command",
        format!("{:.1} ms", command.p50()),
    );
    if let Some(docker) = &bench.docker {
        let name = docker.keep()?;
        let theirs = Timings::of(20, || quiet(docker.command(&["exec", &name, "true"])))?;
        docker.remove(&name)?;
        bench
            .report
            .note("docker exec", format!("{:.1} ms", theirs.p50()));
        bench
            .report
            .at_most("ratio to docker exec", ours.p50() / theirs.p50(), 0.05, "x");
    }
    Ok(())
}
