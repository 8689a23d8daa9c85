//! `/proc/meminfo` of a container: the machine's memory instead of the host's.
//!
//! The launcher mounts a plain file over the kernel's; this module fills it from the machine's
//! control group when a process is started, and every two seconds while one runs. It is
//! approximate: it may be two seconds old, and has only the fields that programs size themselves
//! by.

use crate::cgroup::read;
use crate::state::Guest;
use std::os::unix::fs::FileExt as _;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

const MEMINFO: &str = "/proc/meminfo";
const INTERVAL: Duration = Duration::from_secs(2);
/// A view at most this old is good enough for a process that is about to start.
const FRESH: Duration = Duration::from_millis(500);

/// Whether the file is the launcher's, which is on a tmpfs, and not the kernel's own.
static OURS: LazyLock<bool> = LazyLock::new(|| {
    rustix::fs::statfs(MEMINFO).is_ok_and(|found| found.f_type == libc::TMPFS_MAGIC)
});

/// Updates the file while processes run.
pub async fn keep_view(guest: &Guest) {
    if !guest.own_root || !*OURS {
        return std::future::pending().await;
    }
    loop {
        guest.started_one.notified().await;
        while guest
            .processes
            .all()
            .iter()
            .any(|process| process.is_running())
        {
            tokio::time::sleep(INTERVAL).await;
            refresh();
        }
    }
}

/// Updates the file for a process that is about to start.
pub fn refresh_view(guest: &Guest) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    if !guest.own_root || !*OURS {
        return;
    }
    let mut last = LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if last.is_none_or(|last| last.elapsed() > FRESH) {
        *last = Some(Instant::now());
        refresh();
    }
}

fn refresh() {
    if let Some(text) = text()
        && let Ok(file) = std::fs::File::options().write(true).open(MEMINFO)
    {
        let _ = file.write_all_at(text.as_bytes(), 0);
        let _ = file.set_len(text.len() as u64);
    }
}

fn text() -> Option<String> {
    let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory/memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory/memory.usage_in_bytes"))?;
    let stat = read("memory.stat").or_else(|| read("memory/memory.stat"))?;
    Some(render(limit, used, &stat))
}

/// Renders the kernel's format. cgroup v1 counts children in `total_` fields and calls the page
/// cache `cache`; v2 calls it `file`.
fn render(limit: u64, used: u64, stat: &str) -> String {
    let value = |names: &[&str]| {
        let of = |name: &&str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            lines.find_map(|(key, value)| (key == *name).then(|| value.parse::<u64>().ok())?)
        };
        names.iter().find_map(of).unwrap_or(0)
    };
    let cache = value(&["total_cache", "file"]);
    let shared = value(&["total_shmem", "shmem"]);
    let reclaimable = value(&["slab_reclaimable"]);
    let inactive = value(&["total_inactive_file", "inactive_file"]);
    let active = value(&["total_active_file", "active_file"]);
    let free = limit.saturating_sub(used);
    let available = (free + inactive + active + reclaimable).min(limit);
    let lines = [
        ("MemTotal:", limit),
        ("MemFree:", free),
        ("MemAvailable:", available),
        ("Buffers:", 0),
        ("Cached:", cache),
        ("SwapCached:", 0),
        ("Active(file):", active),
        ("Inactive(file):", inactive),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
        ("Shmem:", shared),
        ("SReclaimable:", reclaimable),
    ];
    let line = |(name, bytes): &(&str, u64)| format!("{name:<16}{:>8} kB\n", bytes / 1024);
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        const MIB: u64 = 1 << 20;
        let old = "cache 1\nshmem 2\ntotal_cache 10485760\ntotal_shmem 1048576\n\
                   total_inactive_file 4194304\ntotal_active_file 2097152\n";
        let text = render(256 * MIB, 56 * MIB, old);
        for line in [
            "MemTotal:         262144 kB",
            "MemFree:          204800 kB",
            "MemAvailable:     210944 kB",
            "Cached:            10240 kB",
            "Shmem:              1024 kB",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
        let new = "anon 5\nfile 10485760\nshmem 1048576\ninactive_file 4194304\n\
                   active_file 2097152\nslab_reclaimable 1048576\n";
        let text = render(256 * MIB, 56 * MIB, new);
        assert!(text.contains("MemAvailable:     211968 kB\n"), "{text}");
        assert!(text.contains("SReclaimable:       1024 kB\n"), "{text}");
    }
}
