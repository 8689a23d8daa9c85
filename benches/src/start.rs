//! The duration of complete commands: create a sandbox, run `true`, destroy it.

use crate::rivals::{bundle, quiet};
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::path::Path;
use std::process::Command;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("one command in a fresh sandbox (whole command, p50)");
    let motu = Timings::of(100, || {
        quiet(bench.motu.command(&["run", ENVIRONMENT, "--", "true"]))
    })?;
    bench
        .report
        .at_most("motu run debian:12 -- true", motu.p50(), 15.0, "ms");
    bench
        .report
        .note("  p95", format!("{:.1} ms", motu.quantile(0.95)));
    if let Some(docker) = &bench.docker {
        let theirs = Timings::of(10, || quiet(docker.run(&["true"])))?;
        bench.report.note(
            "docker run --rm --network none",
            format!("{:.1} ms", theirs.p50()),
        );
        bench
            .report
            .at_most("ratio to docker", motu.p50() / theirs.p50(), 0.08, "x");
    }
    let root = bench.motu.environment_root()?;
    let host = Timings::of(50, || quiet(Command::new("true")))?;
    bench.report.note(
        "fork+exec of true on the host",
        format!("{:.1} ms", host.p50()),
    );
    others(bench, &root, motu.p50());
    Ok(())
}

/// Rivals for orientation only; none of them keeps records, enforces limits or has a writable root.
fn others(bench: &Bench, root: &Path, ours: f64) {
    let root_text = root.display().to_string();
    let bwrap = Timings::of(30, || {
        let mut command = Command::new("bwrap");
        command.args([
            "--unshare-all",
            "--ro-bind",
            &root_text,
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "true",
        ]);
        quiet(command)
    });
    note(bench, "bwrap --unshare-all", bwrap, ours);
    let Ok(bundle) = bundle(root) else {
        bench
            .report
            .note("runc, crun", "left out: no bundle".to_string());
        return;
    };
    let state = bundle.path().join("state");
    let mut number = 0;
    let mut oci = |program: &str, wrap: &[&str]| {
        number += 1;
        let mut round = 0;
        Timings::of(20, || {
            round += 1;
            let name = format!("bench-{number}-{round}");
            let mut words: Vec<&str> = wrap.to_vec();
            words.push(program);
            let mut command = Command::new(words[0]);
            command
                .args(&words[1..])
                .arg("--root")
                .arg(&state)
                .arg("run")
                .arg("--bundle")
                .arg(bundle.path())
                .arg(&name);
            quiet(command)
        })
    };
    note(bench, "runc run", oci("runc", &[]), ours);
    // crun refuses hosts where cgroup v2 has a stray controller beside v1, so the v2 hierarchy is
    // hidden.
    let hide = [
        "unshare",
        "-m",
        "sh",
        "-c",
        "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$0\" \"$@\"",
    ];
    note(
        bench,
        "crun run (with unshare -m around it)",
        oci("crun", &hide),
        ours,
    );
}

fn note(bench: &Bench, what: &str, found: Result<Timings, Box<dyn std::error::Error>>, ours: f64) {
    let text = match found {
        Ok(timings) => format!("{:.1} ms ({:.2} x)", timings.p50(), ours / timings.p50()),
        Err(error) => format!(
            "left out: {}",
            error.to_string().lines().last().unwrap_or("")
        ),
    };
    bench.report.note(what, text);
}
