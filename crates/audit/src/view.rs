//! A consistent view of a log for reading.

use crate::index::{Calls, SEGMENT_BYTES};
use crate::log::Log;
use crate::segment::{HEAD, HEAD_BYTES, Segment};
use motu_core::{Error, Result};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// A log at one moment: its last segment and head are in memory, the others are immutable.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub(crate) sealed: Vec<Segment>,
    /// Its first sequence number, name and bytes.
    pub(crate) last: Option<(u64, String, Vec<u8>)>,
    pub(crate) head: Vec<u8>,
}

impl View {
    /// Of a directory that is not being written.
    pub fn of_dir(dir: &Path) -> io::Result<View> {
        let mut sealed = Segment::list(dir)?;
        let last = match sealed.pop() {
            Some(last) => Some((last.first, last.name(), read(&last.path, SEGMENT_BYTES)?)),
            None => None,
        };
        let head = match read(&dir.join(HEAD), HEAD_BYTES as u64) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            head => head?,
        };
        Ok(View { sealed, last, head })
    }

    /// Of bytes as a log's only segment.
    pub fn of_bytes(bytes: &[u8]) -> View {
        View {
            last: Some((1, "segment".to_string(), bytes.to_vec())),
            ..View::default()
        }
    }

    /// Visits each segment with its first sequence number, name and bytes, until `see` returns
    /// false.
    pub(crate) fn each(&self, mut see: impl FnMut(u64, &str, &[u8]) -> bool) -> io::Result<()> {
        for segment in &self.sealed {
            if !see(
                segment.first,
                &segment.name(),
                &read(&segment.path, SEGMENT_BYTES)?,
            ) {
                return Ok(());
            }
        }
        if let Some((first, name, bytes)) = &self.last {
            see(*first, name, bytes);
        }
        Ok(())
    }
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Log {
    /// The current log with everything recorded so far. Must not be called from async code.
    pub fn view(&self) -> Result<View> {
        let dir = self.dir().to_path_buf();
        // A log that cannot be written is not being changed, so it can be read directly.
        let taken = match self.public_key() {
            Ok(_) => self.pause(move |_| View::of_dir(&dir))?,
            Err(_) => View::of_dir(&dir),
        };
        taken.map_err(|error| Error::io("read the audit log", &error))
    }

    /// The calls recorded so far, by what they are about. Must not be called from async code.
    pub(crate) fn calls(&self) -> Result<Calls> {
        let dir = self.dir().to_path_buf();
        let taken = match self.public_key() {
            Ok(_) => self.pause(move |writer| {
                let mut sealed = Segment::list(&writer.dir)?;
                // The active one has its name already.
                sealed.retain(|segment| segment.first < writer.active.segment.first);
                let index = writer.index()?;
                let last = Some((writer.active.segment.clone(), index));
                Ok(Calls { sealed, last })
            })?,
            Err(_) => Calls::of_dir(&dir),
        };
        taken.map_err(|error| Error::io("read the audit log", &error))
    }

    /// Copies the log as of one moment to a new directory.
    pub fn copy_to(&self, to: &Path) -> Result<()> {
        let view = self.view()?;
        let failed = |error| Error::io("copy the audit log", &error);
        std::fs::create_dir(to).map_err(failed)?;
        let mut outcome = Ok(());
        let written = view.each(|first, _, bytes| {
            let until = bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |at| at + 1);
            outcome = std::fs::write(Segment::new(to, first).path, &bytes[..until]);
            outcome.is_ok()
        });
        written.and(outcome).map_err(failed)?;
        std::fs::write(to.join(HEAD), &view.head).map_err(failed)
    }
}
