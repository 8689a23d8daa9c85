//! What a backup says it is: everything in it, with a checksum of each thing.

use super::parts::{How, Kind, PARTS, Part, is_whole};
use jiff::Timestamp;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, SandboxId};
use rustix::fs::SeekFrom;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub const MANIFEST: &str = "backup.json";
/// Version 2 added the things, their checksums and what they need.
pub const VERSION: u32 = 2;
/// Files are read in pieces of this size.
const PIECE: usize = 64 * 1024;

/// The file `backup.json`, which is written last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    /// Tells this backup from every other one.
    #[serde(default)]
    pub id: String,
    pub motu: String,
    pub made_at: Timestamp,
    pub workspaces: Vec<SandboxId>,
    #[serde(default)]
    pub items: Vec<Item>,
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

/// One thing in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub kind: Kind,
    pub name: String,
    /// Where it is in the backup, and in a state directory.
    pub path: PathBuf,
    /// Of its files, without holes.
    pub bytes: u64,
    /// Over its whole tree: names, kinds, owners, modes and contents.
    pub sha256: String,
    /// The things that it cannot be used without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<PathBuf>,
}

/// Something that is not in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

impl LeftOut {
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> LeftOut {
        LeftOut {
            what: what.into(),
            why: why.into(),
        }
    }
}

impl Manifest {
    pub fn read(from: &Path) -> Result<Manifest> {
        let path = from.join(MANIFEST);
        let text = std::fs::read(&path).map_err(|error| {
            Error::not_found(format!("{} is not a backup: {error}", from.display()))
                .hint(hint![host("motu backup DIR"), " makes one"])
        })?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
        match manifest.version {
            1..=VERSION => Ok(manifest),
            other => Err(Error::unsupported(format!(
                "the backup has version {other}; this motu knows versions up to {VERSION}"
            ))),
        }
    }

    pub fn write(&self, to: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal(format!("backup: {error}")))?;
        crate::lost::write(to, MANIFEST, &text)
            .map_err(|error| Error::io("finish the backup", &error))
    }
}

/// The things that lie in a directory with the layout of a state directory: part and path.
pub fn things(dir: &Path) -> Vec<(Part, PathBuf)> {
    let mut all = Vec::new();
    for part in PARTS {
        let place = dir.join(part.path);
        match part.how {
            How::Whole if place.symlink_metadata().is_ok() => {
                all.push((part, PathBuf::from(part.path)));
            }
            How::Whole => {}
            How::Each => {
                let found = std::fs::read_dir(&place).into_iter().flatten().flatten();
                let mut names: Vec<_> = found.map(|entry| entry.file_name()).collect();
                names.retain(|name| is_whole(&name.to_string_lossy()));
                names.sort();
                all.extend(
                    names
                        .into_iter()
                        .map(|name| (part, Path::new(part.path).join(name))),
                );
            }
        }
    }
    all
}

/// Describes everything in a directory with the layout of a state directory. Blocks.
pub fn describe(dir: &Path) -> Result<Vec<Item>> {
    let item = |(part, path): (Part, PathBuf)| {
        let (sha256, bytes) = checksum(&dir.join(&path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Item {
            kind: part.kind,
            name: name.trim_end_matches(".json").to_string(),
            needs: super::references::of(dir, part.kind, &path),
            path,
            bytes,
            sha256,
        })
    };
    things(dir).into_iter().map(item).collect()
}

/// The checksum of a tree, and the bytes of its files. Holes and zeros are the same. Blocks.
pub fn checksum(path: &Path) -> Result<(String, u64)> {
    let mut sum = Sum::default();
    sum.tree(path, Path::new(""))
        .map_err(|error| Error::with_file(format_args!("read {}", path.display()), &error))?;
    let digest = sum.hash.finalize();
    let text = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((text, sum.bytes))
}

#[derive(Default)]
struct Sum {
    hash: Sha256,
    bytes: u64,
}

impl Sum {
    fn word(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    fn number(&mut self, number: u64) {
        self.hash.update(number.to_le_bytes());
    }

    fn tree(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        let path = root.join(below);
        // The path of the root itself must not end in a slash.
        let path = if below.as_os_str().is_empty() {
            root
        } else {
            &path
        };
        let found = path.symlink_metadata()?;
        let kind = found.file_type();
        self.word(below.as_os_str().as_bytes());
        self.number(u64::from(found.mode()));
        self.number(u64::from(found.uid()));
        self.number(u64::from(found.gid()));
        if kind.is_symlink() {
            self.word(std::fs::read_link(path)?.as_os_str().as_bytes());
        } else if kind.is_block_device() || kind.is_char_device() {
            self.number(found.rdev());
        } else if kind.is_file() {
            self.file(path, found.len())?;
        } else if kind.is_dir() {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(path)? {
                names.push(entry?.file_name());
            }
            names.sort();
            for name in names {
                self.tree(root, &below.join(name))?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, length: u64) -> io::Result<()> {
        self.number(length);
        let file = File::open(path)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < length {
            // Where nothing was ever written, a piece is not even read.
            at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => data - data % PIECE as u64,
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => at,
            };
            let read = read_up_to(&file, &mut piece, at)?;
            if read == 0 {
                break;
            }
            if piece[..read].iter().any(|&byte| byte != 0) {
                self.number(at);
                self.word(&piece[..read]);
                self.bytes += read as u64;
            }
            at += PIECE as u64;
        }
        Ok(())
    }
}

fn read_up_to(file: &File, piece: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < piece.len() {
        match file.read_at(&mut piece[read..], at + read as u64)? {
            0 => break,
            some => read += some,
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_sees_every_change_and_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("in")).unwrap();
        std::fs::write(tree.join("in/a"), "text").unwrap();
        std::fs::write(tree.join("zeros"), vec![0; 300_000]).unwrap();
        std::os::unix::fs::symlink("in/a", tree.join("link")).unwrap();
        let (whole, bytes) = checksum(&tree).unwrap();
        assert_eq!(bytes, 4);
        // A file of zeros is one with a hole.
        std::fs::remove_file(tree.join("zeros")).unwrap();
        File::create(tree.join("zeros"))
            .unwrap()
            .set_len(300_000)
            .unwrap();
        assert_eq!(checksum(&tree).unwrap().0, whole);
        let changes: [fn(&Path); 6] = [
            |tree| std::fs::write(tree.join("in/a"), "Text").unwrap(),
            |tree| std::fs::write(tree.join("in/b"), "").unwrap(),
            |tree| std::fs::rename(tree.join("in/b"), tree.join("b")).unwrap(),
            |tree| {
                let file = File::options()
                    .write(true)
                    .open(tree.join("zeros"))
                    .unwrap();
                file.write_all_at(&[1], 200_000).unwrap();
            },
            |tree| {
                std::fs::remove_file(tree.join("link")).unwrap();
                std::os::unix::fs::symlink("in/b", tree.join("link")).unwrap();
            },
            |tree| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                std::fs::set_permissions(tree.join("b"), mode).unwrap();
            },
        ];
        let mut seen = vec![whole];
        for (number, change) in changes.iter().enumerate() {
            change(&tree);
            let (sum, _) = checksum(&tree).unwrap();
            assert!(!seen.contains(&sum), "change {number}");
            seen.push(sum);
        }
    }
}
