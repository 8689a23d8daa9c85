//! gVisor compared with `runsc` alone, and with a pool.

use crate::rivals::{bundle, present, quiet};
use crate::stats::Timings;
use crate::{Bench, Outcome};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 20;
/// Machines in the pool during the measurement.
const READY: usize = 2;
/// How long a pool may take to fill.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait for an idle host.
const QUIET_PATIENCE: Duration = Duration::from_secs(2);
/// The interval of measuring CPU usage, and the minimum idle share.
const LOOK: Duration = Duration::from_millis(100);
const IDLE: f64 = 0.9;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("gVisor, and machines that wait ready (whole commands, p50)");
    bench.note_load();
    quiet(bench.motu.command(&["env", "pull", "busybox"]))?;
    if present(&bench.report, &["runsc", "runc"]) {
        let bare = bare(&bench.motu.root_of("busybox")?)?;
        bench.report.note(
            "runsc run of true, same root and options",
            format!("{bare:.0} ms"),
        );
        let cold = Timings::of(ROUNDS, || quiet(run(bench, "gvisor")))?.p50();
        bench.report.note(
            "motu run busybox --runtime gvisor -- true",
            format!("{cold:.0} ms"),
        );
        bench
            .report
            .at_most("ratio to runsc run", cold / bare, 1.15, "x");
        let warm = pooled(bench, "gvisor")?;
        bench
            .report
            .note("the same with a warm pool", format!("{warm:.0} ms"));
        bench
            .report
            .at_most("ratio to runsc run", warm / bare, 0.3, "x");
    }
    if present(&bench.report, &["qemu-system-x86_64"]) {
        let warm = pooled(bench, "qemu")?;
        bench
            .report
            .at_most("motu run --runtime qemu, warm pool", warm, 60.0, "ms");
    }
    Ok(())
}

fn run(bench: &Bench, runtime: &str) -> Command {
    let words = ["run", "busybox", "--runtime", runtime, "--", "true"];
    bench.motu.command(&words)
}

/// `runsc` alone, with the options motu uses.
fn bare(root: &Path) -> Fallible<f64> {
    let bundle = bundle(root)?;
    let mut round = 0;
    let timings = Timings::of(ROUNDS, || {
        round += 1;
        let mut command = Command::new("runsc");
        command
            .arg("--root")
            .arg(bundle.path().join("state"))
            .args(["--platform=systrap", "--network=none", "--overlay2=none"])
            .args(["--ignore-cgroups", "--file-access=exclusive", "run"])
            .arg("--bundle")
            .arg(bundle.path())
            .arg(format!("bench-{}-{round}", std::process::id()));
        quiet(command)
    })?;
    Ok(timings.p50())
}

/// Sequential commands with a full pool.
fn pooled(bench: &mut Bench, runtime: &str) -> Fallible<f64> {
    let settings =
        format!("[[pool]]\nenvironment = \"busybox\"\nruntime = \"{runtime}\"\nready = {READY}\n");
    bench.motu.configure(Some(&settings))?;
    let measured = rounds(bench, runtime);
    bench.motu.configure(None)?;
    Ok(measured?.p50())
}

fn rounds(bench: &Bench, runtime: &str) -> Fallible<Timings> {
    let machines = bench.motu.home.join("machines").join(runtime);
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        filled(&machines)?;
        let begun = Instant::now();
        quiet(run(bench, runtime))?;
        all.push(begun.elapsed());
    }
    Ok(Timings::from(all))
}

/// Waits until a pool is full and its machines have booted.
fn filled(machines: &Path) -> Fallible<()> {
    let begun = Instant::now();
    let count = || std::fs::read_dir(machines).map_or(0, |entries| entries.count());
    while count() < READY {
        if begun.elapsed() > PATIENCE {
            return Err("the pool does not fill".into());
        }
        std::thread::sleep(LOOK);
    }
    // A machine's directory exists before the machine has booted; a boot keeps a CPU busy.
    let begun = Instant::now();
    while begun.elapsed() < QUIET_PATIENCE && idle()? < IDLE {}
    Ok(())
}

/// The share of idle CPU time during one interval.
fn idle() -> Fallible<f64> {
    let look = || -> Fallible<(f64, f64)> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        // user nice system IDLE iowait …
        let idle = ticks.get(3).ok_or("no processor times")?;
        Ok((*idle, ticks.iter().sum()))
    };
    let (idle, all) = look()?;
    std::thread::sleep(LOOK);
    let (idle_then, all_then) = look()?;
    Ok((idle_then - idle) / (all_then - all).max(1.0))
}
