//! A layer: one of several trees.

use std::{collections::BTreeMap, io::Write};

use serde::Serialize;

use crate::DiskError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    /// A device, pipe or socket.
    Other,
    /// Hides the same name in lower layers.
    #[serde(skip)]
    Whiteout,
}

/// Metadata of a path in a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub modified_unix_ns: i64,
    pub symlink_target: Vec<u8>,
    /// An opaque directory, which hides those below it.
    pub opaque: bool,
}

/// The attribute of file capabilities.
const CAPABILITY: &str = "security.capability";
/// The two versions of its value: version 3 has the root id of a user namespace in its last four
/// bytes.
const PLAIN: (u8, usize) = (2, 20);
const OF_A_NAMESPACE: (u8, usize) = (3, 24);

/// Normalizes an attribute's value. Capabilities set in a user namespace whose root maps to 0 are
/// stored as version 3 with root id 0, which is equivalent to version 2.
pub(crate) fn plain(name: &str, mut value: Vec<u8>) -> Vec<u8> {
    let form = (value.get(3).copied().unwrap_or(0), value.len());
    if name == CAPABILITY && form == OF_A_NAMESPACE && value.ends_with(&[0; 4]) {
        value.truncate(PLAIN.1);
        value[3] = PLAIN.0;
    }
    value
}

/// Whether an attribute is copied with a file. Those of overlayfs control the kernel and are never
/// copied.
pub(crate) fn goes_along(name: &str) -> bool {
    name == CAPABILITY || (name.starts_with("user.") && !name.starts_with("user.overlay."))
}

/// A tree to read from. Paths are relative, made of plain names, and every component but the last
/// was found to be a directory of this layer before: a layer never follows a symbolic link.
pub trait Layer {
    /// `None` if the layer has no such entry.
    fn stat(&mut self, path: &[u8]) -> Result<Option<Attributes>, DiskError>;
    /// The names in a directory, in any order, without `.` and `..`.
    fn names(&mut self, path: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, DiskError>;
    /// Writes at most `limit` bytes of a file.
    fn read(&mut self, path: &[u8], limit: u64, out: &mut dyn Write) -> Result<u64, DiskError>;
    /// The attributes of a file that are copied with it: `user.*` and capabilities.
    fn attributes(&mut self, path: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, DiskError>;
    /// Whether [`Attributes::opaque`] is reliable.
    fn knows_opaque(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_one_form() {
        let net_raw = |revision: u8, root: &[u8]| {
            let mut value = vec![1, 0, 0, revision, 0, 32, 0, 0];
            value.extend([0; 12]);
            value.extend(root);
            value
        };
        let plain_form = net_raw(2, &[]);
        assert_eq!(plain(CAPABILITY, net_raw(3, &[0; 4])), plain_form);
        assert_eq!(plain(CAPABILITY, plain_form.clone()), plain_form);
        // Of another namespace, of another attribute, and malformed.
        for (name, value) in [
            (CAPABILITY, net_raw(3, &[232, 3, 0, 0])),
            ("user.x", net_raw(3, &[0; 4])),
            (CAPABILITY, vec![3]),
            (CAPABILITY, Vec::new()),
        ] {
            assert_eq!(plain(name, value.clone()), value);
        }
    }
}
