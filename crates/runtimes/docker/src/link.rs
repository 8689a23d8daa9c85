//! Connections to guests.
//!
//! The guest makes its socket in a directory shared with the host. As soon as it listens, and
//! before anything else can run in the machine, the host moves the socket out and removes the
//! directory: inside remains a dead directory where nothing can be created, and nothing of the
//! host's.

use crate::prepare::{LINK_DIR, LINK_SOCKET};
use motu_core::runtime::{Connection, Machine};
use motu_core::{Error, SandboxId};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::UnixStream;

/// Polling interval until a guest listens.
const PAUSE: Duration = Duration::from_millis(1);

/// The first connections to guests, made to see that they listen. Each is handed to the first
/// caller.
#[derive(Debug, Default)]
pub(crate) struct Links {
    first: Mutex<HashMap<SandboxId, UnixStream>>,
}

impl Links {
    fn first(&self) -> MutexGuard<'_, HashMap<SandboxId, UnixStream>> {
        self.first
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn keep(&self, id: &SandboxId, stream: UnixStream) {
        self.first().insert(id.clone(), stream);
    }

    pub(crate) async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        let first = self.first().remove(&machine.id);
        let stream = match first {
            Some(stream) => stream,
            None => match reach(&machine.dir.join(LINK_SOCKET)).await {
                // In gVisor's file system a socket cannot be moved.
                Err(_) if machine.dir.join(LINK_DIR).exists() => made(&machine.dir).await,
                other => other,
            }
            .map_err(|error| Error::transport(format!("the guest's link: {error}")))?,
        };
        let (read, write) = stream.into_split();
        Ok(Connection::new(read, write))
    }

    /// Forgets a machine that ends.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.first().remove(id);
    }
}

/// Makes the directory, mode 0777: the machine's root may be any id of the host. Its parent
/// directory is accessible to the daemon only.
pub(crate) fn prepare(dir: &Path) -> io::Result<()> {
    let place = dir.join(LINK_DIR);
    std::fs::DirBuilder::new().mode(0o700).create(&place)?;
    // The daemon's umask must not apply.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place, everybody)
}

/// Waits, without a timeout, until a new guest accepts connections.
pub(crate) async fn listens(dir: &Path) -> UnixStream {
    loop {
        match made(dir).await {
            Ok(stream) => return stream,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Takes the directory away from the machine.
pub(crate) fn seal(dir: &Path) -> io::Result<()> {
    let place = dir.join(LINK_DIR);
    std::fs::rename(place.join(LINK_SOCKET), dir.join(LINK_SOCKET))?;
    std::fs::remove_dir(place)
}

/// Connects to the socket where the guest made it.
async fn made(dir: &Path) -> io::Result<UnixStream> {
    reach(&dir.join(LINK_DIR).join(LINK_SOCKET)).await
}

/// Makes a new connection. Symbolic links are not followed: only a real socket is accepted.
async fn reach(socket: &Path) -> io::Result<UnixStream> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(socket, flags, Mode::empty())?;
    let kind = rustix::fs::fstat(&socket)?;
    if !FileType::from_raw_mode(kind.st_mode).is_socket() {
        return Err(io::Error::other("not a socket"));
    }
    // By descriptor: the path may be longer than a socket address.
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn a_sealed_socket_takes_connections_and_its_directory_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).unwrap();
        // A directory that a program has open stays open.
        let inside = std::fs::File::open(dir.path().join(LINK_DIR)).unwrap();
        let listener = UnixListener::bind(dir.path().join(LINK_DIR).join(LINK_SOCKET)).unwrap();
        let _first = listens(dir.path()).await;
        seal(dir.path()).unwrap();
        assert!(reach(&dir.path().join(LINK_SOCKET)).await.is_ok());
        let made = rustix::fs::mkdirat(&inside, "x", Mode::RWXU);
        assert_eq!(made, Err(rustix::io::Errno::NOENT));
        drop(listener);
    }

    #[tokio::test]
    async fn only_a_socket_will_do() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("x");
        std::os::unix::fs::symlink("/run/docker.sock", &place).unwrap();
        assert!(reach(&place).await.is_err());
    }
}
