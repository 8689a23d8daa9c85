//! Files of a machine that a caller on this host reads or writes by itself, and directories of that
//! caller that a machine reads.

use super::call::Call;
use super::files::entry;
use super::system::expect_entry;
use super::{Guest, finish, next_note, unexpected};
use motu_core::files::{FileEntry, LendDirectory, LendFile, Returned};
use motu_core::runtime::Connection;
use motu_core::{Error, Result};
use motu_link::message::{self as link, Said, Verb};
use rustix::fs::{FileType, FsWord};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;

/// What a caller and a lender say to each other fits: one byte, and one line.
const TALK: usize = 64 * 1024;

/// Filesystems whose files the host can use as its own: nothing in the machine stands behind them,
/// as it could behind those of FUSE, or of /proc.
const PLAIN: [FsWord; 6] = [
    0x794c_7630, // overlayfs
    0xef53,      // ext4
    0x0102_1994, // tmpfs
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0xf2f5_2010, // F2FS
];

impl Guest {
    pub async fn lend(&self, ask: LendFile) -> Result<Connection> {
        if !self.runtime.lends_files() {
            let name = self.runtime.name();
            return Err(Error::unsupported(format!(
                "the files of {name} machines are not lent: they have a kernel of their own"
            ))
            .hint("read or write its bytes"));
        }
        match ask.write {
            false => self.lend_to_read(ask).await,
            true => self.lend_to_write(ask).await,
        }
    }

    async fn lend_to_read(&self, ask: LendFile) -> Result<Connection> {
        let read = link::Read {
            path: ask.path.as_bytes().clone(),
            ..link::Read::default()
        };
        let mut call = self.open(Verb::LendRead(read)).await?;
        expect_entry(next_note(&mut call).await?)?;
        let file = self.fetch(&mut call).await?;
        finish(&mut call).await?;
        let mut connection = Connection::new(tokio::io::empty(), tokio::io::sink());
        connection.file = Some(file);
        Ok(connection)
    }

    async fn lend_to_write(&self, ask: LendFile) -> Result<Connection> {
        let write = link::Write {
            path: ask.path.as_bytes().clone(),
            mode: ask.mode.unwrap_or(0),
            modified_unix_ns: ask.modified_unix_ns.unwrap_or(0),
            ..link::Write::default()
        };
        let mut call = self.open(Verb::LendWrite(write)).await?;
        let file = self.fetch(&mut call).await?;
        let (ours, theirs) = tokio::io::duplex(TALK);
        tokio::spawn(returned(call, theirs));
        let (read, write) = tokio::io::split(ours);
        let mut connection = Connection::new(read, write);
        connection.file = Some(file);
        Ok(connection)
    }

    /// Fetches the file that the guest says it lends.
    async fn fetch(&self, call: &mut Call) -> Result<OwnedFd> {
        let Said::Lent(lent) = next_note(call).await? else {
            return Err(unexpected());
        };
        let token = lent.token.as_ref().try_into().map_err(|_| unexpected())?;
        let fetching = self.runtime.take_file(&self.machine, token);
        let file = tokio::time::timeout(self.about.bounds.call, fetching).await;
        let file = file.map_err(|_| self.about.late("does not hand over the file it lends"))??;
        check(&file)?;
        Ok(file)
    }

    /// Shows a directory that the caller hands over. Its place is made by the guest, so that it is
    /// made with the rights of the machine.
    pub async fn lend_directory(&self, ask: LendDirectory) -> Result<Connection> {
        if !self.runtime.attaches_directories() {
            let name = self.runtime.name();
            return Err(Error::unsupported(format!(
                "the {name} runtime cannot show directories of this host here"
            ))
            .hint("copy it in"));
        }
        let guest = self
            .me
            .upgrade()
            .ok_or_else(|| Error::not_found("the machine is gone"))?;
        self.mkdir(&ask.path, None).await?;
        let (ours, mut theirs) = tokio::io::duplex(TALK);
        let (takes, directory) = oneshot::channel();
        tokio::spawn(async move {
            // A caller who leaves before has handed over nothing.
            let Ok(directory) = directory.await else {
                return;
            };
            let shown = guest.show(ask, directory).await;
            say(&mut theirs, shown).await;
        });
        let (read, write) = tokio::io::split(ours);
        let mut connection = Connection::new(read, write);
        connection.takes = Some(takes);
        Ok(connection)
    }

    async fn show(&self, ask: LendDirectory, directory: OwnedFd) -> Result<FileEntry> {
        let at = PathBuf::from(OsStr::from_bytes(ask.path.as_bytes()));
        let attaching = self.runtime.attach_directory(&self.machine, directory, at);
        attaching.await?;
        self.stat(&ask.path, true).await
    }
}

/// A guest could send any descriptor that it has: only plain files are passed on.
fn check(file: &OwnedFd) -> Result<()> {
    let failed = |errno: rustix::io::Errno| Error::io("look at a lent file", &errno.into());
    let stat = rustix::fs::fstat(file.as_fd()).map_err(failed)?;
    let place = rustix::fs::fstatfs(file.as_fd()).map_err(failed)?;
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    match plain && PLAIN.contains(&place.f_type) {
        true => Ok(()),
        false => Err(
            Error::unsupported("it is no plain file, or on a filesystem of its own")
                .hint("read or write its bytes"),
        ),
    }
}

/// Puts the file in its place when the caller says so. A caller who leaves before has written
/// nothing: the guest throws the file away.
async fn returned(mut call: Call, mut talk: DuplexStream) {
    let mut said = Vec::new();
    if (&mut talk).take(2).read_to_end(&mut said).await.is_err() || said != b"+" {
        return;
    }
    let outcome = put(&mut call).await;
    say(&mut talk, outcome).await;
}

/// Says in a line how it went.
async fn say(talk: &mut DuplexStream, outcome: Result<FileEntry>) {
    let line = match outcome {
        Ok(entry) => Returned::Entry(Box::new(entry)),
        Err(error) => Returned::Error(error),
    };
    if let Ok(mut line) = serde_json::to_vec(&line) {
        line.push(b'\n');
        // A caller who has gone does not want to know.
        let _ = talk.write_all(&line).await;
    }
}

async fn put(call: &mut Call) -> Result<FileEntry> {
    call.tx.eof().await.map_err(super::broken)?;
    let file = expect_entry(next_note(call).await?).map(entry)?;
    finish(call).await?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_passed_on() {
        let plain = tempfile::tempfile().unwrap();
        check(&plain.into()).unwrap();
        for other in [
            "/proc/self/status",
            "/dev/null",
            "/proc/self/fd",
            "/sys/kernel/mm",
        ] {
            let other = std::fs::File::open(other).unwrap();
            assert!(check(&other.into()).is_err());
        }
    }
}
