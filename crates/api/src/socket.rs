//! Unix sockets whose path may be longer than the kernel's 108 bytes.
//!
//! The directory is opened first, and the socket is addressed through its descriptor
//! (`/proc/self/fd/N/name`), which is always short. Over them go open files, too.

use motu_core::Error;
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The size of the path in a socket address, with its final zero.
const SUN_PATH_BYTES: usize = 108;

/// A short path to the same file, valid while this value exists.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl ShortPath {
    pub fn new(path: &Path) -> io::Result<ShortPath> {
        if path.as_os_str().len() < SUN_PATH_BYTES {
            return Ok(ShortPath {
                path: path.to_path_buf(),
                _directory: None,
            });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name);
        Ok(ShortPath {
            path,
            _directory: Some(directory),
        })
    }

    pub fn as_path(&self) -> &Path {
        &self.path
    }
}

/// What asks for a file on an upgraded connection, and what it comes with.
pub const FILE_BYTE: u8 = b'+';

/// Sends an open file, with one byte.
pub async fn send_file(stream: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    stream
        .async_io(Interest::WRITABLE, || {
            let byte = [IoSlice::new(&[FILE_BYTE])];
            rustix::net::sendmsg(stream, &byte, &mut control, SendFlags::NOSIGNAL)?;
            Ok(())
        })
        .await
}

/// Receives an open file, and the byte it comes with.
pub async fn receive_file(stream: &UnixStream) -> io::Result<OwnedFd> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC);
            let mut bytes = [IoSliceMut::new(&mut byte)];
            rustix::net::recvmsg(stream, &mut bytes, &mut control, flags)?;
            let files = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            });
            files.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })
        .await
}

/// Connects to the socket at `path`.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::new(path)?;
    UnixStream::connect(short.as_path()).await
}

/// Listens at `path`, accessible by its owner only. The caller has made sure that no other process
/// listens there.
pub fn listen(path: &Path) -> Result<tokio::net::UnixListener, Error> {
    let attempt = || {
        let short = ShortPath::new(path)?;
        match std::fs::remove_file(short.as_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = std::os::unix::net::UnixListener::bind(short.as_path())?;
        rustix::fs::chmod(short.as_path(), Mode::RUSR | Mode::WUSR)?;
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    };
    attempt().map_err(|error| Error::io(format_args!("listen on {}", path.display()), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_paths_work_at_both_ends() {
        let base = std::env::temp_dir().join(format!("motu-socket-{}", std::process::id()));
        let deep = base.join("a".repeat(120)).join("b".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("daemon.sock");
        let listener = listen(&path).unwrap();
        let (connected, accepted) = tokio::join!(connect(&path), listener.accept());
        connected.unwrap();
        accepted.unwrap();
        // A second listener replaces the socket file of the first.
        listen(&path).unwrap();
        std::fs::remove_dir_all(&base).unwrap();
    }
}
