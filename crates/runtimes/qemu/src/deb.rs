//! Debian packages, read without Debian's tools.
//!
//! ```text
//!   !<arch>                                an `ar` archive
//!   debian-binary  control.tar.xz  data.tar.xz (or .zst, .gz, nothing)
//! ```

use crate::error::QemuError;
use crate::packing;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;
/// Members of a package; real ones have three.
const MAX_MEMBERS: usize = 16;
/// What a package may hold: Debian's kernels for clouds are about 120 MB.
const MAX_BYTES: u64 = 2 << 30;
const MAX_FILES: usize = 50_000;

/// Writes the files of a package that are wanted below a directory.
pub(crate) fn unpack(
    package: &Path,
    to: &Path,
    wanted: impl Fn(&Path) -> bool,
) -> Result<(), QemuError> {
    let unpacked = File::open(package).and_then(|file| copy(BufReader::new(file), to, wanted));
    unpacked.map_err(|error| QemuError::Kernel {
        reason: format!("{} cannot be unpacked: {error}", package.display()),
    })
}

fn copy(
    mut package: impl Read + Seek,
    to: &Path,
    wanted: impl Fn(&Path) -> bool,
) -> io::Result<()> {
    let bytes = find(&mut package, "data.tar")?;
    let data = packing::reader(package.take(bytes))?.take(MAX_BYTES);
    let mut archive = tar::Archive::new(data);
    for (number, entry) in archive.entries()?.enumerate() {
        if number >= MAX_FILES {
            return Err(wrong("it has too many files"));
        }
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        // Links and devices are of no use here, and where links lead is nobody's to say.
        if entry.header().entry_type() != tar::EntryType::Regular || !wanted(&path) {
            continue;
        }
        let file = to.join(&path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let declared = entry.size();
        let written = io::copy(&mut entry, &mut File::create_new(&file)?)?;
        if written != declared {
            return Err(wrong("it is cut short"));
        }
    }
    Ok(())
}

/// The path of an entry below wherever it is unpacked.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            _ => return Err(wrong("it has a file that lies elsewhere")),
        }
    }
    Ok(plain)
}

/// Goes to the content of a member; returns how long that is.
fn find(archive: &mut (impl Read + Seek), wanted: &str) -> io::Result<u64> {
    let mut magic = [0; MAGIC.len()];
    archive.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(wrong("it is no Debian package"));
    }
    for _ in 0..MAX_MEMBERS {
        let mut header = [0; HEADER];
        match archive.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            other => other?,
        }
        let field = |range: std::ops::Range<usize>| {
            let text = std::str::from_utf8(&header[range]).unwrap_or_default();
            text.trim_end().trim_end_matches('/').to_string()
        };
        let bytes: u64 = field(48..58)
            .parse()
            .map_err(|_| wrong("a member has no size"))?;
        if field(0..16).starts_with(wanted) {
            return Ok(bytes);
        }
        // Members begin at even places.
        let next = i64::try_from(bytes + bytes % 2).map_err(|_| wrong("a member is too long"))?;
        archive.seek(SeekFrom::Current(next))?;
    }
    Err(wrong(&format!("it has no {wanted}")))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A package that Debian's own tool has made.
    fn package(dir: &Path, compression: &str) -> PathBuf {
        let tree = dir.join(compression);
        std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        std::fs::create_dir_all(tree.join("boot")).unwrap();
        let control = "Package: x\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x.x>\n\
                       Description: x\n";
        std::fs::write(tree.join("DEBIAN/control"), control).unwrap();
        std::fs::write(tree.join("boot/vmlinuz-1"), "kernel".repeat(1000)).unwrap();
        std::fs::write(tree.join("boot/other"), "not wanted").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", tree.join("boot/vmlinuz-link")).unwrap();
        let made = dir.join(format!("{compression}.deb"));
        let done = motu_needs::command("dpkg-deb")
            .arg(format!("-Z{compression}"))
            .args(["--root-owner-group", "--build"])
            .args([&tree, &made])
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        made
    }

    #[test]
    fn packages_of_every_compression_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for compression in ["xz", "gzip", "zstd", "none"] {
            let made = package(dir.path(), compression);
            let to = dir.path().join(format!("{compression}-out"));
            unpack(&made, &to, |path| {
                path.starts_with("boot/") && !path.ends_with("other")
            })
            .unwrap();
            let kernel = std::fs::read(to.join("boot/vmlinuz-1")).unwrap();
            assert_eq!(kernel, "kernel".repeat(1000).as_bytes());
            let names = std::fs::read_dir(to.join("boot")).unwrap().count();
            assert_eq!(names, 1, "{compression}: only what is wanted, and no links");
        }
    }

    #[test]
    fn what_is_no_package_or_half_of_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = package(dir.path(), "xz");
        let whole = std::fs::read(made).unwrap();
        for (name, bytes) in [
            ("nothing", &b""[..]),
            ("foreign", b"#!/bin/sh\necho no\n"),
            ("half", &whole[..whole.len() / 2]),
            ("shorter", &whole[..whole.len() - 60]),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let error = unpack(&path, &dir.path().join("out"), |_| true).unwrap_err();
            assert!(error.to_string().contains("cannot be unpacked"), "{error}");
            let _ = std::fs::remove_dir_all(dir.path().join("out"));
        }
        assert!(inside(Path::new("../x")).is_err());
        assert!(inside(Path::new("/x")).is_err());
        assert_eq!(inside(Path::new("./a/b")).unwrap(), Path::new("a/b"));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let dir = tempfile::tempdir().unwrap();
            let with_magic = [MAGIC, &bytes].concat();
            for bytes in [bytes, with_magic] {
                let _ = copy(io::Cursor::new(bytes), dir.path(), |_| true);
            }
        }
    }
}
