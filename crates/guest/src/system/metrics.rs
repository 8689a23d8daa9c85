//! Metrics of the machine: from its control group if visible, else from the kernel.

use crate::cgroup::{self, value, value_of};
use crate::process::Scan;
use crate::state::Guest;
use motu_link::message::Metrics;

/// The unit of CPU time in `/proc` (USER_HZ is 100 on every supported Linux).
const TICK_US: u64 = 10_000;

/// Runs on the main thread: the host asks rarely, and a machine at its process limit could not
/// start a thread.
pub fn metrics(guest: &Guest) -> Metrics {
    let (memory_used_bytes, memory_total_bytes) = memory();
    let (disk_used_bytes, disk_total_bytes) = disk();
    let processes = Scan::now();
    let own_kernel = guest.pid1 && guest.restrict.is_none();
    Metrics {
        cpu_us: value("cpu.stat", "usage_usec")
            .or_else(|| cpu_of_kernel().filter(|_| own_kernel))
            // The kernel's own counters would be the host's.
            .unwrap_or_else(|| processes.ticks().saturating_mul(TICK_US)),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        memory_used_bytes,
        memory_total_bytes,
        disk_used_bytes,
        disk_total_bytes,
        processes: processes.count() as u32,
        uptime_ms: guest.started.elapsed().as_millis() as u64,
        guest_rss_bytes: own_memory(),
        // With a shared kernel these would be the host's file systems.
        disk_errors: match own_kernel {
            true => disk_errors(),
            false => 0,
        },
    }
}

/// The error counts of all ext4 file systems.
fn disk_errors() -> u64 {
    let disks = std::fs::read_dir("/sys/fs/ext4");
    let counts = disks.into_iter().flatten().flatten().filter_map(|disk| {
        let count = std::fs::read_to_string(disk.path().join("errors_count"));
        count.ok()?.trim().parse::<u64>().ok()
    });
    counts.sum()
}

fn cpu_of_kernel() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let mut words = stat.lines().next()?.split_ascii_whitespace().skip(1);
    let mut take = |count: usize| -> Option<u64> {
        (0..count).try_fold(0u64, |sum, _| {
            Some(sum.saturating_add(words.next()?.parse::<u64>().ok()?))
        })
    };
    // user, nice, system; then idle and iowait, which do not count; then irq, softirq, steal.
    let busy = take(3)?;
    take(2)?;
    Some((busy + take(3)?) * TICK_US)
}

fn memory() -> (u64, u64) {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |key| value_of(&info, key).unwrap_or(0) * 1024;
    let total = kilobytes("MemTotal:");
    let used = total.saturating_sub(kilobytes("MemAvailable:"));
    let number = |file| cgroup::read(file)?.trim().parse::<u64>().ok();
    match number("memory.current") {
        // Page cache does not count: the kernel can reclaim it.
        Some(current) => {
            let cache = value("memory.stat", "inactive_file").unwrap_or(0);
            (
                current.saturating_sub(cache),
                number("memory.max").unwrap_or(total).min(total),
            )
        }
        None => (used, total),
    }
}

fn disk() -> (u64, u64) {
    match rustix::fs::statvfs("/") {
        Ok(stat) => {
            let total = stat.f_blocks.saturating_mul(stat.f_frsize);
            (
                total.saturating_sub(stat.f_bfree.saturating_mul(stat.f_frsize)),
                total,
            )
        }
        Err(_) => (0, 0),
    }
}

fn own_memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
