//! Decompression of layers, within limits.
//!
//! Owns telling gzip, zstd and plain archives apart by their first bytes, and
//! how much may come out of how little. It never interprets what comes out.

use std::io::{self, BufRead as _, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    StreamingDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use crate::{process::Cancel, tree::MAX_ROOT_BYTES};

/// What any layer may grow to, however small it is.
const FREE_BYTES: u64 = 256 << 20;
/// What a larger layer may grow by. Real ones stay below 10.
const MAX_RATIO: u64 = 100;

const BUFFER_BYTES: usize = 256 << 10;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Most bytes a layer of `compressed` bytes may unpack to.
pub(crate) fn limit_for(compressed: u64) -> u64 {
    let grown = compressed.saturating_mul(MAX_RATIO);
    grown.saturating_add(FREE_BYTES).min(MAX_ROOT_BYTES)
}

/// The unpacked bytes of `source`, which holds `compressed` bytes. Reading past
/// the limit fails with [`io::ErrorKind::FileTooLarge`].
pub(crate) fn open(
    source: impl Read + Send + 'static,
    compressed: u64,
    cancel: &Cancel,
) -> io::Result<Box<dyn Read + Send>> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    // One read may give less than what decides; files give all there is.
    let start = source.fill_buf()?;
    let plain: Box<dyn Read + Send> = if start.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(source))
    } else if start.starts_with(ZSTD) || is_skippable(start) {
        Box::new(Frames::new(source))
    } else {
        Box::new(source)
    };
    Ok(Box::new(Limited {
        inner: plain,
        left: limit_for(compressed),
        cancel: cancel.clone(),
    }))
}

/// The unpacked bytes of a file of so many bytes: gzip, zstd, or as it is.
pub fn unpacked(
    source: impl Read + Send + 'static,
    bytes: u64,
) -> io::Result<Box<dyn Read + Send>> {
    open(source, bytes, &Cancel::default())
}

/// Whether bytes start something compressed.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(GZIP) || start.starts_with(ZSTD) || is_skippable(start)
}

/// Frames that hold no contents; their numbers are reserved in the format.
fn is_skippable(start: &[u8]) -> bool {
    matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

struct Limited<R> {
    inner: R,
    left: u64,
    cancel: Cancel,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(count)
    }
}

/// Reads zstd frames one after the other: parallel compressors write many.
struct Frames<R: Read> {
    /// The source between frames.
    source: Option<BufReader<R>>,
    /// The frame being read.
    frame: Option<StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>,
}

impl<R: Read> Frames<R> {
    fn new(source: BufReader<R>) -> Self {
        Self {
            source: Some(source),
            frame: None,
        }
    }

    /// Begins the next frame; false at the end of the source.
    fn advance(&mut self) -> io::Result<bool> {
        let Some(mut source) = self.source.take() else {
            return Ok(false);
        };
        loop {
            let start = source.fill_buf()?;
            if start.is_empty() {
                return Ok(false);
            }
            if !is_skippable(start) {
                break;
            }
            let mut header = [0; 8];
            source.read_exact(&mut header)?;
            let [.., a, b, c, d] = header;
            let length = u64::from(u32::from_le_bytes([a, b, c, d]));
            let skipped = io::copy(&mut source.by_ref().take(length), &mut io::sink())?;
            if skipped < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        match StreamingDecoder::new(source) {
            Ok(frame) => self.frame = Some(frame),
            Err(FrameDecoderError::ReadFrameHeaderError(
                ReadFrameHeaderError::MagicNumberReadError(error),
            )) => return Err(error),
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
        Ok(true)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let count = frame.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                self.source = self.frame.take().map(StreamingDecoder::into_inner);
            }
            if !self.advance()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use flate2::{Compression, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(packed: Vec<u8>) -> io::Result<Vec<u8>> {
        let size = packed.len() as u64;
        let mut out = Vec::new();
        open(Cursor::new(packed), size, &Cancel::default())?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn every_format_is_recognised_by_its_first_bytes() {
        let text = b"some text ".repeat(5000);
        let zstd = compress_to_vec(text.as_slice(), CompressionLevel::Fastest);
        assert_eq!(unpack(text.clone()).unwrap(), text);
        assert_eq!(unpack(gzip(&text)).unwrap(), text);
        assert_eq!(unpack(zstd).unwrap(), text);
        assert_eq!(unpack(Vec::new()).unwrap(), b"");
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let both = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(unpack(both).unwrap(), b"one two");
        let frame = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        let skippable = [0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9].to_vec();
        let all = [skippable.clone(), frame(b"one "), skippable, frame(b"two")].concat();
        assert_eq!(unpack(all).unwrap(), b"one two");
    }

    #[test]
    fn damaged_input_is_an_error() {
        let mut cut = gzip(&b"x".repeat(100_000));
        cut.truncate(cut.len() / 2);
        assert!(unpack(cut).is_err());
        let mut zstd = compress_to_vec(b"text".as_slice(), CompressionLevel::Fastest);
        zstd.truncate(6);
        assert!(unpack(zstd).is_err());
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit() {
        assert_eq!(limit_for(0), FREE_BYTES);
        assert_eq!(limit_for(1 << 20), FREE_BYTES + (MAX_RATIO << 20));
        assert_eq!(limit_for(u64::MAX), MAX_ROOT_BYTES);
        let mut bomb = Limited {
            inner: io::repeat(0),
            left: 1000,
            cancel: Cancel::default(),
        };
        let error = io::copy(&mut bomb, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
