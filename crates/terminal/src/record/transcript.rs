//! The stream on disk, bounded, readable by offset.

use crate::ring::Read;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct TranscriptLimits {
    pub segment_bytes: u64,
    /// Segments kept; the oldest is dropped for a new one.
    pub segments: usize,
}

impl Default for TranscriptLimits {
    fn default() -> TranscriptLimits {
        TranscriptLimits {
            segment_bytes: 8 * 1024 * 1024,
            segments: 8,
        }
    }
}

/// Segments `transcript.OFFSET.raw`, each named by the offset of its first byte.
#[derive(Debug)]
pub struct Transcript {
    dir: PathBuf,
    limits: TranscriptLimits,
    /// The start of each segment; the last one is being written.
    starts: Vec<u64>,
    end: u64,
    file: File,
}

fn segment(dir: &Path, start: u64) -> PathBuf {
    dir.join(format!("transcript.{start:020}.raw"))
}

impl Transcript {
    /// Continues an existing transcript in `dir`.
    pub fn open(dir: &Path, limits: TranscriptLimits) -> io::Result<Transcript> {
        let mut starts = Vec::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let offset = name
                .to_str()
                .and_then(|name| name.strip_prefix("transcript."))
                .and_then(|name| name.strip_suffix(".raw"))
                .and_then(|digits| digits.parse::<u64>().ok());
            starts.extend(offset);
        }
        starts.sort_unstable();
        if starts.is_empty() {
            starts.push(0);
        }
        let last = starts[starts.len() - 1];
        let file = append(&segment(dir, last))?;
        Ok(Transcript {
            end: last + file.metadata()?.len(),
            dir: dir.to_owned(),
            limits,
            starts,
            file,
        })
    }

    /// Appends bytes at stream position `from`; missing bytes before it leave a gap.
    pub fn append_at(&mut self, from: u64, bytes: &[u8]) -> io::Result<()> {
        if from > self.end {
            self.end = from;
            self.rotate()?;
        }
        self.append(bytes)
    }

    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let used = self.end - self.starts[self.starts.len() - 1];
            if used >= self.limits.segment_bytes {
                self.rotate()?;
                continue;
            }
            let room = (self.limits.segment_bytes - used) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.file.write_all(now)?;
            self.end += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = append(&segment(&self.dir, self.end))?;
        self.starts.push(self.end);
        while self.starts.len() > self.limits.segments.max(1) {
            fs::remove_file(segment(&self.dir, self.starts[0]))?;
            self.starts.remove(0);
        }
        Ok(())
    }

    /// Drops everything from `end` on.
    pub fn cut(&mut self, end: u64) -> io::Result<()> {
        if end >= self.end {
            return Ok(());
        }
        while self.starts.len() > 1 && self.starts[self.starts.len() - 1] > end {
            let last = self.starts[self.starts.len() - 1];
            fs::remove_file(segment(&self.dir, last))?;
            self.starts.pop();
        }
        let last = self.starts[self.starts.len() - 1];
        self.file = append(&segment(&self.dir, last))?;
        let wanted = end.saturating_sub(last);
        // A gap at the end of the segment is not filled.
        let len = self.file.metadata()?.len().min(wanted);
        self.file.set_len(len)?;
        self.end = last + len;
        Ok(())
    }

    /// The oldest byte kept.
    pub fn start(&self) -> u64 {
        self.starts[0]
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// The file that is being written.
    pub fn path(&self) -> PathBuf {
        segment(&self.dir, self.starts[self.starts.len() - 1])
    }

    /// At most `max` bytes of `from..to`, as far as they are kept.
    pub fn read(&self, from: u64, to: u64, max: usize) -> io::Result<Read> {
        let mut from = from.clamp(self.start(), self.end);
        let to = to
            .clamp(from, self.end)
            .min(from.saturating_add(max as u64));
        let mut bytes = Vec::with_capacity((to - from) as usize);
        let mut at = from;
        while at < to {
            let index = self.starts.partition_point(|start| *start <= at) - 1;
            let limit = self
                .starts
                .get(index + 1)
                .copied()
                .unwrap_or(self.end)
                .min(to);
            let mut file = File::open(segment(&self.dir, self.starts[index]))?;
            file.seek(SeekFrom::Start(at - self.starts[index]))?;
            let got = file.take(limit - at).read_to_end(&mut bytes)?;
            at += got as u64;
            if at < limit {
                // The rest of this segment is a gap.
                if !bytes.is_empty() {
                    break;
                }
                (at, from) = (limit, limit);
            }
        }
        Ok(Read { from, bytes })
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_not_filled() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::open(dir.path(), TranscriptLimits::default()).unwrap();
        transcript.append_at(0, b"abc").unwrap();
        transcript.append_at(10, b"xyz").unwrap();
        assert_eq!(transcript.read(1, 99, 99).unwrap().bytes, b"bc");
        let after = transcript.read(5, 99, 99).unwrap();
        assert_eq!((after.from, after.bytes.as_slice()), (10, &b"xyz"[..]));
    }

    #[test]
    fn it_is_cut_across_segments() {
        let dir = tempfile::tempdir().unwrap();
        let limits = TranscriptLimits {
            segment_bytes: 10,
            segments: 9,
        };
        let mut transcript = Transcript::open(dir.path(), limits).unwrap();
        transcript.append(b"0123456789abcdefghijKLM").unwrap();
        transcript.cut(50).unwrap();
        assert_eq!(transcript.end(), 23);
        transcript.cut(15).unwrap();
        assert_eq!(transcript.end(), 15);
        transcript.append(b"XY").unwrap();
        let read = transcript.read(0, 99, 99).unwrap();
        assert_eq!(read.bytes, b"0123456789abcdeXY");
        transcript.cut(0).unwrap();
        assert_eq!((transcript.start(), transcript.end()), (0, 0));
    }

    #[test]
    fn it_rotates_reads_across_segments_and_goes_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let limits = TranscriptLimits {
            segment_bytes: 10,
            segments: 3,
        };
        let mut transcript = Transcript::open(dir.path(), limits).unwrap();
        let text: Vec<u8> = (0..45).map(|n| b'a' + n % 26).collect();
        for chunk in text.chunks(7) {
            transcript.append(chunk).unwrap();
        }
        assert_eq!((transcript.start(), transcript.end()), (20, 45));
        let read = transcript.read(0, u64::MAX, 100).unwrap();
        assert_eq!((read.from, read.bytes.as_slice()), (20, &text[20..]));
        assert_eq!(transcript.read(28, 43, 9).unwrap().bytes, &text[28..37]);
        drop(transcript);
        let mut again = Transcript::open(dir.path(), limits).unwrap();
        again.append(b"XYZ").unwrap();
        assert_eq!(
            again.read(44, 48, 9).unwrap().bytes,
            [&text[44..], b"XYZ"].concat()
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
