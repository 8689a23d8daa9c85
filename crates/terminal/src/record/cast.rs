//! Recordings in asciicast v3: a header line, then `[interval, code, data]` per line.

use crate::chars::Held;
use crate::screen::Size;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

/// A recording ends at this size; its last event says so.
const CAST_BYTES: u64 = 64 * 1024 * 1024;
/// The longest line that is read.
const LINE_BYTES: u64 = 4 * 1024 * 1024;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastHeader {
    pub version: u32,
    pub term: CastTerm,
    /// Unix time of the start, in seconds.
    #[serde(default)]
    pub timestamp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CastTerm {
    pub cols: u16,
    pub rows: u16,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl CastHeader {
    pub fn new(size: Size, timestamp: u64) -> CastHeader {
        CastHeader {
            version: 3,
            term: CastTerm {
                cols: size.cols(),
                rows: size.rows(),
                kind: Some("xterm-256color".into()),
            },
            timestamp,
            command: None,
            title: None,
        }
    }
}

/// What kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Output,
    Input,
    Resize,
    Marker,
    Exit,
    Other(char),
}

impl Code {
    fn parse(text: &str) -> Option<Code> {
        let mut chars = text.chars();
        let code = match chars.next()? {
            'o' => Code::Output,
            'i' => Code::Input,
            'r' => Code::Resize,
            'm' => Code::Marker,
            'x' => Code::Exit,
            other => Code::Other(other),
        };
        chars.next().is_none().then_some(code)
    }
}

/// One event, and how long after the one before it.
#[derive(Clone, Debug, PartialEq)]
pub struct CastEvent {
    pub after: Duration,
    pub code: Code,
    pub data: String,
}

/// What is wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum CastError {
    #[error("the recording cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("line {line}: {reason}")]
    Format { line: usize, reason: String },
}

/// Writes a recording, event by event; a reader may follow it.
#[derive(Debug)]
pub struct CastWriter {
    file: BufWriter<File>,
    bytes: u64,
    last: Duration,
    held: Held,
    full: bool,
}

impl CastWriter {
    pub fn create(path: &Path, header: &CastHeader) -> io::Result<CastWriter> {
        let mut writer = CastWriter {
            file: BufWriter::new(File::create(path)?),
            bytes: 0,
            last: Duration::ZERO,
            held: Held::default(),
            full: false,
        };
        writer.line(&serde_json::to_string(header)?)?;
        Ok(writer)
    }

    /// Continues the recording at `path`, or begins one. An incomplete last line after a crash, and
    /// the exit event of a shell that is started anew, are removed.
    pub fn resume(path: &Path, header: &CastHeader) -> io::Result<CastWriter> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return CastWriter::create(path, header);
            }
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        let from = len.saturating_sub(LINE_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        (&file).take(LINE_BYTES).read_to_end(&mut tail)?;
        let whole = memchr::memrchr(b'\n', &tail).map_or(0, |at| at + 1);
        let last = memchr::memrchr(b'\n', &tail[..whole.saturating_sub(1)]).map_or(0, |at| at + 1);
        let is_exit = tail[last..whole]
            .split(|byte| *byte == b',')
            .nth(1)
            .is_some_and(|code| code.trim_ascii() == b"\"x\"");
        let end = if is_exit { last } else { whole };
        if end == 0 {
            return CastWriter::create(path, header);
        }
        let end = from + end as u64;
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(CastWriter {
            file: BufWriter::new(file),
            bytes: end,
            last: Duration::ZERO,
            held: Held::default(),
            full: end > CAST_BYTES,
        })
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.bytes += line.len() as u64 + 1;
        self.file.write_all(line.as_bytes())?;
        self.file.write_all(b"\n")?;
        self.file.flush()
    }

    fn event(&mut self, code: char, data: &str, at: Duration) -> io::Result<()> {
        if self.full {
            return Ok(());
        }
        let after = at.saturating_sub(self.last);
        self.last = self.last.max(at);
        let data = serde_json::to_string(data)?;
        if self.bytes + data.len() as u64 > CAST_BYTES && code != 'x' {
            self.full = true;
            return self.line(&format!(
                "[{:.6}, \"m\", \"the recording is full\"]",
                after.as_secs_f64()
            ));
        }
        self.line(&format!("[{:.6}, \"{code}\", {data}]", after.as_secs_f64()))
    }

    /// Records output; characters are never split.
    pub fn output(&mut self, bytes: &[u8], at: Duration) -> io::Result<()> {
        let mut text = String::new();
        self.held.push(bytes, &mut |whole| {
            text.push_str(&String::from_utf8_lossy(whole))
        });
        if text.is_empty() {
            return Ok(());
        }
        self.event('o', &text, at)
    }

    pub fn resize(&mut self, size: Size, at: Duration) -> io::Result<()> {
        self.event('r', &format!("{}x{}", size.cols(), size.rows()), at)
    }

    pub fn marker(&mut self, label: &str, at: Duration) -> io::Result<()> {
        self.event('m', label, at)
    }

    pub fn exit(&mut self, code: Option<i32>, at: Duration) -> io::Result<()> {
        let code = code.map_or(String::new(), |code| code.to_string());
        self.event('x', &code, at)
    }
}

/// A recording that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Cast {
    pub header: CastHeader,
    pub events: Vec<CastEvent>,
}

