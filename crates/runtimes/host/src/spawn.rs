//! Starts a detached guest.

use crate::kept::{self, Copied, WORKSPACE};
use crate::record::Record;
use crate::{door, sys, tree};
use motu_core::Error;
use motu_core::runtime::Kept;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The guest program in a sealed memfd: there is no file that could be replaced.
#[derive(Debug)]
pub struct Program {
    image: OwnedFd,
    /// The soft limit of open files in a machine.
    files: Option<u64>,
}

impl Program {
    pub fn new(guest: &[u8], files: Option<u64>) -> io::Result<Program> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let create = |flags| rustix::fs::memfd_create("motu-guest", flags);
        // Where memfds are not executable by default, MFD_EXEC is needed; older kernels refuse the
        // flag.
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

/// Starts a guest in its directory and records its process.
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
    let listener = door::listen(dir).map_err(|error| failed("its socket", &error))?;
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
    // Dropping the child neither kills nor reaps it: `ended` or `remove` reaps it.
    let record = Record::new(child.id() as i32, kept.map(|kept| kept.dir.clone()))
        .ok_or_else(|| Error::internal("the guest was gone at once"))?;
    record.store(dir)?;
    Ok(record)
}
