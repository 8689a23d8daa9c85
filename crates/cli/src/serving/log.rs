//! The daemon's log: the terminal, or a file that never grows beyond a bound.

use super::Origin;
use crate::home::LOG;
use motu_core::{Error, Result};
use motu_engine::OwnDirectory;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// The log and the one before it may each be this long.
const MAX_BYTES: u64 = 10 * 1024 * 1024;

/// Begins logging. `MOTU_LOG` sets the level: error, warn, info, debug or trace; `MOTU_LOG_FORMAT`
/// the form of a line: text or json.
pub fn begin(home: &Arc<OwnDirectory>, origin: Origin) -> Result<()> {
    let json = match std::env::var("MOTU_LOG_FORMAT").as_deref() {
        Ok("json") => true,
        Ok("text" | "") | Err(_) => false,
        Ok(other) => {
            return Err(Error::invalid(format!("MOTU_LOG_FORMAT is {other:?}"))
                .hint("text (the default) or json"));
        }
    };
    let level = std::env::var("MOTU_LOG").ok();
    let level = level.and_then(|text| text.parse().ok());
    let builder = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .with_target(false)
        .with_ansi(false);
    let writer = match origin {
        Origin::Foreground => BoxMakeWriter::new(io::stderr),
        Origin::OnDemand => {
            let log =
                LogFile::open(home.clone()).map_err(|error| Error::io("open the log", &error))?;
            BoxMakeWriter::new(Mutex::new(log))
        }
    };
    let builder = builder.with_writer(writer);
    // Fails if this process has a log already, which is kept.
    let _ = match json {
        true => builder.json().flatten_event(true).try_init(),
        false => builder.try_init(),
    };
    Ok(())
}

/// A file that is set aside when it is full. Standard error follows, so that a panic is not lost.
#[derive(Debug)]
struct LogFile {
    home: Arc<OwnDirectory>,
    file: File,
    written: u64,
}

impl LogFile {
    fn open(home: Arc<OwnDirectory>) -> io::Result<LogFile> {
        let file = open(&home)?;
        let written = file.metadata()?.len();
        let mut log = LogFile {
            home,
            file,
            written,
        };
        log.make_room()?;
        log.redirect()?;
        Ok(log)
    }

    fn make_room(&mut self) -> io::Result<()> {
        if self.written < MAX_BYTES {
            return Ok(());
        }
        self.home.rename(LOG, &format!("{LOG}.1"))?;
        self.file = open(&self.home)?;
        self.written = 0;
        self.redirect()
    }

    fn redirect(&self) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.file)?;
        Ok(rustix::stdio::dup2_stderr(&self.file)?)
    }
}

fn open(home: &OwnDirectory) -> io::Result<File> {
    home.file(LOG, OFlags::APPEND)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.make_room()?;
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
