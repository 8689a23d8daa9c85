//! Unpacking an archive into a fresh directory.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use rustix::fs::{AtFlags, Mode};

use super::{
    Options,
    place::{self, create_file, dress, open_directory, parent, write_sparse},
};
use crate::{
    archive::{self, About, ArchiveError, Item, Totals},
    tarball::{Attributes, Meta},
};

/// Unpacks into `target`, which is empty.
pub(super) fn unpack(
    source: impl Read,
    target: &Path,
    options: Options,
) -> Result<Totals, ArchiveError> {
    let root = std::fs::File::open(target).map_err(ArchiveError::Io)?;
    let mut tree = Tree {
        root: root.into(),
        options,
        directories: BTreeMap::new(),
        open: None,
    };
    let (totals, root) = archive::read_rooted(source, options.limits, |about, item| {
        tree.place(&about, item)
    })?;
    if let Some(root) = root.filter(|_| options.root) {
        tree.directories.insert(Vec::new(), root);
    }
    tree.finish().map_err(ArchiveError::Io)?;
    Ok(totals)
}

struct Tree {
    root: OwnedFd,
    options: Options,
    /// Metadata is set last: writing into a directory changes its mtime, and its permissions may
    /// forbid writing.
    directories: BTreeMap<Vec<u8>, (Meta, Attributes)>,
    /// The directory used last: an archive's entries are grouped by directory.
    open: Option<(Vec<u8>, OwnedFd)>,
}

impl Tree {
    fn place(&mut self, about: &About<'_>, item: Item<'_>) -> io::Result<()> {
        let path = about.path.as_bytes();
        if let Item::Directory = item {
            if !about.replaces {
                let (directory, name) = parent(self.root.as_fd(), path)?;
                rustix::fs::mkdirat(directory, name, Mode::RWXU)?;
            }
            let dress = (about.meta, about.attributes.clone());
            self.directories.insert(path.to_vec(), dress);
            return Ok(());
        }
        let root = self.root.try_clone()?;
        let owner = self.options.owner;
        let (directory, name) = self.parent(path)?;
        if about.replaces {
            rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
        }
        match item {
            Item::Directory => Ok(()),
            Item::File { size, contents } => {
                let mut file = create_file(directory, &name)?;
                write_sparse(&mut file, size, contents)?;
                dress(&file, (about.meta, about.attributes), owner)
            }
            Item::Symlink { target } => place::symlink(directory, &name, target, about.meta, owner),
            Item::HardLink { target } => {
                let (from, old) = parent(root.as_fd(), target.as_bytes())?;
                Ok(rustix::fs::linkat(
                    from,
                    old,
                    directory,
                    name,
                    AtFlags::empty(),
                )?)
            }
        }
    }

    fn parent(&mut self, path: &[u8]) -> io::Result<(&OwnedFd, Vec<u8>)> {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let above = &path[..at.unwrap_or(0)];
        let name = path[at.map_or(0, |at| at + 1)..].to_vec();
        let open = match self.open.take() {
            Some((open, directory)) if open == above => (open, directory),
            _ => (above.to_vec(), open_directory(&self.root, above)?),
        };
        Ok((&self.open.insert(open).1, name))
    }

    fn finish(self) -> io::Result<()> {
        // Deepest first: permissions of the parents may forbid descending.
        for (path, (meta, attributes)) in self.directories.iter().rev() {
            let directory = open_directory(&self.root, path)?;
            dress(directory, (*meta, attributes), self.options.owner)?;
        }
        Ok(())
    }
}
