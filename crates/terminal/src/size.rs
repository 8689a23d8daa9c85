//! The size of a screen.

use crate::limits::{MAX_COLS, MAX_ROWS, MIN_COLS, MIN_ROWS};
use serde::{Deserialize, Serialize};

/// A screen's size, always within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawSize")]
pub struct Size {
    cols: u16,
    rows: u16,
}

#[derive(Deserialize)]
struct RawSize {
    cols: u16,
    rows: u16,
}

impl From<RawSize> for Size {
    fn from(raw: RawSize) -> Size {
        Size::new(raw.cols, raw.rows)
    }
}

impl Size {
    /// The nearest size within the limits.
    pub fn new(cols: u16, rows: u16) -> Size {
        Size {
            cols: cols.clamp(MIN_COLS, MAX_COLS),
            rows: rows.clamp(MIN_ROWS, MAX_ROWS),
        }
    }

    pub fn cols(self) -> u16 {
        self.cols
    }

    pub fn rows(self) -> u16 {
        self.rows
    }
}

impl Default for Size {
    fn default() -> Size {
        Size::new(80, 24)
    }
}
