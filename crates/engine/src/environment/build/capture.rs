//! Turns the changes that a machine made into a layer.
//!
//! A machine that has ended left its writes on a disk of its own, apart from the tree it started
//! from. Both are compared: entries that are equal are left out, so a file that was only read, or
//! rewritten with the same contents, is not in the layer.

use crate::admission::environment_error;
use motu_core::runtime::{AtRest, RestLayer};
use motu_core::{Error, Result, limits};
use motu_disks::{Attributes, DirectoryLayer, Ext4Layer, Kind, Layer};
use motu_environments::{Found, LayerWriter, Meta, Workplace};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;

/// Most names in one directory.
pub(super) const MAX_NAMES: usize = 1_000_000;
/// Deepest directory.
pub(super) const MAX_DEPTH: usize = 200;
/// Where the workspace disk is mounted in the machine's tree.
pub(super) const WORKSPACE: &[u8] = b"workspace";
/// Paths that belong to the machine, not to the tree.
const MACHINES_OWN: [&[u8]; 8] = [
    b"dev",
    b"proc",
    b"sys",
    b"run/secrets",
    b"etc/hosts",
    b"etc/hostname",
    b"etc/resolv.conf",
    b"etc/machine-id",
];

/// The disks to compare and the paths to leave out.
pub(super) struct Capture<'a> {
    pub(super) rest: &'a AtRest,
    pub(super) place: &'a Workplace,
    /// Paths that are left out, with all below them.
    pub(super) without: &'a [Vec<u8>],
}

impl Capture<'_> {
    /// Writes the differences into a layer.
    pub(super) fn write(&self, layer: &mut LayerWriter) -> Result<()> {
        let [upper, below @ ..] = self.rest.root.as_slice() else {
            return Err(Error::internal("a machine has no root"));
        };
        let mut walk = Walk {
            disk: open(upper, !below.is_empty())?,
            prefix: b"",
            place: self.place,
            without: self.without,
            layer,
            left: limits::BUILD_CACHE_BYTES.max,
        };
        walk.directory(b"", below.is_empty(), 0)?;
        let left = walk.left;
        if let Some(upper) = self.rest.workspace.first() {
            let mut walk = Walk {
                disk: open(upper, true)?,
                prefix: WORKSPACE,
                place: self.place,
                without: self.without,
                layer,
                left,
            };
            let covers = walk.disk.stat(b"")?.is_some_and(|top| top.opaque);
            walk.directory(b"", covers, 0)?;
        }
        Ok(())
    }
}

pub(super) fn open(layer: &RestLayer, upper: bool) -> Result<Box<dyn Layer>> {
    Ok(match layer {
        RestLayer::Directory(path) => Box::new(DirectoryLayer::open(path)?),
        RestLayer::Disk { chain, directory } => {
            let chain: Vec<&Path> = chain.iter().map(AsRef::as_ref).collect();
            let disk = motu_disks::open_disk(&chain)?;
            match upper {
                true => Box::new(Ext4Layer::upper(disk, directory.as_bytes())?),
                false => Box::new(Ext4Layer::whole(disk)?),
            }
        }
    })
}

struct Walk<'a> {
    disk: Box<dyn Layer>,
    /// Where the disk is in the tree.
    prefix: &'static [u8],
    place: &'a Workplace,
    without: &'a [Vec<u8>],
    layer: &'a mut LayerWriter,
    /// Bytes that may still be written.
    left: u64,
}

