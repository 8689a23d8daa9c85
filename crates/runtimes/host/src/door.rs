//! The socket of a guest that runs as a process of the host.

use crate::record::{self, Record};
use motu_core::runtime::Connection;
use motu_core::{Error, ErrorKind};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

/// Where the guest listens.
pub const SOCKET: &str = "link.sock";
/// How long a new guest may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The path of the socket through the directory's descriptor: a Unix socket address has 107 bytes,
/// and a state directory may be deeper.
fn socket(dir: &Path) -> io::Result<(OwnedFd, String)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    Ok((dir, path))
}

/// A listening socket for a guest to inherit.
pub fn listen(dir: &Path) -> io::Result<UnixListener> {
    let (_dir, path) = socket(dir)?;
    UnixListener::bind(path)
}

/// Opens a connection to the guest.
pub async fn connect(dir: &Path) -> Result<Connection, Error> {
    let failed = |error: io::Error| Error::transport(format!("the guest's link: {error}"));
    let (_dir, path) = socket(dir).map_err(failed)?;
    let stream = tokio::net::UnixStream::connect(path)
        .await
        .map_err(failed)?;
    let (read, write) = stream.into_split();
    Ok(Connection::new(read, write))
}

/// Waits until a new guest answers, or the process of its record, named `who` in messages, has
/// ended.
pub async fn answers(dir: &Path, record: &Record, who: &str) -> Result<(), Error> {
    let hello = async {
        let connection = connect(dir).await?;
        let mut io = tokio::io::join(connection.read, connection.write);
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
        motu_link::hello::host(&mut io, nonce)
            .await
            .map(drop)
            .map_err(|error| Error::transport(error.to_string()))
    };
    let ended = async {
        match record.open() {
            Some(pidfd) => record::ended(pidfd, who).await,
            None => format!("{who} was gone at once"),
        }
    };
    let late = || Error::new(ErrorKind::Timeout, "the guest did not answer in 10 s");
    tokio::select! {
        answered = tokio::time::timeout(ANSWER_TIMEOUT, hello) => answered.map_err(|_| late())?,
        reason = ended => Err(Error::unavailable(reason)),
    }
}
