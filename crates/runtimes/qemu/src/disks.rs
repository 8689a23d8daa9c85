//! The disks of a machine, by name.

/// The machine's disks.
pub(crate) const DISKS: [&str; 2] = ["root", "work"];
/// Says which disk is meant when one is named.
pub(crate) const BASELINE: &str = "base";
/// Every machine sees its baseline on a disk of this size, however large the baseline is,
/// so that one template serves all.
pub(crate) const BASELINE_BYTES: u64 = 1 << 40;

/// The file a disk's generation is kept in, which is also its name inside QEMU.
pub(crate) fn disk_file(disk: &str, layer: u32) -> String {
    format!("{disk}-{layer}.qcow2")
}

pub(crate) fn disk_node(disk: &str, layer: u32) -> String {
    format!("{disk}-{layer}")
}