impl Cast {
    /// Reads all of it. An incomplete last line, as after a crash, is left out.
    pub fn read(reader: impl BufRead) -> Result<Cast, CastError> {
        let mut header = None;
        let mut events = Vec::new();
        let mut lines = Lines { reader, number: 0 };
        while let Some((text, whole)) = lines.next_line()? {
            let line = lines.number;
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let bad = |reason: String| CastError::Format { line, reason };
            if header.is_none() {
                header = Some(parse_header(&text).map_err(bad)?);
                continue;
            }
            match parse_event(&text) {
                Ok(event) => events.push(event),
                Err(_) if !whole => break,
                Err(reason) => return Err(bad(reason)),
            }
        }
        let header = header.ok_or_else(|| CastError::Format {
            line: 1,
            reason: "there is no header".into(),
        })?;
        Ok(Cast { header, events })
    }

    /// The events with the pauses a player makes.
    pub fn replay(&self, speed: f64, longest_pause: Option<Duration>) -> Replay<'_> {
        Replay {
            events: self.events.iter(),
            speed: if speed.is_finite() && speed > 0.0 {
                speed
            } else {
                1.0
            },
            longest_pause,
        }
    }
}

struct Lines<R> {
    reader: R,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line, and whether it has its end.
    fn next_line(&mut self) -> Result<Option<(String, bool)>, CastError> {
        let mut bytes = Vec::new();
        let got = io::Read::take(&mut self.reader, LINE_BYTES).read_until(b'\n', &mut bytes)?;
        self.number += 1;
        if got == 0 {
            return Ok(None);
        }
        let whole = bytes.last() == Some(&b'\n');
        if !whole && got as u64 == LINE_BYTES {
            return Err(CastError::Format {
                line: self.number,
                reason: format!("it is longer than {LINE_BYTES} bytes"),
            });
        }
        Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), whole)))
    }
}

fn parse_header(text: &str) -> Result<CastHeader, String> {
    let header: CastHeader =
        serde_json::from_str(text).map_err(|error| format!("not a header: {error}"))?;
    if header.version != 3 {
        return Err(format!(
            "version {} is not read here, only 3",
            header.version
        ));
    }
    Ok(header)
}

fn parse_event(text: &str) -> Result<CastEvent, String> {
    let (after, code, data): (f64, String, String) =
        serde_json::from_str(text).map_err(|error| format!("not an event: {error}"))?;
    let after =
        Duration::try_from_secs_f64(after).map_err(|error| format!("not an interval: {error}"))?;
    let code = Code::parse(&code).ok_or_else(|| format!("not a code: {code}"))?;
    Ok(CastEvent { after, code, data })
}

/// Iterates over pauses and events.
#[derive(Debug)]
pub struct Replay<'a> {
    events: std::slice::Iter<'a, CastEvent>,
    speed: f64,
    longest_pause: Option<Duration>,
}

impl<'a> Iterator for Replay<'a> {
    type Item = (Duration, &'a CastEvent);

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.events.next()?;
        let pause = self
            .longest_pause
            .map_or(event.after, |longest| event.after.min(longest));
        // One day at most, which keeps the product within bounds.
        let seconds = (pause.as_secs_f64() / self.speed).min(86_400.0);
        Some((Duration::from_secs_f64(seconds), event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn read(path: &Path) -> Cast {
        Cast::read(BufReader::new(File::open(path).unwrap())).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.cast");
        let header = CastHeader::new(Size::default(), 1_700_000_000);
        let mut writer = CastWriter::create(&path, &header).unwrap();
        let at = Duration::from_millis;
        writer.output("$ é".as_bytes(), at(100)).unwrap();
        // A split character is written once it is complete.
        writer.output(b"\xe6\xbc", at(200)).unwrap();
        writer.output(b"\xa2\r\n", at(350)).unwrap();
        writer.resize(Size::new(100, 30), at(400)).unwrap();
        writer.exit(Some(3), at(2400)).unwrap();
        let cast = read(&path);
        assert_eq!(cast.header, header);
        let events: Vec<_> = cast
            .events
            .iter()
            .map(|e| (e.after.as_millis(), e.code, e.data.as_str()))
            .collect();
        assert_eq!(
            events,
            [
                (100, Code::Output, "$ é"),
                (250, Code::Output, "漢\r\n"),
                (50, Code::Resize, "100x30"),
                (2000, Code::Exit, "3"),
            ]
        );
        let pauses: Vec<_> = cast
            .replay(2.0, Some(at(1000)))
            .map(|(pause, _)| pause.as_millis())
            .collect();
        assert_eq!(pauses, [50, 125, 25, 500]);
    }

    #[test]
    fn a_recording_cut_by_a_crash_is_read_to_the_cut() {
        let text = "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n# a note\n[0.5, \"o\", \"a\"]\n[0.1, \"o\", \"b";
        let cast = Cast::read(text.as_bytes()).unwrap();
        assert_eq!(cast.events.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("{}\n", 1),
            ("{\"version\":2,\"term\":{\"cols\":80,\"rows\":24}}\n", 1),
            (
                "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n[-1, \"o\", \"a\"]\n",
                2,
            ),
            (
                "{\"version\":3,\"term\":{\"cols\":80,\"rows\":24}}\n[1, \"oo\", \"a\"]\n",
                2,
            ),
        ] {
            match Cast::read(text.as_bytes()) {
                Err(CastError::Format { line: at, .. }) => assert_eq!(at, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
