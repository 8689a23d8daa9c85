//! Bytes out of a command, into a file, out of a file: whole commands.

use crate::noise::Noise;
use crate::rivals::quiet;
use crate::stats::Timings;
use crate::{Bench, ENVIRONMENT, Outcome};
use std::io::Write;

const MIB: usize = 512;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("bytes through (512 MiB, whole commands)");
    let dir = tempfile::TempDir::with_prefix("bench-bytes-")?;
    let source = dir.path().join("in");
    let back = dir.path().join("out");
    write_noise(&source)?;
    let (source, back) = (source.display().to_string(), back.display().to_string());

    let mut api = bench.motu.api()?;
    let id = api.create(ENVIRONMENT)?;
    let inside = format!("{id}:/workspace/data");
    let write = speed(|| quiet(bench.motu.command(&["cp", &source, &inside])))?;
    let out = speed(|| {
        quiet(
            bench
                .motu
                .command(&["exec", &id, "--", "cat", "/workspace/data"]),
        )
    })?;
    let small = format!("dd if=/workspace/data bs=4k count={}", MIB * 256);
    let small = speed(|| {
        let words = ["exec", &id, "--", "sh", "-c", &small];
        quiet(bench.motu.command(&words))
    })?;
    // A new file each time: what is replaced would be flushed to the disk first.
    let read = speed(|| {
        let _ = std::fs::remove_file(&back);
        quiet(bench.motu.command(&["cp", &inside, &back]))
    })?;
    api.destroy(&id)?;
    for (what, speed) in [
        ("command output", out),
        ("file write", write),
        ("file read", read),
    ] {
        bench
            .report
            .at_least(&format!("motu: {what}"), speed, 400.0, "MB/s");
    }
    bench
        .report
        .at_least("motu: command output, 4 KiB a write", small, 300.0, "MB/s");
    let Some(docker) = &bench.docker else {
        return Ok(());
    };
    let name = docker.keep()?;
    let theirs = format!("{name}:/workspace/data");
    let their_write = speed(|| quiet(docker.command(&["cp", &source, &theirs])))?;
    let their_out = speed(|| quiet(docker.command(&["exec", &name, "cat", "/workspace/data"])))?;
    let their_read = speed(|| {
        let _ = std::fs::remove_file(&back);
        quiet(docker.command(&["cp", &theirs, &back]))
    })?;
    docker.remove(&name)?;
    for (what, ours, theirs) in [
        ("docker exec cat", out, their_out),
        ("docker cp in", write, their_write),
        ("docker cp out", read, their_read),
    ] {
        bench.report.note(what, format!("{theirs:.0} MB/s"));
        bench
            .report
            .at_least(&format!("ratio to {what}"), ours / theirs, 2.0, "x");
    }
    Ok(())
}

fn speed(work: impl FnMut() -> Outcome) -> Result<f64, Box<dyn std::error::Error>> {
    let timings = Timings::of(5, work)?;
    Ok((MIB * 1024 * 1024) as f64 / 1e6 / (timings.p50() / 1e3))
}

/// Bytes that do not compress and are not holes.
fn write_noise(path: &std::path::Path) -> Outcome {
    let mut noise = Noise::new();
    let mut file = std::fs::File::create(path)?;
    let mut block = vec![0u8; 1024 * 1024];
    for _ in 0..MIB {
        noise.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}
