//! Copies of large plain files, where the sandbox shares this host's kernel: it lends the open
//! file, and the kernel copies from file to file. Everything else goes as an archive.

use super::local;
use crate::waiting::Moved;
use motu_api::Client;
use motu_api::socket::FILE_BYTE;
use motu_core::files::{GuestPath, LendFile, Returned};
use motu_core::runtime::Connection;
use motu_core::{Error, ErrorKind, Result, SandboxId, Service};
use motu_workspaces::output::{OutputFile, Replace};
use std::fs::{File, FileTimes, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Below this, asking for the file takes longer than sending it.
pub const LARGE: u64 = 1024 * 1024;
/// Bytes that the kernel copies at once.
const PIECE: u64 = 64 * 1024 * 1024;
/// The line that a lender ends with.
const LINE: u64 = 64 * 1024;

/// How a file comes here.
pub struct How<'a> {
    pub replace: Replace,
    pub most: u64,
    pub moved: &'a Moved,
}

/// Copies a file to a path of a sandbox. Nothing if it has to go another way.
pub async fn upload(
    client: &Client,
    from: &Path,
    id: &SandboxId,
    to: &GuestPath,
    moved: &Moved,
) -> Result<Option<u64>> {
    let failed = local("read", from);
    let source = File::open(from).map_err(&failed)?;
    let found = source.metadata().map_err(&failed)?;
    if !is_simple(&source, &found) {
        return Ok(None);
    }
    let second = found.mtime().checked_mul(1_000_000_000);
    let ask = LendFile {
        path: to.clone(),
        write: true,
        mode: Some(found.permissions().mode() & 0o777),
        modified_unix_ns: second.and_then(|ns| ns.checked_add(found.mtime_nsec())),
    };
    let Some((connection, lent)) = borrow(client, id, ask).await? else {
        return Ok(None);
    };
    let (path, moved) = (from.to_path_buf(), moved.clone());
    copied(move || {
        let copied = in_pieces(&source, &lent, u64::MAX, &moved);
        copied.map(drop).map_err(local("copy", &path))
    })
    .await?;
    Ok(Some(give_back(connection).await?))
}

/// Copies a file of a sandbox here. Nothing if it has to come another way.
pub async fn download(
    client: &Client,
    id: &SandboxId,
    from: &GuestPath,
    to: PathBuf,
    how: How<'_>,
) -> Result<Option<u64>> {
    let ask = LendFile {
        path: from.clone(),
        write: false,
        mode: None,
        modified_unix_ns: None,
    };
    let Some((_, lent)) = borrow(client, id, ask).await? else {
        return Ok(None);
    };
    let found = lent.metadata().map_err(local("read", &to))?;
    if !is_simple(&lent, &found) || found.len() > how.most {
        return Ok(None);
    }
    let (replace, moved) = (how.replace, how.moved.clone());
    let copying = move || {
        let failed = local("write", &to);
        let output = OutputFile::create(&to, replace)?;
        // What a program inside appends meanwhile is not waited for.
        let bytes = in_pieces(&lent, output.file(), found.len(), &moved).map_err(&failed)?;
        let modified = found.modified().map_err(&failed)?;
        let times = FileTimes::new().set_modified(modified);
        output.file().set_times(times).map_err(&failed)?;
        output.finish(found.permissions().mode())?;
        Ok(bytes)
    };
    copied(copying).await.map(Some)
}

/// Copies at most so many bytes from file to file. In pieces, so that whoever waits sees them.
fn in_pieces(mut from: &File, mut to: &File, most: u64, moved: &Moved) -> std::io::Result<u64> {
    let mut done = 0;
    while done < most {
        let mut piece = std::io::Read::take(&mut from, PIECE.min(most - done));
        let bytes = std::io::copy(&mut piece, &mut to)?;
        if bytes == 0 {
            break;
        }
        moved.add(bytes);
        done += bytes;
    }
    Ok(done)
}

async fn copied<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::internal("copying ended in a bug"))?
}

/// Asks for a file. Nothing if the sandbox lends none, or there is none: archives say why.
async fn borrow(
    client: &Client,
    id: &SandboxId,
    ask: LendFile,
) -> Result<Option<(Connection, File)>> {
    if client.is_elsewhere() {
        return Ok(None);
    }
    let mut connection = match client.lend_file(id, ask).await {
        Ok(connection) => connection,
        Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::NotFound) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let file = connection.file.take().map(File::from);
    Ok(file.map(|file| (connection, file)))
}

/// Has a written file put in its place. Gives its size.
async fn give_back(mut connection: Connection) -> Result<u64> {
    let broken =
        |error: std::io::Error| Error::transport(format!("the copy is not there: {error}"));
    connection
        .write
        .write_all(&[FILE_BYTE])
        .await
        .map_err(broken)?;
    connection.write.shutdown().await.map_err(broken)?;
    let mut line = Vec::new();
    let mut answer = connection.read.take(LINE);
    answer.read_to_end(&mut line).await.map_err(broken)?;
    match serde_json::from_slice(&line) {
        Ok(Returned::Entry(entry)) => Ok(entry.size_bytes),
        Ok(Returned::Error(error)) => Err(error),
        Err(_) => Err(Error::transport(
            "the copy is not there: the sandbox has left",
        )),
    }
}

/// Whether a file is its bytes, mode and time, and worth it: attributes and holes go in archives.
fn is_simple(file: &File, found: &Metadata) -> bool {
    let whole = found.blocks().saturating_mul(512) >= found.len();
    found.is_file() && found.len() >= LARGE && whole && !has_attributes(file)
}

fn has_attributes(file: &File) -> bool {
    let mut names = [0u8; 4096];
    match rustix::fs::flistxattr(file, &mut names) {
        Ok(length) => names[..length]
            .split(|byte| *byte == 0)
            .any(|name| name.starts_with(b"user.")),
        // More names than that, or a filesystem that has none.
        Err(errno) => errno != rustix::io::Errno::NOTSUP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_whole_files_without_attributes_are_lent() {
        let place = tempfile::tempdir_in(".").unwrap();
        let path = place.path().join("file");
        let is = |bytes: usize| {
            std::fs::write(&path, vec![1; bytes]).unwrap();
            let file = File::open(&path).unwrap();
            is_simple(&file, &file.metadata().unwrap())
        };
        assert!(!is(LARGE as usize - 1));
        assert!(is(LARGE as usize));
        let file = File::open(&path).unwrap();
        rustix::fs::fsetxattr(&file, "user.x", b"1", rustix::fs::XattrFlags::empty()).unwrap();
        assert!(!is_simple(&file, &file.metadata().unwrap()));
        let holes = File::create(place.path().join("holes")).unwrap();
        holes.set_len(LARGE * 4).unwrap();
        assert!(!is_simple(&holes, &holes.metadata().unwrap()));
    }
}
