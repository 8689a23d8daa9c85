//! One tree of several.

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
    /// Hides what the layers below have under this name.
    #[serde(skip)]
    Whiteout,
}

/// What a layer knows about a path.
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
    /// A directory that covers those below it.
    pub opaque: bool,
}

/// Whether an attribute of a file goes along with it. Those by which overlays say something are
/// orders to the kernel and never do.
pub(crate) fn goes_along(name: &str) -> bool {
    name == "security.capability"
        || (name.starts_with("user.") && !name.starts_with("user.overlay."))
}

/// A tree to read from. Paths are relative, made of plain names, and every part
/// but the last was found to be a directory of this layer before: a layer is never
/// asked to go through a link.
pub trait Layer {
    /// `None` if the layer has nothing there.
    fn stat(&mut self, path: &[u8]) -> Result<Option<Attributes>, DiskError>;
    /// The names in a directory, in any order, without `.` and `..`.
    fn names(&mut self, path: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, DiskError>;
    /// Writes at most `limit` bytes of a file.
    fn read(&mut self, path: &[u8], limit: u64, out: &mut dyn Write) -> Result<u64, DiskError>;
    /// The extended attributes of a file that go along with it: those of users, and capabilities.
    fn attributes(&mut self, path: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, DiskError>;
    /// Whether [`Attributes::opaque`] can be believed.
    fn knows_opaque(&self) -> bool;
}
