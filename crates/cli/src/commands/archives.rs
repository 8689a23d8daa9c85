//! Archives of environments, between files here and the daemon.

use super::cp;
use crate::show;
use futures_util::StreamExt;
use motu_core::files::ByteStream;
use motu_core::{Error, Result, limits};
use motu_workspaces::output::{OutputFile, Replace};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;

/// The permissions of an archive.
const MODE: u32 = 0o644;

/// What was written.
#[derive(Debug, Serialize)]
pub struct Written {
    pub output_path: String,
    pub bytes_written: u64,
}

/// Writes an archive to a file, all of it or nothing.
pub async fn write(archive: ByteStream, path: &Path, force: bool) -> Result<Written> {
    let target = path.to_path_buf();
    let bytes_written = cp::receive(archive, move |mut source| {
        let mut file = OutputFile::create(&target, Replace::from(force))?;
        let bytes = file.fill(&mut source, limits::EXPORT_BYTES.max)?;
        file.finish(MODE)?;
        Ok(bytes)
    })
    .await?;
    Ok(Written {
        output_path: path.display().to_string(),
        bytes_written,
    })
}

/// Passes an archive on to whoever reads our output.
pub async fn to_stdout(mut archive: ByteStream) -> Result<()> {
    if std::io::stdout().is_terminal() {
        return Err(
            Error::invalid("an archive is nothing for a terminal to show")
                .hint("name a file with -o, or pipe it into a program"),
        );
    }
    while let Some(piece) = archive.next().await {
        if show::stream(&piece?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// An archive from a file; `-` is standard input.
pub fn read(path: &Path) -> Result<ByteStream> {
    let path = match path == Path::new("-") {
        true => Path::new("/dev/stdin").to_path_buf(),
        false => {
            std::fs::metadata(path).map_err(|error| {
                Error::with_file(format_args!("read {}", path.display()), &error)
            })?;
            path.to_path_buf()
        }
    };
    Ok(cp::produce(move |sink| cp::read_file(&path, sink)))
}
