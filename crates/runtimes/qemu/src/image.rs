//! Disk images: an environment as a file system in a file, made once per
//! environment without mounting anything, and the empty one of `/workspace`.
//!
//! Images of environments are as small as their content; machines see them through
//! larger overlays and grow the file system at their first boot.

use crate::cache::{Shelf, freeze};
use crate::error::QemuError;
use crate::tool;
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The format of the images; a new number makes new images.
const VERSION: u32 = 2;
/// Room in an image beyond its content, without which some would not fit.
pub(crate) const SLACK: u64 = 16 << 20;
/// Of disks that are kept, in MiB: what it takes to survive a machine that ends in the middle.
const JOURNAL_MIB: u64 = 4;
/// How far a file system can grow: 1 TiB and the environment, in blocks of 4 KiB.
const MAX_BLOCKS: u64 = 300 << 20;
/// Equal for all images of one content, so that they are equal byte for byte.
const UUID: &str = "6d6f7475-0000-4000-8000-000000000001";

/// Whether a disk must survive that its machine ends at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    With,
    Without,
}

impl Journal {
    fn name(self) -> &'static str {
        match self {
            Journal::With => "-journal",
            Journal::Without => "",
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Journal::With => JOURNAL_MIB << 20,
            Journal::Without => 0,
        }
    }
}

/// An image and its size.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) digest: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Images {
    shelf: Shelf,
}

impl Images {
    pub(crate) fn open(home: &Path) -> Result<Images, QemuError> {
        Ok(Images {
            shelf: Shelf::open(home, "images")?,
        })
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The image of an environment's root. Blocks; the first time for a second or more.
    pub(crate) fn root(&self, root: &Path, journal: Journal) -> Result<Image, QemuError> {
        let digest = identity(root)?;
        let name = format!("{digest}{}-v{VERSION}.ext4", journal.name());
        self.get(&name, |path| {
            owned_by_root(root)?;
            make(path, measure(root, journal)?, Some(root), journal)
        })
        .map(|image| Image { digest, ..image })
    }

    /// An empty disk, of its full size: growing one costs a booting machine more than all else it does.
    pub(crate) fn blank(&self, journal: Journal, mib: u64) -> Result<Image, QemuError> {
        let size = Size {
            bytes: mib << 20,
            entries: 0,
        };
        let name = format!("blank-{mib}{}-v{VERSION}.ext4", journal.name());
        self.get(&name, |path| make(path, size, None, journal))
    }

    fn get(
        &self,
        name: &str,
        build: impl FnOnce(&Path) -> Result<(), QemuError>,
    ) -> Result<Image, QemuError> {
        let path = self.shelf.path(name);
        if !path.exists()
            && let Some(claim) = self.shelf.claim(name)?
        {
            let staged = claim.staging.join("image");
            build(&staged)?;
            freeze(&staged)?;
            claim.publish_file("image", name)?;
        }
        let found = path
            .metadata()
            .map_err(QemuError::io("cannot find a disk image"))?;
        Ok(Image {
            path,
            bytes: found.len(),
            digest: name.to_string(),
        })
    }
}

/// Roots are kept in a directory named by their digest; any other root is known by its place.
fn identity(root: &Path) -> Result<String, QemuError> {
    let parent = root.parent().and_then(Path::file_name);
    let name = parent.and_then(|name| name.to_str()).unwrap_or_default();
    let hexadecimal = name.bytes().filter(u8::is_ascii_hexdigit).count();
    if hexadecimal >= 32 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Ok(name.to_string());
    }
    let found = root
        .metadata()
        .map_err(QemuError::io("cannot look at the environment"))?;
    let facts = format!(
        "{} {} {} {}",
        root.display(),
        found.ino(),
        found.mtime(),
        found.mtime_nsec()
    );
    Ok(crate::kernel::hex(&Sha256::new().chain_update(facts)))
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    entries: u64,
}

/// How large an image must be to hold a tree.
fn measure(root: &Path, journal: Journal) -> Result<Size, QemuError> {
    let looking = || QemuError::io("cannot look at what a disk is made of");
    let mut size = Size::default();
    let mut rest = vec![root.to_path_buf()];
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(directory).map_err(looking())? {
            let entry = entry.map_err(looking())?;
            let found = entry.metadata().map_err(looking())?;
            size.entries += 1;
            size.bytes += found.len().next_multiple_of(4096);
            if found.is_dir() {
                rest.push(entry.path());
            }
        }
    }
    let tables = size.entries * 512;
    size.bytes += size.bytes / 8 + tables + SLACK;
    size.bytes = (size.bytes + journal.bytes()).next_multiple_of(1 << 20);
    Ok(size)
}

/// A tree as a file system in a file: read only, as small as it can be. Blocks.
pub(crate) fn of_tree(tree: &Path, path: &Path) -> Result<(), QemuError> {
    let size = measure(tree, Journal::Without)?;
    make(path, size, Some(tree), Journal::Without)?;
    finish(tree, path)?;
    freeze(path)
}