impl Walk<'_> {
    /// Converts a path on the disk to a path in the tree.
    fn outside(&self, inside: &[u8]) -> Vec<u8> {
        match (self.prefix, inside) {
            (b"", inside) => inside.to_vec(),
            (prefix, b"") => prefix.to_vec(),
            (prefix, inside) => [prefix, b"/", inside].concat(),
        }
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        let below = |top: &[u8]| {
            path.strip_prefix(top)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let mounted = self.prefix.is_empty() && below(WORKSPACE);
        let lost = self.prefix.is_empty() && path == b"lost+found";
        mounted
            || lost
            || MACHINES_OWN.iter().any(|top| below(top))
            || self.without.iter().any(|top| below(top))
    }

    /// Compares a directory of the disk with the tree. With `covers`, entries that are not on the
    /// disk have been removed.
    fn directory(&mut self, inside: &[u8], covers: bool, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::limit("a directory of the machine is too deep"));
        }
        let names: BTreeSet<Vec<u8>> = self.disk.names(inside, MAX_NAMES)?.into_iter().collect();
        let here = self.outside(inside);
        if covers {
            self.removed(&here, &names)?;
        }
        for name in names {
            let path = match inside {
                b"" => name,
                inside => [inside, b"/", &name].concat(),
            };
            let outside = self.outside(&path);
            if self.is_left_out(&outside) {
                continue;
            }
            let Some(attributes) = self.disk.stat(&path)? else {
                continue;
            };
            self.entry(&path, &outside, &attributes, covers, depth)?;
        }
        Ok(())
    }

    /// Writes whiteouts for entries that the tree has and the disk has not.
    fn removed(&mut self, here: &[u8], names: &BTreeSet<Vec<u8>>) -> Result<()> {
        let start = if here.is_empty() { 0 } else { here.len() + 1 };
        let children: Vec<Vec<u8>> = self
            .place
            .below(here)
            .filter(|path| !path[start..].contains(&b'/'))
            .filter(|path| !names.contains(&path[start..]))
            .map(<[u8]>::to_vec)
            .collect();
        for path in children {
            if !self.is_left_out(&path) {
                self.layer.whiteout(&path).map_err(environment_error)?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        inside: &[u8],
        outside: &[u8],
        attributes: &Attributes,
        covers: bool,
        depth: usize,
    ) -> Result<()> {
        let meta = Meta {
            mode: attributes.mode,
            uid: attributes.uid.into(),
            gid: attributes.gid.into(),
            mtime: u64::try_from(attributes.modified_unix_ns / 1_000_000_000).unwrap_or(0),
        };
        let before = self.place.at(outside);
        let same_owner = before.as_ref().is_some_and(|place| {
            (place.uid, place.gid) == (meta.uid, meta.gid) && place.mode == meta.mode
        });
        let found = before.as_ref().map(|place| place.found.clone());
        match attributes.kind {
            Kind::Whiteout => match found {
                Some(_) => self.layer.whiteout(outside).map_err(environment_error),
                None => Ok(()),
            },
            Kind::Directory => {
                let was = found == Some(Found::Directory);
                if !was || !same_owner {
                    let written = self.layer.directory(outside, meta);
                    written.map_err(environment_error)?;
                }
                let covers = was && (covers || attributes.opaque);
                self.directory(inside, covers, depth + 1)
            }
            Kind::Symlink => {
                let target = &attributes.symlink_target;
                let same = matches!(found, Some(Found::Symlink(old)) if old == target.as_slice());
                match same && same_owner {
                    true => Ok(()),
                    false => self
                        .layer
                        .symlink(outside, meta, target)
                        .map_err(environment_error),
                }
            }
            Kind::File => {
                let noted = self.disk.attributes(inside)?;
                let same = same_owner && before.is_some_and(|place| *place.attributes == noted);
                if let (true, Some(Found::File(sum))) = (same, found) {
                    let mut hash = Sha256::new();
                    self.disk.read(inside, attributes.size, &mut hash)?;
                    if hash.finalize().as_slice() == sum {
                        return Ok(());
                    }
                }
                self.file(inside, outside, (meta, attributes.size), &noted)
            }
            // Sockets, pipes and devices belong to the machine.
            Kind::Other => Ok(()),
        }
    }

    fn file(
        &mut self,
        inside: &[u8],
        outside: &[u8],
        (meta, size): (Meta, u64),
        noted: &motu_environments::FileAttributes,
    ) -> Result<()> {
        // Sizes are claims: a sparse file may be larger than every disk. Count them against the
        // limit.
        self.left = self.left.checked_sub(size).ok_or_else(|| {
            let most = limits::BUILD_CACHE_BYTES.max;
            Error::limit(format!(
                "the step left more than build_cache_bytes, {most}, bytes"
            ))
            .hint("files with holes count with their whole size")
        })?;
        let mut spool = spooled(self.disk.as_mut(), inside, size)?;
        let written = self.layer.file(outside, meta, noted, (size, &mut spool));
        written.map_err(environment_error)
    }
}

/// Copies a file's contents into a temporary file, in memory or on disk: the disk's reader pushes
/// into a writer, while the layer's writer pulls from a reader.
pub(super) fn spooled(
    disk: &mut dyn Layer,
    path: &[u8],
    size: u64,
) -> Result<tempfile::SpooledTempFile> {
    let mut spool = tempfile::spooled_tempfile(SPOOLED);
    disk.read(path, size, &mut spool)?;
    std::io::Seek::rewind(&mut spool)
        .map_err(|error| Error::io("cannot copy a file of the machine", &error))?;
    Ok(spool)
}

/// Larger files are spooled to disk instead of memory.
const SPOOLED: usize = 8 << 20;
