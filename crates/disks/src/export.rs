//! Writes a merged view as an ext4 disk.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt as _, PermissionsExt as _, lchown, symlink},
    },
    path::Path,
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

use motu_core::sparse::SparseWriter;

use crate::{DiskError, Kind, Merged, merged::Found};

/// Most paths in an export.
const MAX_EXPORT_ENTRIES: u64 = 2_000_000;
/// Space reserved besides the files, in addition to a twentieth.
const SPARE_BYTES: u64 = 64 << 20;
/// Space reserved per path besides its contents.
const ENTRY_BYTES: u64 = 4096 + 256;
const MAX_DEPTH: usize = 200;
const OUTPUT_BYTES: usize = 2000;

/// Writes the view as a raw ext4 image to `output`, an empty file of the caller. `staging` is an
/// empty directory of the caller, on a disk with room for all of it; owners are kept if we may
/// change them, and holes are preserved. Devices, pipes and sockets are left out. Files may have
/// `most` bytes in total, holes included.
pub fn export_ext4(
    view: &mut Merged,
    staging: &Path,
    output: &Path,
    most: u64,
) -> Result<u64, DiskError> {
    let root = view.root()?;
    let mut copy = Copy {
        staging,
        most,
        bytes: 0,
        entries: 0,
        directories: Vec::new(),
    };
    view.walk(&root, true, MAX_DEPTH, &mut |view, found| {
        copy.place(view, found).map(|()| true)
    })?;
    copy.finish()?;
    let needed = copy.bytes + copy.entries * ENTRY_BYTES;
    let size = (needed + needed / 20 + SPARE_BYTES).next_multiple_of(1 << 20);
    File::options()
        .write(true)
        .open(output)
        .and_then(|file| file.set_len(size))
        .map_err(DiskError::io("creating", output))?;
    make_ext4(staging, output)?;
    Ok(size)
}

/// Directories of system programs.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];

fn make_ext4(staging: &Path, output: &Path) -> Result<(), DiskError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(SYSTEM.iter().map(Into::into));
    let run = Command::new("mke2fs")
        // System programs may not be on the caller's PATH.
        .env("PATH", std::env::join_paths(places).unwrap_or(path.clone()))
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-d"])
        .arg(staging)
        .arg(output)
        .output()
        .map_err(|error| DiskError::Tool {
            program: "mke2fs",
            output: error.to_string(),
        })?;
    if run.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    Err(DiskError::Tool {
        program: "mke2fs",
        output: text.chars().take(OUTPUT_BYTES).collect(),
    })
}

struct Copy<'a> {
    staging: &'a Path,
    most: u64,
    bytes: u64,
    entries: u64,
    directories: Vec<Found>,
}

impl Copy<'_> {
    /// Makes one path. Its parents were just made in a private directory, so none is a symbolic
    /// link.
    fn place(&mut self, view: &mut Merged, found: &Found) -> Result<(), DiskError> {
        let path = self.staging.join(OsStr::from_bytes(&found.path));
        self.entries += 1;
        if self.entries > MAX_EXPORT_ENTRIES {
            return Err(DiskError::Limit {
                what: "the number of entries",
                limit: MAX_EXPORT_ENTRIES,
            });
        }
        let failed = || DiskError::io("writing", &path);
        match found.attributes.kind {
            Kind::Directory => {
                fs::create_dir(&path).map_err(failed())?;
                self.directories.push(Found {
                    path: found.path.clone(),
                    attributes: found.attributes.clone(),
                    layers: Vec::new(),
                });
                return Ok(());
            }
            Kind::Symlink => {
                symlink(OsStr::from_bytes(&found.attributes.symlink_target), &path)
                    .map_err(failed())?;
            }
            Kind::File => {
                let file = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)
                    .map_err(failed())?;
                let left = self.most - self.bytes;
                if found.attributes.size > left {
                    return Err(DiskError::Limit {
                        what: "the size of all files in bytes (export_bytes)",
                        limit: self.most,
                    });
                }
                let mut sparse = SparseWriter::new(&file);
                view.layer(found).read(&found.path, left, &mut sparse)?;
                self.bytes += sparse.finish().map_err(failed())?;
            }
            Kind::Other | Kind::Whiteout => return Ok(()),
        }
        self.dress(found)
    }

    fn dress(&self, found: &Found) -> Result<(), DiskError> {
        let path = self.staging.join(OsStr::from_bytes(&found.path));
        let attributes = &found.attributes;
        let dress = || {
            if rustix::process::geteuid().is_root() {
                lchown(&path, Some(attributes.uid), Some(attributes.gid))?;
            }
            if attributes.kind == Kind::Symlink {
                return Ok(());
            }
            let file = File::open(&path)?;
            let nanoseconds = u64::try_from(attributes.modified_unix_ns).unwrap_or(0);
            file.set_modified(UNIX_EPOCH + Duration::from_nanos(nanoseconds))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(attributes.mode))
        };
        dress().map_err(DiskError::io("writing", &path))
    }

    /// Sets directory metadata last: writing into a directory changes its times.
    fn finish(&self) -> Result<(), DiskError> {
        let mut directories = self.directories.iter().rev();
        directories.try_for_each(|found| self.dress(found))
    }
}
