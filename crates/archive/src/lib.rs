//! Tar archives, read and written: ustar headers, PAX records, GNU's long names and sparse files.
//!
//! ```text
//!   header    one block of 512 bytes            ─┐
//!   records   what does not fit into it          ├─ pure: bytes in, values out
//!   sparse    where a file with holes has data  ─┘
//!   holes     asks the kernel where an open file has data
//!   read      an archive from a reader, entry by entry
//!   write     an archive into a writer, entry by entry
//! ```
//!
//! Nothing here opens a file or judges a path: whoever unpacks decides where an entry may go.
//! Archives come from strangers, so no size in a header decides how much memory is used.

mod field;
mod header;
pub mod holes;
mod read;
mod records;
pub mod sparse;
mod write;

pub use header::{Header, PIPE, Type};
pub use read::Reader;
pub use records::{Attributes, Records};
pub use sparse::Part;
pub use write::Writer;

/// The unit of the format.
pub const BLOCK: usize = 512;

/// Why bytes are no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    #[error("header has a wrong checksum")]
    Checksum,
    #[error("number in a header is not a number")]
    HeaderNumber,
    #[error("PAX record is broken")]
    Record,
    #[error("number in a PAX record is not a number")]
    RecordNumber,
    #[error("sparse file has too many regions")]
    ManyParts,
    #[error("sparse file has half a region")]
    HalfPart,
    #[error("sparse file has no size")]
    NoSize,
    #[error("list of a sparse file is not made of numbers")]
    Map,
    #[error("list of a sparse file does not end")]
    EndlessMap,
    #[error("regions of a sparse file overlap")]
    Overlap,
    #[error("region of a sparse file is too large")]
    LargePart,
    #[error("regions of a sparse file do not fit it")]
    Unfit,
    #[error("extension header is too large")]
    LargeExtension,
    #[error("archive continues after its end")]
    AfterEnd,
    #[error("archive continues another one")]
    Volume,
}

impl From<TarError> for std::io::Error {
    fn from(error: TarError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// The bytes of padding after a body.
pub fn padding(size: u64) -> usize {
    (size.wrapping_neg() % BLOCK as u64) as usize
}
