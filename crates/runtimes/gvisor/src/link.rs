//! Connections to guests.

use crate::prepare;
use motu_core::runtime::{Connection, Machine};
use motu_core::{Error, SandboxId};
use rustix::fs::{FileType, Mode, OFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::UnixStream;

/// Polling interval until a guest listens.
const PAUSE: Duration = Duration::from_micros(500);

/// The first connections to guests, made to see that they listen. Each is handed to the first
/// caller: a second one would only be more work for the guest.
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

    /// Waits, without a timeout, until a new guest accepts connections.
    pub(crate) async fn begin(&self, machine: &Machine) {
        let stream = loop {
            match reach(&machine.dir).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        self.first().insert(machine.id.clone(), stream);
    }

    pub(crate) async fn connect(&self, machine: &Machine) -> Result<Connection, Error> {
        let first = self.first().remove(&machine.id);
        let stream = match first {
            Some(stream) => stream,
            None => reach(&machine.dir).await?,
        };
        let (read, write) = stream.into_split();
        Ok(Connection::new(read, write))
    }

    /// Forgets a machine that ends.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.first().remove(id);
    }
}

/// Makes a new connection. The sandbox can write to the directory, so symbolic links are not
/// followed: only a real socket is accepted.
async fn reach(dir: &Path) -> Result<UnixStream, Error> {
    let failed = |error: io::Error| Error::transport(format!("the guest's link: {error}"));
    let socket = dir.join(prepare::LINK_DIR).join(prepare::LINK_SOCKET);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::open(socket, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    let kind = rustix::fs::fstat(&socket).map_err(|e| failed(e.into()))?;
    if !FileType::from_raw_mode(kind.st_mode).is_socket() {
        return Err(Error::transport("the guest's link is not a socket"));
    }
    let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
    UnixStream::connect(path).await.map_err(failed)
}
