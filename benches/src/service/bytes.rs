//! A large file into a live container and out of it over REST, and what the daemon grows by.

use super::{Fallible, Live};
use crate::memory::{peak_kib, resident_kib};
use crate::noise::Noise;
use crate::stats::Timings;
use crate::{Bench, Outcome};

const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 256;
const TIMES: usize = 5;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("the host as a service: a file of 256 MiB over REST");
    bench.note_load();
    let mut block = vec![0; BLOCK];
    Noise::new().fill(&mut block);
    let live = Live::create(&bench.motu)?;
    let address = format!("/v1/sandboxes/{}/files/content?path=/workspace/a", live.id);
    let mut api = bench.motu.api()?;
    let pid = bench.motu.pid();
    let (upload, up) = growing(pid, || api.upload(&address, &block, BLOCKS))?;
    let (download, down) = growing(pid, || whole(api.download(&address, |_| Ok(()))?))?;
    // What is there is what was sent. Looking at it costs time of its own.
    let mut at = 0;
    let length = api.download(&address, |piece| {
        for byte in piece {
            if *byte != block[at % BLOCK] {
                return Err(format!("byte {at} is another one").into());
            }
            at += 1;
        }
        Ok(())
    })?;
    whole(length)?;
    let bytes = (BLOCK * BLOCKS) as u64;
    let report = &mut bench.report;
    report.at_least("upload", upload.speed(bytes), 400.0, "MB/s");
    report.at_most("  the daemon grows by", up, 32.0, "MB");
    report.at_least("download", download.speed(bytes), 400.0, "MB/s");
    report.at_most("  the daemon grows by", down, 32.0, "MB");
    Ok(())
}

fn whole(length: u64) -> Outcome {
    match length == (BLOCK * BLOCKS) as u64 {
        true => Ok(()),
        false => Err(format!("{length} bytes came back").into()),
    }
}

/// How long some work takes, and how many megabytes the daemon has at most beside those that it
/// had before.
fn growing(pid: u32, mut work: impl FnMut() -> Outcome) -> Fallible<(Timings, f64)> {
    let before = resident_kib(pid)?;
    // The kernel starts the peak again at what is there now.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    let timings = Timings::of(TIMES, &mut work)?;
    Ok((timings, (peak_kib(pid)? - before) / 1e3 * 1.024))
}
