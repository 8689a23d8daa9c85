//! A layer placed at a directory of another tree.

use std::{collections::BTreeMap, io::Write};

use crate::{Attributes, DiskError, Kind, Layer};

/// A layer seen below a directory of the root, as if mounted there.
pub struct Placed {
    layer: Box<dyn Layer>,
    at: Vec<u8>,
    /// It is the lowest layer there: other trees' entries of that name are hidden.
    covers: bool,
}

impl std::fmt::Debug for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Placed at {}", String::from_utf8_lossy(&self.at))
    }
}

impl Placed {
    /// `at` is one plain name.
    pub fn new(layer: Box<dyn Layer>, at: &[u8], covers: bool) -> Placed {
        Placed {
            layer,
            at: at.to_vec(),
            covers,
        }
    }

    /// The path inside the layer, if it is below the mount point.
    fn inside<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        match path.strip_prefix(self.at.as_slice())? {
            [] => Some(b""),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }
}

impl Layer for Placed {
    fn stat(&mut self, path: &[u8]) -> Result<Option<Attributes>, DiskError> {
        if path.is_empty() {
            return Ok(Some(Attributes {
                kind: Kind::Directory,
                mode: 0o755,
                uid: 0,
                gid: 0,
                size: 0,
                modified_unix_ns: 0,
                symlink_target: Vec::new(),
                opaque: false,
            }));
        }
        let Some(inside) = self.inside(path) else {
            return Ok(None);
        };
        let found = self.layer.stat(inside)?;
        Ok(found.map(|found| Attributes {
            opaque: found.opaque || (self.covers && inside.is_empty()),
            ..found
        }))
    }

    fn names(&mut self, path: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, DiskError> {
        match self.inside(path) {
            Some(inside) => self.layer.names(inside, limit),
            None => Ok(vec![self.at.clone()]),
        }
    }

    fn read(&mut self, path: &[u8], limit: u64, out: &mut dyn Write) -> Result<u64, DiskError> {
        match self.inside(path) {
            Some(inside) => self.layer.read(inside, limit, out),
            None => Ok(0),
        }
    }

    fn attributes(&mut self, path: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, DiskError> {
        match self.inside(path) {
            Some(inside) => self.layer.attributes(inside),
            None => Ok(BTreeMap::new()),
        }
    }

    fn knows_opaque(&self) -> bool {
        self.covers || self.layer.knows_opaque()
    }
}
