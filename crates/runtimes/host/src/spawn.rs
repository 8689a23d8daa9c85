//! Starting a guest that belongs to nobody, and talking to it.

use crate::kept::{self, Copied, WORKSPACE};
use crate::record::{self, Record};
use crate::{sys, tree};
use motu_core::runtime::{Connection, Kept};
use motu_core::{Error, ErrorKind};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the guest listens.
pub const SOCKET: &str = "link.sock";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a new guest may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The guest in memory, sealed: no file to be replaced between two machines.
#[derive(Debug)]
pub struct Program {
    image: OwnedFd,
    /// Files that whoever runs in a machine may open.
    files: Option<u64>,
}

impl Program {
    pub fn new(guest: &[u8], files: Option<u64>) -> io::Result<Program> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let create = |flags| rustix::fs::memfd_create("motu-guest", flags);
        // Where memory files are not executable by default it must be asked for; older kernels refuse the question.
        let made = match create(flags | MemfdFlags::EXEC) {
            Err(rustix::io::Errno::INVAL) => create(flags),
            other => other,
        };
        let mut file = std::fs::File::from(made?);
        file.write_all(guest)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Program {
            image: file.into(),
            files,
        })
    }
}

/// Starts a guest in its directory and writes down which process it is.
pub fn start(program: &Program, dir: &Path, kept: Option<&Kept>) -> Result<Record, Error> {
    let failed = |what: &str, error: &io::Error| Error::io(format!("the guest: {what}"), error);
    let copied = kept.map(kept::open).transpose()?;
    let workspace = match &copied {
        Some(copied) => copied.workspace.clone(),
        None => {
            let workspace = dir.join(WORKSPACE);
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&workspace)
                .map_err(|error| failed("its workspace", &error))?;
            workspace
        }
    };
    let listener = listen(dir).map_err(|error| failed("its socket", &error))?;
    let mut command = Command::new(format!("/proc/self/fd/{}", program.image.as_raw_fd()));
    command
        .arg("serve")
        .arg("--listen-fd")
        .arg(listener.as_raw_fd().to_string())
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", &workspace)
        .env("LANG", "C.UTF-8")
        .env(tree::MARK, dir)
        .current_dir(&workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut inherited = vec![listener.as_raw_fd()];
    if let (Some(kept), Some(copied)) = (kept, &copied) {
        let Copied {
            workspace,
            lock,
            copied_unix_ns,
        } = copied;
        command
            .arg("--workspace")
            .arg(workspace)
            .arg("--workspace-lower")
            .arg(&kept.baseline)
            .arg("--workspace-copied-ns")
            .arg(copied_unix_ns.to_string())
            .arg("--lock-fd")
            .arg(lock.as_raw_fd().to_string());
        inherited.push(lock.as_raw_fd());
    }
    sys::detach(&mut command, inherited, program.files);
    let child = command
        .spawn()
        .map_err(|error| failed("its start", &error))?;
    drop(listener);
    // Dropping the child neither kills nor reaps it: whoever sees its end does.
    let record = Record::new(child.id() as i32, kept.map(|kept| kept.dir.clone()))
        .ok_or_else(|| Error::internal("the guest was gone at once"))?;
    record.store(dir)?;
    Ok(record)
}

/// The path of the socket through the directory's descriptor: a socket's
/// address holds 107 bytes, and a state directory may be deeper.
fn socket(dir: &Path) -> io::Result<(OwnedFd, String)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    Ok((dir, path))
}

fn listen(dir: &Path) -> io::Result<UnixListener> {
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
    Ok(Connection {
        read: Box::new(read),
        write: Box::new(write),
    })
}

/// Waits until a new guest answers, or until it is clear that it will not.
pub async fn answers(dir: &Path, record: &Record) -> Result<(), Error> {
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
            Some(pidfd) => record::ended(pidfd).await,
            None => "the guest was gone at once".to_string(),
        }
    };
    let late = || Error::new(ErrorKind::Timeout, "the guest did not answer in 10 s");
    tokio::select! {
        answered = tokio::time::timeout(ANSWER_TIMEOUT, hello) => answered.map_err(|_| late())?,
        reason = ended => Err(Error::unavailable(reason)),
    }
}
