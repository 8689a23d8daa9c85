//! Packs a tree or a file of the host for a machine.
//!
//! Permissions without special bits, times in nanoseconds, `user.*` attributes, holes, hard links
//! and symbolic links are preserved. Devices, pipes and sockets are skipped and counted.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use crate::{
    seed::place::attributes,
    tarball::{Attributes, Meta, TarWriter},
};

/// What was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    pub entries: u64,
    /// Bytes of the files, holes included.
    pub bytes: u64,
    /// Devices, pipes and sockets left out.
    pub skipped: u64,
}

/// Writes the file or directory at `source` as an archive, under the name `name`. A symbolic link
/// is followed only at the top.
pub fn pack(source: &Path, name: &[u8], out: impl Write) -> io::Result<Packed> {
    let mut packer = Packer {
        tar: TarWriter::new(out),
        links: HashMap::new(),
        packed: Packed::default(),
    };
    let top = fs::metadata(source).map_err(at(source))?;
    let mut rest = vec![(source.to_path_buf(), name.to_vec(), top)];
    while let Some((path, name, meta)) = rest.pop() {
        packer.add(&path, &name, &meta).map_err(at(&path))?;
        if meta.is_dir() {
            rest.extend(below(&path, &name).map_err(at(&path))?);
        }
    }
    packer.tar.finish()?;
    Ok(packer.packed)
}

type Waiting = (PathBuf, Vec<u8>, Metadata);

/// The entries of a directory in reverse order.
fn below(path: &Path, name: &[u8]) -> io::Result<Vec<Waiting>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = [name, b"/", entry.file_name().as_bytes()].concat();
        match entry.metadata() {
            Ok(meta) => found.push((entry.path(), name, meta)),
            // Removed concurrently.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(&entry.path())(error)),
        }
    }
    found.sort_by(|a, b| b.1.cmp(&a.1));
    Ok(found)
}

fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let (kind, text) = (error.kind(), error.to_string());
        // Only the innermost path is added to the message.
        let said = text.starts_with(&*path.to_string_lossy());
        match said {
            true => error,
            false => io::Error::new(kind, format!("{}: {text}", path.display())),
        }
    }
}

struct Packer<W> {
    tar: TarWriter<W>,
    /// The first name of each file with several hard links.
    links: HashMap<(u64, u64), Vec<u8>>,
    packed: Packed,
}

impl<W: Write> Packer<W> {
    fn add(&mut self, path: &Path, name: &[u8], meta: &Metadata) -> io::Result<()> {
        self.packed.entries += 1;
        let kind = meta.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(path)?;
            return self
                .tar
                .symlink(name, meta_of(meta), target.as_os_str().as_bytes());
        }
        if kind.is_dir() {
            let own = attributes(File::open(path)?)?;
            return self.tar.directory(name, meta_of(meta), &own);
        }
        if !kind.is_file() {
            self.packed.entries -= 1;
            self.packed.skipped += 1;
            return Ok(());
        }
        if meta.nlink() > 1 {
            let key = (meta.dev(), meta.ino());
            if let Some(first) = self.links.get(&key) {
                return self.tar.hard_link(name, meta_of(meta), first);
            }
            self.links.insert(key, name.to_vec());
        }
        // A pipe that took the name since must not block.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
        let file = File::options()
            .read(true)
            .custom_flags(i32::try_from(nonblock).unwrap_or(0))
            .open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it changed while it was read"));
        }
        let own: Attributes = attributes(&file)?;
        self.packed.bytes += meta.len();
        self.tar.disk_file(name, meta_of(&meta), &own, &file)
    }
}

fn meta_of(meta: &Metadata) -> Meta {
    Meta {
        mode: meta.mode() & 0o777,
        uid: meta.uid(),
        gid: meta.gid(),
        modified_unix_ns: meta
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(meta.mtime_nsec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Replace, unpack_file, unpack_tree};
    use std::os::unix::fs::{FileExt as _, symlink};
    use tempfile::TempDir;

    /// Everything about a file that a copy must preserve.
    fn look(path: &Path) -> (u32, i64, i64, u64, Attributes) {
        let meta = fs::symlink_metadata(path).unwrap();
        let own = match meta.is_symlink() {
            true => Attributes::new(),
            false => attributes(File::open(path).unwrap()).unwrap(),
        };
        let size = if meta.is_dir() { 0 } else { meta.len() };
        (meta.mode(), meta.mtime(), meta.mtime_nsec(), size, own)
    }

    #[test]
    fn a_tree_and_a_file_are_what_they_were() {
        let dir = TempDir::new().unwrap();
        let source = dir.path().join("source");
        fs::create_dir_all(source.join("sub")).unwrap();
        let sparse = File::create(source.join("sub/sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        sparse.write_all_at(b"middle", 700 << 20).unwrap();
        fs::write(source.join("plain"), "x").unwrap();
        fs::hard_link(source.join("plain"), source.join("sub/linked")).unwrap();
        symlink("plain", source.join("link")).unwrap();
        for (path, value) in [("plain", &b"a=b"[..]), ("sub", b"")] {
            let path = source.join(path);
            rustix::fs::setxattr(path, "user.n=%me", value, rustix::fs::XattrFlags::empty())
                .unwrap();
        }
        let (mut archive, mut one) = (Vec::new(), Vec::new());
        let packed = pack(&source, b"top", &mut archive).unwrap();
        assert_eq!((packed.entries, packed.skipped), (6, 0));
        assert!(archive.len() < 100_000, "{}", archive.len());
        unpack_tree(
            &archive[..],
            &dir.path().join("out"),
            Replace::Nothing,
            2 << 30,
        )
        .unwrap();
        let made = dir.path().join("out/top");
        for path in ["", "plain", "sub", "sub/sparse", "sub/linked", "link"] {
            assert_eq!(look(&source.join(path)), look(&made.join(path)), "{path}");
        }
        let copy = fs::metadata(made.join("sub/sparse")).unwrap();
        assert!(copy.blocks() < 1000, "{}", copy.blocks());
        let inode = |path: &str| fs::metadata(made.join(path)).unwrap().ino();
        assert_eq!(inode("plain"), inode("sub/linked"));

        pack(&source.join("sub/sparse"), b"n", &mut one).unwrap();
        let file = dir.path().join("file");
        unpack_file(&one[..], &file, Replace::Nothing, 2 << 30).unwrap();
        assert_eq!(look(&file), look(&source.join("sub/sparse")));
        assert!(fs::metadata(&file).unwrap().blocks() < 1000);
        let error = unpack_file(&one[..], &dir.path().join("more"), Replace::Nothing, 1000);
        assert_eq!(error.unwrap_err().kind, motu_core::ErrorKind::Limit);
        assert!(!dir.path().join("more").exists());
        let error = unpack_file(
            &archive[..],
            &dir.path().join("none"),
            Replace::Nothing,
            1000,
        );
        error.unwrap_err();
    }
}
