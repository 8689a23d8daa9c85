//! Read-only volumes that are bound: the sandbox shows the directory itself.
//!
//! The directory is opened here, with the rights of whoever calls, and the open directory is handed
//! over: nobody resolves a path of this host for somebody else.

use super::Volume;
use motu_api::Client;
use motu_core::files::{GuestPath, LendDirectory, Returned};
use motu_core::runtime::Connection;
use motu_core::{Error, ErrorKind, Result, SandboxId, Service};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;

/// The line that a sandbox answers with.
const LINE: u64 = 64 * 1024;
const MOUNTS: &str = "/proc/self/mountinfo";

/// What became of a volume.
pub(super) enum Shown {
    Bound,
    /// Why it has to be copied.
    Not(String),
}

/// Binds a read-only volume, if that shows what a copy would.
pub(super) async fn bind(
    client: &Client,
    id: &SandboxId,
    volume: &Volume,
    all: &[Volume],
) -> Result<Shown> {
    if client.is_elsewhere() {
        return Ok(Shown::Not("the sandbox is not on this host".into()));
    }
    if meets_another(volume, all) {
        return Ok(Shown::Not("another volume is at the same place".into()));
    }
    let failed = |error| Error::with_file(format!("read {}", volume.here.display()), &error);
    let here = std::fs::canonicalize(&volume.here).map_err(failed)?;
    let mounts = std::fs::read(MOUNTS).map_err(failed)?;
    if let Some(mount) = mounted_below(&here, &mounts) {
        let reason = format!("another file system is mounted at {}", mount.display());
        return Ok(Shown::Not(reason));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(&volume.here, flags, Mode::empty());
    let directory = directory.map_err(|errno| failed(errno.into()))?;
    match lend(client, id, volume.there.clone(), directory).await {
        Ok(()) => Ok(Shown::Bound),
        // A daemon of an older version does not know the verb.
        Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::NotFound) => {
            Ok(Shown::Not(error.message))
        }
        Err(error) => Err(error),
    }
}

async fn lend(client: &Client, id: &SandboxId, path: GuestPath, directory: OwnedFd) -> Result<()> {
    let mut connection = client.lend_directory(id, LendDirectory { path }).await?;
    let gone = || Error::transport("the sandbox does not take the directory");
    let takes = connection.takes.take().ok_or_else(gone)?;
    takes.send(directory).map_err(|_| gone())?;
    answered(connection).await
}

async fn answered(connection: Connection) -> Result<()> {
    let mut line = Vec::new();
    let read = connection.read.take(LINE).read_to_end(&mut line).await;
    read.map_err(|error| Error::transport(format!("the directory is not there: {error}")))?;
    match serde_json::from_slice(&line) {
        Ok(Returned::Entry(_)) => Ok(()),
        Ok(Returned::Error(error)) => Err(error),
        Err(_) => Err(Error::transport(
            "the directory is not there: the sandbox has left",
        )),
    }
}

/// Whether another volume is in its place, or around it: what is copied there would be hidden, or
/// could not be written.
fn meets_another(volume: &Volume, all: &[Volume]) -> bool {
    let is_in = |inner: &GuestPath, outer: &GuestPath| {
        let rest = inner.as_bytes().strip_prefix(&outer.as_bytes()[..]);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let meets =
        |other: &&Volume| is_in(&other.there, &volume.there) || is_in(&volume.there, &other.there);
    all.iter().filter(meets).count() > 1
}

/// Where another file system is mounted in a directory: the sandbox would not show it.
fn mounted_below(here: &Path, mounts: &[u8]) -> Option<PathBuf> {
    let places = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let place = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(OsString::from_vec(unescaped(place))))
    });
    let mut below = places.filter(|place| place != here && place.starts_with(here));
    below.next()
}

/// The kernel writes blanks and the like as `\040`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_meet_are_found() {
        let volumes = |texts: &[&str]| -> Vec<Volume> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let meets = |texts: &[&str]| {
            let all = volumes(texts);
            meets_another(&all[0], &all)
        };
        assert!(!meets(&["a:/src:ro", "b:/srcs", "c:/data"]));
        assert!(meets(&["a:/src:ro", "b:/src"]));
        assert!(meets(&["a:/src:ro", "b:/src/lib"]));
        assert!(meets(&["a:/src/lib:ro", "b:/src"]));
    }

    #[test]
    fn what_is_mounted_in_a_directory_is_found() {
        let mounts = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 8:2 / /srv/data rw - ext4 /dev/b rw\n\
            3 1 8:3 / /srv/my\\040data/x rw - ext4 /dev/c rw\n";
        let found = |here: &str| mounted_below(Path::new(here), mounts);
        assert_eq!(found("/srv"), Some("/srv/data".into()));
        assert_eq!(found("/srv/data"), None);
        assert_eq!(found("/srv/dat"), None);
        assert_eq!(found("/srv/my data"), Some("/srv/my data/x".into()));
    }
}
