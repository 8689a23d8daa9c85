//! Empty overlays: a disk that reads like the one below it and keeps what is
//! written to itself. Written here because starting a tool for it costs more
//! than everything else a new disk needs.
//!
//! ```text
//!   cluster 0  header, name of the disk below
//!   cluster 1  refcount table      cluster 2  refcounts
//!   cluster 3  first-level table, empty: everything comes from below
//! ```

use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Bytes one entry of the first-level table covers.
const COVERED: u64 = CLUSTER * (CLUSTER / 8);
const HEADER: u32 = 104;
const BACKING_FORMAT: u32 = 0xe279_2aca;

/// What the disk below is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    Raw,
    Qcow2,
}

impl Below {
    fn name(self) -> &'static [u8] {
        match self {
            Below::Raw => b"raw",
            Below::Qcow2 => b"qcow2",
        }
    }
}

/// The largest disk whose first-level table fits one cluster.
pub(crate) const MAX_BYTES: u64 = COVERED * (CLUSTER / 8);

/// Makes an overlay of `bytes` above the file `below` in the same directory.
pub(crate) fn create(path: &Path, bytes: u64, below: &str, kind: Below) -> io::Result<()> {
    if bytes > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.set_len(4 * CLUSTER)?;
    file.write_all_at(&header(bytes, below.as_bytes(), kind), 0)?;
    file.write_all_at(&(2 * CLUSTER).to_be_bytes(), CLUSTER)?;
    // Sixteen bits each: the four clusters are used once.
    file.write_all_at(&[0, 1, 0, 1, 0, 1, 0, 1], 2 * CLUSTER)
}

fn header(bytes: u64, below: &[u8], kind: Below) -> Vec<u8> {
    let format = kind.name();
    let padded = format.len().next_multiple_of(8);
    let name_at = HEADER as usize + 8 + padded + 8;
    let mut out = Vec::with_capacity(name_at + below.len());
    out.extend(b"QFI\xfb");
    out.extend(3u32.to_be_bytes());
    out.extend((name_at as u64).to_be_bytes());
    out.extend((below.len() as u32).to_be_bytes());
    out.extend(CLUSTER_BITS.to_be_bytes());
    out.extend(bytes.to_be_bytes());
    out.extend(0u32.to_be_bytes()); // No encryption.
    out.extend((bytes.div_ceil(COVERED) as u32).to_be_bytes());
    out.extend((3 * CLUSTER).to_be_bytes());
    out.extend(CLUSTER.to_be_bytes());
    out.extend(1u32.to_be_bytes()); // One cluster of refcount table.
    out.extend(0u32.to_be_bytes()); // No internal snapshots,
    out.extend(0u64.to_be_bytes()); // and no table of them.
    out.extend([0u8; 24]); // No special features.
    out.extend(4u32.to_be_bytes()); // Refcounts of sixteen bits.
    out.extend(HEADER.to_be_bytes());
    out.extend(BACKING_FORMAT.to_be_bytes());
    out.extend((format.len() as u32).to_be_bytes());
    out.extend(format);
    out.resize(out.len() + padded - format.len(), 0);
    out.extend([0u8; 8]); // The end of the extensions.
    out.extend(below);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_of_the_format_agrees() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("base.ext4"), vec![7u8; 1 << 20]).unwrap();
        let path = dir.path().join("top.qcow2");
        create(&path, 10 << 30, "base.ext4", Below::Raw).unwrap();
        let Ok(info) = std::process::Command::new("qemu-img")
            .args(["info", "--output=json"])
            .arg(&path)
            .output()
        else {
            return;
        };
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!(info["virtual-size"], 10u64 << 30);
        assert_eq!(info["backing-filename-format"], "raw");
        assert_eq!(info["backing-filename"], "base.ext4");
        let checked = std::process::Command::new("qemu-img")
            .args(["check", "-q"])
            .arg(&path)
            .status();
        assert!(checked.unwrap().success());
    }

    #[test]
    fn a_disk_beyond_one_table_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top.qcow2");
        assert!(create(&path, MAX_BYTES + 1, "x", Below::Qcow2).is_err());
        assert!(!path.exists());
    }
}
