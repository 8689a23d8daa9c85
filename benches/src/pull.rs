//! Pulls from a registry compared with skopeo and umoci.

mod registry;

use crate::motu::Motu;
use crate::rivals::{present, quiet};
use crate::stats::Timings;
use crate::{Bench, Outcome};
use registry::Registry;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const BYTES: u64 = 200_000_000;
const QUICK_BYTES: u64 = 10_000_000;
const ROUNDS: usize = 5;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("an image of three layers out of a registry (p50)");
    bench.note_load();
    let programs = ["docker-registry", "skopeo", "umoci", "sha256sum", "gzip"];
    if !present(&bench.report, &programs) {
        return Ok(());
    }
    let bytes = if bench.quick { QUICK_BYTES } else { BYTES };
    let place = bench.motu.home.parent().unwrap_or(Path::new("."));
    let registry = Registry::start(place)?;
    let packed = registry.push(bytes)?;
    bench.report.note(
        "the image",
        format!("{} MB, {} packed", bytes / 1_000_000, packed / 1_000_000),
    );
    // Alternate, so that both run under the same load.
    let home = registry.beside("home");
    let motu = Motu::serve(&bench.motu.binary, &home)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        quiet(Command::new("sync"))?;
        let begun = Instant::now();
        quiet(motu.command(&["env", "pull", &registry.name()]))?;
        ours.push(begun.elapsed());
        quiet(motu.command(&["env", "prune", "--all"]))?;
        quiet(Command::new("sync"))?;
        let begun = Instant::now();
        rival(&registry)?;
        theirs.push(begun.elapsed());
        std::fs::remove_dir_all(registry.beside("rival"))?;
    }
    drop(motu);
    let (ours, theirs) = (Timings::from(ours), Timings::from(theirs));
    bench
        .report
        .note("motu env pull", format!("{:.0} ms", ours.p50()));
    bench.report.note(
        "skopeo copy + umoci unpack",
        format!("{:.0} ms", theirs.p50()),
    );
    bench
        .report
        .at_least("speed beside theirs", theirs.p50() / ours.p50(), 0.8, "x");
    Ok(())
}

/// From the registry to an unpacked root, with empty caches.
fn rival(registry: &Registry) -> Outcome {
    let dir = registry.beside("rival");
    std::fs::create_dir_all(&dir)?;
    let layout = dir.join("layout");
    let mut copy = Command::new("skopeo");
    copy.args(["--insecure-policy", "copy", "--src-tls-verify=false"])
        .arg(format!("docker://{}", registry.name()))
        .arg(format!("oci:{}:v1", layout.display()));
    quiet(copy)?;
    let mut unpack = Command::new("umoci");
    unpack
        .args(["unpack", "--image"])
        .arg(format!("{}:v1", layout.display()))
        .arg(dir.join("bundle"));
    quiet(unpack)
}
