//! What of the kernel's own files a machine that shares its host's kernel does not see.
//!
//! They tell about the host: its hardware, its disks, its modules, where its kernel lies in memory,
//! what everybody on it does. `/proc` is told what to hide, because programs need much of it; `/sys`
//! is told what to show, so that what a later kernel adds there is not shown.

/// Files and directories of `/proc`; most of them only some kernels have.
pub const OF_PROC: [&str; 38] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/consoles",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/dynamic_debug",
    "/proc/fb",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/swaps",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/tty/driver",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
];

/// All that is shown of `/sys`: processors and memory nodes, by which programs size themselves,
/// the machine's own network devices and control groups, and the sizes of pages.
pub const SHOWN_OF_SYS: [&str; 7] = [
    "/sys/class/net",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/devices/virtual/net",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/hugepages",
    "/sys/kernel/mm/transparent_hugepage",
];

/// The same for engines that can only be told what to hide.
pub const OF_SYS: [&str; 16] = [
    "/sys/block",
    "/sys/bus",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/btrfs",
    "/sys/fs/ext4",
    "/sys/fs/xfs",
    "/sys/hypervisor",
    "/sys/kernel/iommu_groups",
    "/sys/kernel/notes",
    "/sys/kernel/vmcoreinfo",
    "/sys/module",
    "/sys/power",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn nothing_is_hidden_and_shown() {
        for hidden in OF_SYS {
            let shown = SHOWN_OF_SYS.map(Path::new);
            let meets =
                |path: &Path| path.starts_with(hidden) || Path::new(hidden).starts_with(path);
            assert!(!shown.into_iter().any(meets), "{hidden}");
        }
        assert!(OF_PROC.is_sorted());
    }
}
