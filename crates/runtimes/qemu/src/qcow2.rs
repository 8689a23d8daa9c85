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

/// Looks whether a file is a disk as [`create`] makes them and QEMU fills them: every table
/// and every cluster inside the file, nothing twice, and nothing named that we did not put there.
pub(crate) fn check(path: &Path, bytes: u64, below: &str, kind: Below) -> Result<(), String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it is missing".to_string(),
        io::ErrorKind::UnexpectedEof => "it is cut short".to_string(),
        _ => error.to_string(),
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let wanted = header(bytes, below.as_bytes(), kind);
    let mut found = vec![0; wanted.len()];
    file.read_exact_at(&mut found, 0).map_err(failed)?;
    // QEMU moves the refcount table when it grows.
    found[48..60].copy_from_slice(&wanted[48..60]);
    if found != wanted {
        return Err("its header is not what was written".into());
    }
    let first = table(&file, 3 * CLUSTER).map_err(failed)?;
    let mut used = std::collections::BTreeSet::from([0, 3 * CLUSTER]);
    for entry in first.into_iter().filter(|entry| *entry != 0) {
        let second = place(entry, length, &mut used)?.ok_or("a table is nowhere")?;
        for entry in table(&file, second).map_err(failed)? {
            place(entry, length, &mut used)?;
        }
    }
    Ok(())
}

fn table(file: &std::fs::File, at: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; CLUSTER as usize];
    file.read_exact_at(&mut bytes, at)?;
    let entries = bytes.chunks_exact(8);
    Ok(entries
        .map(|entry| u64::from_be_bytes(entry.try_into().unwrap_or_default()))
        .collect())
}

/// Where an entry of a table points to, if anywhere.
fn place(
    entry: u64,
    length: u64,
    used: &mut std::collections::BTreeSet<u64>,
) -> Result<Option<u64>, String> {
    const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
    // Used once, and reads as zero.
    const KNOWN: u64 = 1 << 63 | 1;
    let at = entry & OFFSET;
    if entry & !(OFFSET | KNOWN) != 0 || !at.is_multiple_of(CLUSTER) {
        return Err("a table is damaged".into());
    }
    if at == 0 {
        return Ok(None);
    }
    if at >= length {
        return Err("it is cut short".into());
    }
    match used.insert(at) {
        true => Ok(Some(at)),
        false => Err("two tables name one place".into()),
    }
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
        let info = motu_needs::command("qemu-img")
            .args(["info", "--output=json"])
            .arg(&path)
            .output()
            .unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!(info["virtual-size"], 10u64 << 30);
        assert_eq!(info["backing-filename-format"], "raw");
        assert_eq!(info["backing-filename"], "base.ext4");
        let checked = motu_needs::command("qemu-img")
            .args(["check", "-q"])
            .arg(&path)
            .status();
        assert!(checked.unwrap().success());
    }

    #[test]
    fn a_check_sees_what_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top.qcow2");
        let look = || check(&path, 1 << 30, "base.ext4", Below::Raw);
        assert_eq!(look().unwrap_err(), "it is missing");
        create(&path, 1 << 30, "base.ext4", Below::Raw).unwrap();
        look().unwrap();
        assert!(check(&path, 1 << 30, "/etc/shadow", Below::Raw).is_err());
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // A second-level table behind the end, then inside with an entry behind the end.
        let used = 1u64 << 63;
        let put = |at: u64, entry: u64| file.write_all_at(&entry.to_be_bytes(), at).unwrap();
        put(3 * CLUSTER, used | (4 * CLUSTER));
        assert_eq!(look().unwrap_err(), "it is cut short");
        file.set_len(6 * CLUSTER).unwrap();
        look().unwrap();
        put(4 * CLUSTER + 80, used | (5 * CLUSTER));
        look().unwrap();
        put(4 * CLUSTER + 88, used | (5 * CLUSTER));
        assert_eq!(look().unwrap_err(), "two tables name one place");
        put(4 * CLUSTER + 88, used | (7 * CLUSTER));
        assert_eq!(look().unwrap_err(), "it is cut short");
        put(4 * CLUSTER + 88, used | 1 << 40 | 77);
        assert_eq!(look().unwrap_err(), "a table is damaged");
    }

    #[test]
    fn a_disk_beyond_one_table_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("top.qcow2");
        assert!(create(&path, MAX_BYTES + 1, "x", Below::Qcow2).is_err());
        assert!(!path.exists());
    }
}
