//! The duration of complete commands: create a sandbox, run `true`, destroy it.

use crate::rivals::{bundle, quiet};
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Calls that come one by one, and the time between them: that of an agent that thinks.
const CALLS: usize = 40;
const PAUSE: Duration = Duration::from_millis(300);
/// One-shots at once.
const BURST: usize = 100;

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
    one_by_one(bench, &root)?;
    burst(bench)
}

/// Calls with a pause before each, in turns with bubblewrap.
fn one_by_one(bench: &mut Bench, root: &Path) -> Outcome {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let after_a_pause = |command: Command| -> Fallible<Duration> {
        sleep(PAUSE);
        let begun = Instant::now();
        quiet(command)?;
        Ok(begun.elapsed())
    };
    // The first is not counted.
    for round in 0..=CALLS {
        let run = bench.motu.command(&["run", ENVIRONMENT, "--", "true"]);
        let run = after_a_pause(run)?;
        let rival = after_a_pause(bwrap(root));
        if round > 0 {
            ours.push(run);
            theirs.extend(rival.ok());
        }
    }
    let (ours, theirs) = (Timings::from(ours).p50(), Timings::from(theirs).p50());
    let report = &mut bench.report;
    report.at_most("motu run, with pauses between calls", ours, 6.0, "ms");
    if theirs.is_nan() {
        report.note("bwrap, in turns with it", "left out".to_string());
    } else {
        report.note("bwrap, in turns with it", format!("{theirs:.1} ms"));
        report.at_most("ratio to bwrap", ours / theirs, 1.6, "x");
    }
    Ok(())
}

/// One-shots that are all started at once: the time from there to each one's result.
fn burst(bench: &mut Bench) -> Outcome {
    let mut medians = Vec::new();
    for _ in 0..5 {
        sleep(Duration::from_secs(2));
        let begun = Instant::now();
        let mut running = Vec::with_capacity(BURST);
        for _ in 0..BURST {
            let mut command = bench.motu.command(&["run", ENVIRONMENT, "--", "true"]);
            running.push(command.stdout(Stdio::null()).spawn()?);
        }
        medians.push(results(running, begun)?);
    }
    let median = Timings::from(medians).p50();
    let what = format!("{BURST} one-shots at once, median to a result");
    bench.report.at_most(&what, median, 350.0, "ms");
    Ok(())
}

/// The median of the times at which these end.
fn results(running: Vec<Child>, begun: Instant) -> Fallible<Duration> {
    let waiting = running.into_iter().map(|mut child| {
        std::thread::spawn(move || {
            let status = child.wait();
            (status.is_ok_and(|status| status.success()), begun.elapsed())
        })
    });
    let mut times = Vec::new();
    for waits in waiting.collect::<Vec<_>>() {
        let (worked, time) = waits.join().map_err(|_| "a thread failed")?;
        if !worked {
            return Err("a one-shot of the burst failed".into());
        }
        times.push(time);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn bwrap(root: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind"]).arg(root);
    command.args(["/", "--proc", "/proc", "--dev", "/dev", "true"]);
    command
}

/// Rivals for orientation only; none of them keeps records, enforces limits or has a writable root.
fn others(bench: &Bench, root: &Path, ours: f64) {
    let bwrap = Timings::of(30, || quiet(bwrap(root)));
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
