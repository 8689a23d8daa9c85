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
            belongs_to_the_daemon(root)?;
            let command = tool::mapped("mke2fs")?;
            make(
                path,
                measure_mapped(root, journal)?,
                Some(root),
                (command, journal),
            )
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
        self.get(&name, |path| {
            make(path, size, None, (tool::command("mke2fs")?, journal))
        })
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

impl Size {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes.next_multiple_of(4096);
    }

    /// Of an image that holds all of it.
    fn with_tables(mut self, journal: Journal) -> Size {
        self.bytes += self.bytes / 8 + self.entries * 512 + SLACK;
        self.bytes = (self.bytes + journal.bytes()).next_multiple_of(1 << 20);
        self
    }
}

/// How large an image of an environment must be. An ordinary user may not look into all of its directories: what sees the
/// owners inside looks for them.
fn measure_mapped(root: &Path, journal: Journal) -> Result<Size, QemuError> {
    if rustix::process::geteuid().is_root() {
        return measure(root, journal);
    }
    let mut find = tool::mapped("find")?;
    find.arg(root).args(["-mindepth", "1", "-printf", "%s\\n"]);
    let mut size = Size::default();
    for line in tool::run(find)?.lines() {
        size.add(line.parse().map_err(|_| QemuError::Failed {
            tool: "find".to_string(),
            tail: format!("it printed {line:?} as a size"),
        })?);
    }
    Ok(size.with_tables(journal))
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
            size.add(found.len());
            if found.is_dir() {
                rest.push(entry.path());
            }
        }
    }
    Ok(size.with_tables(journal))
}

/// A tree as a file system in a file: read only, as small as it can be. Everything in it belongs to `owner`, if there is
/// one. Blocks.
pub(crate) fn of_tree(
    tree: &Path,
    path: &Path,
    owner: Option<(u32, u32)>,
) -> Result<(), QemuError> {
    let size = measure(tree, Journal::Without)?;
    let command = match owner {
        Some(owner) => tool::owned_by(owner, "mke2fs")?,
        None => tool::command("mke2fs")?,
    };
    make(path, size, Some(tree), (command, Journal::Without))?;
    finish(tree, path, owner)?;
    freeze(path)
}

/// What mke2fs leaves out: the top directory's owner and mode (and it adds to that directory),
/// and the nanoseconds of all times.
fn finish(tree: &Path, image: &Path, owner: Option<(u32, u32)>) -> Result<(), QemuError> {
    let looking = || QemuError::io("cannot look at what a disk is made of");
    let top = tree.metadata().map_err(looking())?;
    let (uid, gid) = owner.unwrap_or((top.uid(), top.gid()));
    let mut requests = format!(
        "set_inode_field <2> mode 0{:o}\nset_inode_field <2> uid {}\n\
         set_inode_field <2> gid {}\nrmdir lost+found\n",
        top.mode(),
        uid,
        gid
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

/// Makes an image with a command that runs mke2fs.
fn make(
    path: &Path,
    size: Size,
    root: Option<&Path>,
    (mut command, journal): (std::process::Command, Journal),
) -> Result<(), QemuError> {
    let file = std::fs::File::create(path).map_err(QemuError::io("cannot make a disk image"))?;
    file.set_len(size.bytes)
        .map_err(QemuError::io("cannot make a disk image"))?;
    let inodes = (size.entries + size.entries / 2 + 4096).max(size.bytes / 16_384);
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

/// An environment that somebody else has unpacked has ids on the disk that mean nothing here.
fn belongs_to_the_daemon(root: &Path) -> Result<(), QemuError> {
    let found = root
        .metadata()
        .map_err(QemuError::io("cannot look at the environment"))?;
    let own = rustix::process::geteuid().as_raw();
    if found.uid() == own {
        return Ok(());
    }
    Err(QemuError::Unsupported(format!(
        "the environment belongs to user {}, and the daemon is run by user {own}: whose its files are inside is not known",
        found.uid()
    )))
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
        let make_at = |name: &str| {
            let path = home.path().join(name);
            let size = measure(root.path(), Journal::Without).unwrap();
            let command = tool::command("mke2fs").unwrap();
            make(&path, size, Some(root.path()), (command, Journal::Without)).unwrap();
            std::fs::read(path).unwrap()
        };
        assert!(make_at("a") == make_at("b"));
    }

    #[test]
    fn a_tree_of_the_daemons_user_can_be_somebody_elses() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), "x").unwrap();
        let image = home.path().join("image");
        of_tree(&tree, &image, Some((1000, 1001))).unwrap();
        for inode in ["<2>", "/file"] {
            let mut look = tool::command("debugfs").unwrap();
            look.args(["-R", &format!("stat {inode}")]).arg(&image);
            let said = tool::run(look).unwrap();
            let words: Vec<&str> = said.split_whitespace().collect();
            let after = |name| words[words.iter().position(|word| *word == name).unwrap() + 1];
            assert_eq!(
                (after("User:"), after("Group:")),
                ("1000", "1001"),
                "{said}"
            );
        }
    }

    #[test]
    fn stored_roots_are_known_by_their_digest() {
        let digest = format!("sha256-{}", "ab".repeat(32));
        let root = PathBuf::from(format!("/x/{digest}/root"));
        assert_eq!(identity(&root).unwrap(), digest);
    }
}
