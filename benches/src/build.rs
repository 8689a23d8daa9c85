//! `motu env build` compared with `docker build`: the same Dockerfile, files and root.

use crate::rivals::{Docker, IMAGE, quiet};
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 7;

/// A typical Dockerfile of ten lines; downloads are replaced by local steps, because benchmarks do
/// not use the network.
const STEPS: &str = "ENV PYTHONDONTWRITEBYTECODE=1 LANG=C.UTF-8
RUN useradd --create-home app
WORKDIR /home/app
COPY requirements.txt .
RUN python3 -m venv --without-pip env && env/bin/python -c 'print(1)'
COPY src src
RUN python3 -m compileall -q src && du -s src > size
USER app
CMD [\"python3\", \"-m\", \"src\"]
";
const FILES: usize = 50;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("a Dockerfile of ten lines, beside docker build (p50)");
    bench.note_load();
    let Some(docker) = &bench.docker else {
        bench.report.note("left out", "docker is missing".into());
        return Ok(());
    };
    let (ours, theirs) = (project(ENVIRONMENT)?, project(IMAGE)?);
    let kit = builds(docker, theirs.path(), true)?;
    let name = match kit {
        true => "BuildKit, in dockerd",
        false => "the classic builder: there is no buildx here",
    };
    bench.report.note("docker build is", name.into());
    let motu = |more: &[&str]| {
        let words = [&["env", "build", "--tag", "bench:1"], more].concat();
        let mut command = bench.motu.command(&words);
        command.arg(ours.path());
        command
    };
    let rival = |more: &[&str]| rival(docker, theirs.path(), kit, more);
    // The first run of both reads the base, and is not measured.
    quiet(motu(&["--no-cache"]))?;
    quiet(rival(&["--no-cache"]))?;
    let cold = in_turns(|| motu(&["--no-cache"]), || rival(&["--no-cache"]))?;
    let warm = in_turns(|| motu(&[]), || rival(&[]))?;
    let report = &mut bench.report;
    report.note(
        "motu env build, nothing cached",
        format!("{:.0} ms", cold.0),
    );
    report.note("docker build, nothing cached", format!("{:.0} ms", cold.1));
    report.at_most("ratio, nothing cached", cold.0 / cold.1, 1.0, "x");
    report.at_most("motu env build, all cached", warm.0, 300.0, "ms");
    report.note("docker build, all cached", format!("{:.0} ms", warm.1));
    report.note("ratio, all cached", format!("{:.2} x", warm.0 / warm.1));
    Ok(())
}

/// A directory with the Dockerfile and its files.
fn project(from: &str) -> Fallible<TempDir> {
    let dir = TempDir::with_prefix("bench-build-")?;
    std::fs::write(
        dir.path().join("Dockerfile"),
        format!("FROM {from}\n{STEPS}"),
    )?;
    std::fs::write(dir.path().join("requirements.txt"), "")?;
    let source = dir.path().join("src");
    std::fs::create_dir(&source)?;
    std::fs::write(source.join("__main__.py"), "print('built')\n")?;
    for number in 0..FILES {
        let text = format!("def f{number}(x):\n    return x + {number}\n").repeat(20);
        std::fs::write(source.join(format!("m{number}.py")), text)?;
    }
    Ok(dir)
}

fn rival(docker: &Docker, dir: &Path, kit: bool, more: &[&str]) -> Command {
    let words = [&["build", "--network", "none", "-t", "bench:1"], more].concat();
    let mut command = docker.command(&words);
    command
        .env("DOCKER_BUILDKIT", if kit { "1" } else { "0" })
        .arg(dir);
    command
}

/// Whether docker builds with BuildKit here. If it builds neither with nor without it, that is an
/// error.
fn builds(docker: &Docker, dir: &Path, kit: bool) -> Fallible<bool> {
    match quiet(rival(docker, dir, kit, &[])) {
        Ok(()) => Ok(kit),
        Err(_) if kit => builds(docker, dir, false),
        Err(error) => Err(error),
    }
}

/// Alternates between both, so that they run under the same load.
fn in_turns(ours: impl Fn() -> Command, theirs: impl Fn() -> Command) -> Fallible<(f64, f64)> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        quiet(ours())?;
        first.push(begun.elapsed());
        let begun = Instant::now();
        quiet(theirs())?;
        second.push(begun.elapsed());
    }
    Ok((Timings::from(first).p50(), Timings::from(second).p50()))
}
