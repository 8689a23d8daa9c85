//! Reading the disks of a stopped machine without mounting them.
//!
//! ```text
//! raw file ──┐
//! qcow2 ─────┴─ Blocks ──► Ext4Layer ──┐
//! directory on the host ► DirectoryLayer ┴─ Merged ──► list, read, copy_to, export
//! ```
//!
//! A machine's root is often several overlaid trees. [`Merged`] shows them as the machine saw them:
//! whiteouts hide, opaque directories cover. The bytes on a disk were written by a guest, so
//! nothing here trusts them: every table is checked against its file, every listing and read is
//! bounded, and symbolic links are followed inside the view only.
//!
//! The journal of an ext4 layer, left by a machine that was killed, is replayed virtually. With an
//! unsupported journal or file system it is unknown whether a directory is opaque;
//! [`Merged::may_show_removed`] tells when that can matter.

mod directory;
mod error;
mod export;
mod ext4;
mod inodes;
mod journal;
mod layer;
mod merged;
mod opaque;
mod placed;
mod qcow2;

pub use directory::DirectoryLayer;
pub use error::DiskError;
pub use export::export_ext4;
pub use ext4::Ext4Layer;
pub use layer::{Attributes, Kind, Layer};
pub use merged::{Contents, Entry, Listing, Merged};
pub use placed::Placed;
pub use qcow2::{Blocks, Qcow2, Raw, open_disk};

#[cfg(test)]
mod tests;
