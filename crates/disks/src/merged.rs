//! Several layers as one tree.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use crate::{Attributes, DiskError, Kind, Layer};

/// Symbolic links followed for one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Most names in one directory of one layer.
const MAX_NAMES: usize = 1_000_000;
/// Deepest directory of a recursive listing.
const MAX_DEPTH: usize = 200;

/// Overlaid layers, the uppermost first.
pub struct Merged {
    layers: Vec<Box<dyn Layer>>,
    may_show_removed: bool,
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Merged of {} layers", self.layers.len())
    }
}

/// One path of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Absolute, as in the machine; invalid UTF-8 is replaced.
    pub path: String,
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub modified_unix_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// There were more entries than the limit.
    pub truncated: bool,
}

/// The contents of a file, or their beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub bytes: Vec<u8>,
    /// Size of the whole file.
    pub size: u64,
    pub truncated: bool,
}

/// A path that was found.
pub(crate) struct Found {
    /// Canonical, relative.
    pub path: Vec<u8>,
    pub attributes: Attributes,
    /// The layer it is in; for a directory all visible ones, uppermost first.
    pub layers: Vec<usize>,
}

impl Merged {
    /// Lays `layers` over each other, the uppermost first.
    pub fn new(layers: Vec<Box<dyn Layer>>) -> Merged {
        let covers = layers.split_last().map_or(&[][..], |(_, upper)| upper);
        let may_show_removed = covers.iter().any(|layer| !layer.knows_opaque());
        Merged {
            layers,
            may_show_removed,
        }
    }

    /// Whether a directory that was removed and made again may show its former contents, because
    /// some layer has no opaque markers.
    pub fn may_show_removed(&self) -> bool {
        self.may_show_removed
    }

    /// Lists a path, or its entries if it is a directory.
    pub fn list(
        &mut self,
        path: &[u8],
        recursive: bool,
        limit: usize,
    ) -> Result<Listing, DiskError> {
        let found = self.find(path, true)?;
        let mut listing = Listing {
            entries: Vec::new(),
            truncated: false,
        };
        if found.attributes.kind != Kind::Directory {
            listing.entries.push(entry(&found));
            return Ok(listing);
        }
        self.walk(&found, recursive, MAX_DEPTH, &mut |_, found| {
            if listing.entries.len() == limit {
                listing.truncated = true;
                return Ok(false);
            }
            listing.entries.push(entry(found));
            Ok(true)
        })?;
        Ok(listing)
    }

    /// Reads a regular file.
    pub fn read(&mut self, path: &[u8], max_bytes: u64) -> Result<Contents, DiskError> {
        let found = self.find(path, true)?;
        if found.attributes.kind != Kind::File {
            return Err(DiskError::NotFile { path: shown(path) });
        }
        let mut bytes = Vec::new();
        let layer = &mut self.layers[found.layers[0]];
        layer.read(&found.path, max_bytes, &mut bytes)?;
        Ok(Contents {
            truncated: found.attributes.size > bytes.len() as u64,
            size: found.attributes.size,
            bytes,
        })
    }

    pub(crate) fn layer(&mut self, found: &Found) -> &mut dyn Layer {
        self.layers[found.layers[0]].as_mut()
    }

    /// Visits everything in a directory, parents first, until `visit` returns false.
    pub(crate) fn walk(
        &mut self,
        directory: &Found,
        recursive: bool,
        depth: usize,
        visit: &mut dyn FnMut(&mut Merged, &Found) -> Result<bool, DiskError>,
    ) -> Result<bool, DiskError> {
        let mut names = BTreeSet::new();
        for layer in &directory.layers {
            names.extend(self.layers[*layer].names(&directory.path, MAX_NAMES)?);
        }
        for name in names {
            let Some(found) = self.child(directory, &name)? else {
                continue;
            };
            if !visit(self, &found)? {
                return Ok(false);
            }
            if recursive && found.attributes.kind == Kind::Directory {
                if depth == 0 {
                    return Err(DiskError::Limit {
                        what: "the depth of a directory",
                        limit: MAX_DEPTH as u64,
                    });
                }
                if !self.walk(&found, true, depth - 1, visit)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn root(&mut self) -> Result<Found, DiskError> {
        let everywhere: Vec<usize> = (0..self.layers.len()).collect();
        let root = self.look(&everywhere, b"")?;
        match root {
            Some(root) if root.attributes.kind == Kind::Directory => Ok(root),
            _ => Err(DiskError::damaged("it has no root directory")),
        }
    }

    /// An entry of a directory, merged from its layers.
    fn child(&mut self, directory: &Found, name: &[u8]) -> Result<Option<Found>, DiskError> {
        let path = match directory.path.as_slice() {
            b"" => name.to_vec(),
            above => [above, b"/", name].concat(),
        };
        self.look(&directory.layers, &path)
    }

    /// Looks a path up in layers that all have its parent.
    fn look(&mut self, layers: &[usize], path: &[u8]) -> Result<Option<Found>, DiskError> {
        let mut found: Option<Found> = None;
        for layer in layers {
            let Some(attributes) = self.layers[*layer].stat(path)? else {
                continue;
            };
            match &mut found {
                _ if attributes.kind == Kind::Whiteout => break,
                None => {
                    let goes_on = attributes.kind == Kind::Directory && !attributes.opaque;
                    found = Some(Found {
                        path: path.to_vec(),
                        attributes,
                        layers: vec![*layer],
                    });
                    if !goes_on {
                        break;
                    }
                }
                Some(found) if attributes.kind == Kind::Directory => {
                    found.layers.push(*layer);
                    if attributes.opaque {
                        break;
                    }
                }
                Some(_) => break,
            }
        }
        Ok(found)
    }

    /// Resolves a path as the machine would, following symbolic links inside the view; the last
    /// component only with `follow`.
    fn find(&mut self, path: &[u8], follow: bool) -> Result<Found, DiskError> {
        let not_found = || DiskError::NotFound { path: shown(path) };
        let mut links = 0;
        // The remaining components, the next one last.
        let mut parts: Vec<Vec<u8>> = split(path);
        let mut stack = vec![self.root()?];
        while let Some(part) = parts.pop() {
            if part == b".." {
                if stack.len() > 1 {
                    stack.pop();
                }
                continue;
            }
            let Some(here) = stack.last() else {
                return Err(not_found());
            };
            if here.attributes.kind != Kind::Directory {
                return Err(DiskError::NotDirectory { path: shown(path) });
            }
            let here = Found {
                path: here.path.clone(),
                attributes: here.attributes.clone(),
                layers: here.layers.clone(),
            };
            let found = self.child(&here, &part)?.ok_or_else(not_found)?;
            let is_last = parts.is_empty();
            if found.attributes.kind != Kind::Symlink || (is_last && !follow) {
                stack.push(found);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(DiskError::Loop { path: shown(path) });
            }
            let target = &found.attributes.symlink_target;
            if target.starts_with(b"/") {
                stack.truncate(1);
            }
            parts.extend(split(target));
        }
        stack.pop().ok_or_else(not_found)
    }
}

/// The components of a path in reverse order.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
    parts.rev().map(<[u8]>::to_vec).collect()
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn entry(found: &Found) -> Entry {
    let attributes = &found.attributes;
    let target = shown(&attributes.symlink_target);
    Entry {
        path: format!("/{}", shown(&found.path)),
        kind: attributes.kind,
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        modified_unix_ns: attributes.modified_unix_ns,
        symlink_target: (attributes.kind == Kind::Symlink).then_some(target),
    }
}
