//! What the calls of terminals carry besides the types of [`motu_core::terminal`].

use motu_core::exec::TtySize;
use motu_core::terminal::{ReadTranscript, ScreenFormat, Seat};
use motu_core::{Error, Result, limits};
use serde::{Deserialize, Serialize};

/// An asciicast recording.
pub const CAST_TYPE: &str = "application/x-asciicast";

queries! {
    ScreenQuery {
        /// `text` (the default), `ansi`, `html`, `svg` or `png`.
        format: String,
    }
    ScrollbackQuery {
        /// Rows, the last ones; default 200, 0 for all.
        lines: u64,
        /// Text without colours and attributes; default true.
        strip_ansi: bool,
    }
    TranscriptQuery {
        /// Where to begin, in bytes; default: the last `max_bytes`.
        from: u64,
        /// Default 16384; 0 asks for the paths alone.
        max_bytes: u64,
        /// Text without control sequences; default true.
        strip_ansi: bool,
    }
    SeatQuery {
        /// Columns of the caller's terminal. Without a size the caller only watches.
        cols: u16,
        /// Rows of the caller's terminal.
        rows: u16,
    }
}

impl ScreenQuery {
    pub fn format(&self) -> Result<ScreenFormat> {
        let format = self.format.as_deref().map(str::parse).transpose()?;
        Ok(format.unwrap_or_default())
    }
}

impl From<ScreenFormat> for ScreenQuery {
    fn from(format: ScreenFormat) -> ScreenQuery {
        ScreenQuery {
            format: Some(ScreenFormat::NAMES[format as usize].to_string()),
        }
    }
}

impl ScrollbackQuery {
    pub fn lines(&self) -> u64 {
        let usual = limits::TERMINAL_SCROLLBACK_LINES.default;
        self.lines.unwrap_or(usual)
    }

    pub fn strip_ansi(&self) -> bool {
        self.strip_ansi.unwrap_or(true)
    }
}

impl From<ReadTranscript> for TranscriptQuery {
    fn from(read: ReadTranscript) -> TranscriptQuery {
        TranscriptQuery {
            from: read.from,
            max_bytes: read.max_bytes,
            strip_ansi: read.strip_ansi,
        }
    }
}

impl From<TranscriptQuery> for ReadTranscript {
    fn from(query: TranscriptQuery) -> ReadTranscript {
        ReadTranscript {
            from: query.from,
            max_bytes: query.max_bytes,
            strip_ansi: query.strip_ansi,
        }
    }
}

impl From<Seat> for SeatQuery {
    fn from(seat: Seat) -> SeatQuery {
        SeatQuery {
            cols: seat.map(|size| size.cols),
            rows: seat.map(|size| size.rows),
        }
    }
}

impl SeatQuery {
    pub fn seat(&self) -> Result<Seat> {
        match (self.cols, self.rows) {
            (Some(cols), Some(rows)) => Ok(Some(TtySize { cols, rows })),
            (None, None) => Ok(None),
            _ => Err(Error::invalid("half of a size is given")
                .hint("give `cols` and `rows`, or neither to only watch")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_its_name() {
        for name in ScreenFormat::NAMES {
            let format: ScreenFormat = name.parse().unwrap();
            assert_eq!(ScreenQuery::from(format).format.as_deref(), Some(name));
        }
        assert_eq!(ScreenQuery::default().format(), Ok(ScreenFormat::Text));
    }

    #[test]
    fn a_seat_has_a_whole_size_or_none() {
        let seat = Some(TtySize { cols: 9, rows: 3 });
        assert_eq!(SeatQuery::from(seat).seat(), Ok(seat));
        assert_eq!(SeatQuery::from(None).seat(), Ok(None));
        let half = SeatQuery {
            cols: Some(9),
            rows: None,
        };
        assert!(half.seat().is_err());
    }
}
