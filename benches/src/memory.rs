//! The memory of the guest and the daemon.

use crate::{Bench, ENVIRONMENT, Outcome};
use std::path::Path;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench.report.group("sizes");
    let guest = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/guest")
        .join(format!(
            "{}-unknown-linux-gnu/guest/motu-guest",
            std::env::consts::ARCH
        ));
    let size = std::fs::metadata(&guest)?.len() as f64 / 1e6;
    bench.report.at_most("guest binary", size, 3.0, "MB");
    let resident = |bench: &Bench| -> Result<f64, Box<dyn std::error::Error>> {
        Ok(resident_kib(bench.motu.pid())? / 1e3 * 1.024)
    };
    let started = resident(bench)?;
    bench
        .report
        .at_most("daemon resident, just started", started, 25.0, "MB");
    // What starting took is given back once nobody has asked for anything for two seconds.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let idle = resident(bench)?;
    bench
        .report
        .at_most("daemon resident, idle for 4 s", idle, 25.0, "MB");
    let mut api = bench.motu.api()?;
    let id = api.create(ENVIRONMENT)?;
    api.exec(&id, &["true"])?;
    let metrics = api.call("GET", &format!("/v1/sandboxes/{id}/metrics"), None)?;
    let rss = metrics["guest_rss_bytes"]
        .as_f64()
        .ok_or("no guest_rss_bytes")?;
    bench
        .report
        .at_most("guest resident when idle", rss / 1e6, 3.0, "MB");
    api.destroy(&id)?;
    Ok(())
}

/// Resident memory of a process, in KiB.
pub fn resident_kib(pid: u32) -> Result<f64, Box<dyn std::error::Error>> {
    of_status(pid, "VmRSS:")
}

/// What of it is the process's own and not pages of its program, in KiB.
pub fn own_kib(pid: u32) -> Result<f64, Box<dyn std::error::Error>> {
    of_status(pid, "RssAnon:")
}

/// The most that it was, in KiB.
pub fn peak_kib(pid: u32) -> Result<f64, Box<dyn std::error::Error>> {
    of_status(pid, "VmHWM:")
}

fn of_status(pid: u32, field: &str) -> Result<f64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with(field))
        .ok_or(format!("no {field}"))?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
