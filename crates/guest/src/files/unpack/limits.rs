//! How much one archive may bring.

/// Bytes unpacked when the host does not say.
const DEFAULT_MAX_BYTES: u64 = 16 << 30;
/// Entries unpacked when the host does not say.
const DEFAULT_MAX_ENTRIES: u64 = 2_000_000;

/// How much may be unpacked.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: u64,
    pub entries: u64,
}

impl Limits {
    /// The host's limits; zero is the default.
    pub fn new(bytes: u64, entries: u64) -> Limits {
        Limits {
            bytes: if bytes == 0 { DEFAULT_MAX_BYTES } else { bytes },
            entries: if entries == 0 {
                DEFAULT_MAX_ENTRIES
            } else {
                entries
            },
        }
    }

    /// For archives of our own making.
    pub fn none() -> Limits {
        Limits {
            bytes: u64::MAX,
            entries: u64::MAX,
        }
    }
}