/// What mke2fs leaves out: the top directory's owner and mode (and it adds to that directory),
/// and the nanoseconds of all times.
fn finish(tree: &Path, image: &Path) -> Result<(), QemuError> {
    let looking = || QemuError::io("cannot look at what a disk is made of");
    let top = tree.metadata().map_err(looking())?;
    let mut requests = format!(
        "set_inode_field <2> mode 0{:o}\nset_inode_field <2> uid {}\n\
         set_inode_field <2> gid {}\nrmdir lost+found\n",
        top.mode(),
        top.uid(),
        top.gid()
    );
    let mut rest = vec![(tree.to_path_buf(), String::new())];
    while let Some((directory, above)) = rest.pop() {
        for entry in std::fs::read_dir(directory).map_err(looking())? {
            let entry = entry.map_err(looking())?;
            let found = entry.metadata().map_err(looking())?;
            // Names that a request cannot hold keep whole seconds.
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_plain(name)) else {
                continue;
            };
            let path = format!("{above}/{name}");
            if let Some(time) = extra_time(&found) {
                requests += &format!("set_inode_field \"{path}\" mtime_extra {time}\n");
            }
            if found.is_dir() {
                rest.push((entry.path(), path));
            }
        }
    }
    let script = image.with_extension("requests");
    std::fs::write(&script, requests).map_err(QemuError::io("cannot make a disk image"))?;
    let mut change = tool::command("debugfs")?;
    change.arg("-w").arg("-f").arg(&script).arg(image);
    let changed = tool::run(change);
    std::fs::remove_file(script).map_err(QemuError::io("cannot make a disk image"))?;
    changed.map(drop)
}

fn is_plain(name: &str) -> bool {
    !name.contains(|c: char| c == '"' || c == '\\' || c.is_control())
}

/// What does not fit into the 32 bits of a time: nanoseconds, and two bits more of the seconds.
fn extra_time(found: &std::fs::Metadata) -> Option<i64> {
    let epoch = (found.mtime() - i64::from(found.mtime() as i32)) >> 32;
    Some(found.mtime_nsec() << 2 | epoch & 3).filter(|extra| *extra != 0)
}

fn make(path: &Path, size: Size, root: Option<&Path>, journal: Journal) -> Result<(), QemuError> {
    let file = std::fs::File::create(path).map_err(QemuError::io("cannot make a disk image"))?;
    file.set_len(size.bytes)
        .map_err(QemuError::io("cannot make a disk image"))?;
    let inodes = (size.entries + size.entries / 2 + 4096).max(size.bytes / 16_384);
    let mut command = tool::command("mke2fs")?;
    // With a fixed time, id and seed equal trees give equal images.
    command.env("E2FSPROGS_FAKE_TIME", "1");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"]);
    command.args(["-U", UUID, "-N", &inodes.to_string()]);
    match journal {
        Journal::With => command.args(["-J", &format!("size={JOURNAL_MIB}")]),
        Journal::Without => command.args(["-O", "^has_journal"]),
    };
    command.args([
        "-E",
        &format!("lazy_itable_init=1,nodiscard,hash_seed={UUID},resize={MAX_BLOCKS}"),
    ]);
    if let Some(root) = root {
        command.arg("-d").arg(root);
    }
    command.arg(path);
    tool::run(command)?;
    // It gets its name next, and a host that stops then must not leave half of it there.
    file.sync_all()
        .map_err(QemuError::io("cannot make a disk image"))
}

/// An environment unpacked by an ordinary user has that user's ids on disk, which would become the machine's.
fn owned_by_root(root: &Path) -> Result<(), QemuError> {
    let found = root
        .metadata()
        .map_err(QemuError::io("cannot look at the environment"))?;
    if found.uid() == 0 {
        return Ok(());
    }
    Err(QemuError::Unsupported(
        "environments of a daemon that is not root cannot be made into disks yet".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_trees_give_equal_images() {
        let home = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bin")).unwrap();
        std::fs::write(root.path().join("bin/sh"), "#!").unwrap();
        if root.path().metadata().unwrap().uid() != 0 {
            return;
        }
        let make_at = |name: &str| {
            let path = home.path().join(name);
            let size = measure(root.path(), Journal::Without).unwrap();
            make(&path, size, Some(root.path()), Journal::Without).unwrap();
            std::fs::read(path).unwrap()
        };
        assert!(make_at("a") == make_at("b"));
    }

    #[test]
    fn stored_roots_are_known_by_their_digest() {
        let digest = format!("sha256-{}", "ab".repeat(32));
        let root = PathBuf::from(format!("/x/{digest}/root"));
        assert_eq!(identity(&root).unwrap(), digest);
    }
}
