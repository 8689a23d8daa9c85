//! The command line of `serve`.

use crate::{Door, Restrict, Serve, Upper, WorkspaceDirs, sys};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount_remount};
use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// The default path of `/workspace`.
const WORKSPACE: &str = "/workspace";

/// The arguments parsed so far.
#[derive(Default)]
struct Said {
    listener: Option<OwnedFd>,
    lock: Option<OwnedFd>,
    pid1: bool,
    workspace: Option<PathBuf>,
    lower: Option<PathBuf>,
    upper: Option<PathBuf>,
    user_attributes: bool,
    copied_unix_ns: Option<i64>,
    restrict: Option<Restrict>,
    seal: Option<PathBuf>,
    unmount: Vec<PathBuf>,
    errors_hidden: bool,
}

pub fn parse(arguments: &[OsString]) -> Result<Serve, String> {
    let mut said = Said::default();
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let name = flag.to_string_lossy();
        let mut value = || rest.next().ok_or(format!("{name} needs a value"));
        match &*name {
            "--pid1" => said.pid1 = true,
            "--end-with-parent" => sys::end_with_parent(),
            "--listen-fd" => said.listener = Some(inherited(&name, value()?)?),
            "--lock-fd" => said.lock = Some(inherited(&name, value()?)?),
            "--listen" => said.listener = Some(listen(Path::new(value()?))?),
            "--listen-for-all" => said.listener = Some(listen_for_all(Path::new(value()?))?),
            "--restrict" => said.restrict = Some(restrict(value()?)?),
            "--write" => write(value()?)?,
            "--processors" => {
                let count = value()?.to_str().and_then(|text| text.parse().ok());
                sys::show_processors(count.ok_or("--processors needs a number")?);
            }
            "--seal" => said.seal = Some(value()?.into()),
            "--unmount" => said.unmount.push(value()?.into()),
            "--workspace" => said.workspace = Some(value()?.into()),
            "--workspace-lower" => said.lower = Some(value()?.into()),
            "--workspace-upper" => said.upper = Some(value()?.into()),
            "--errors-hidden" => said.errors_hidden = true,
            "--workspace-user-attributes" => said.user_attributes = true,
            "--workspace-copied-ns" => {
                let time = value()?.to_str().and_then(|text| text.parse().ok());
                let time = time.ok_or("--workspace-copied-ns needs a number")?;
                said.copied_unix_ns = Some(time);
            }
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    let workspace = said.workspace()?;
    let listener = said
        .listener
        .ok_or("one of --listen-fd, --listen and --listen-for-all is needed")?;
    // Last: open descriptors stay usable, and programs can no longer reach these directories.
    said.seal.iter().try_for_each(|dir| seal(dir))?;
    said.unmount.iter().try_for_each(|dir| unmount(dir))?;
    Ok(Serve {
        door: Door::Socket(listener),
        pid1: said.pid1,
        restrict: said.restrict,
        workspace,
        lock: said.lock,
        errors_hidden: said.errors_hidden,
        calls: None,
    })
}

impl Said {
    fn workspace(&mut self) -> Result<Option<WorkspaceDirs>, String> {
        let Some(lower) = self.lower.take() else {
            if self.workspace.is_some() || self.upper.is_some() {
                return Err("a workspace needs --workspace-lower".to_string());
            }
            return Ok(None);
        };
        let upper = match self.upper.take() {
            Some(path) => Some(Upper {
                dir: directory(&path)?,
                user_attributes: self.user_attributes,
            }),
            None => None,
        };
        Ok(Some(WorkspaceDirs {
            path: self.workspace.take().unwrap_or_else(|| WORKSPACE.into()),
            lower: directory(&lower)?,
            upper,
            copied_unix_ns: self.copied_unix_ns,
        }))
    }
}

fn inherited(flag: &str, value: &OsString) -> Result<OwnedFd, String> {
    let number = value.to_str().and_then(|text| text.parse::<i32>().ok());
    let number = number
        .filter(|fd| *fd > 2)
        .ok_or(format!("{flag} needs a descriptor above 2"))?;
    sys::adopt(number).ok_or(format!("descriptor {number} is not open"))
}

fn listen(path: &Path) -> Result<OwnedFd, String> {
    let bound = std::os::unix::net::UnixListener::bind(path);
    let bound = bound.map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
    Ok(bound.into())
}

fn listen_for_all(path: &Path) -> Result<OwnedFd, String> {
    let bound = listen(path)?;
    open_to_all(path)?;
    Ok(bound)
}

/// Lets the daemon connect, which may be another user of the host than this machine's root; the
/// socket's directory keeps everyone else out. A daemon that needs no permission may have connected
/// and moved the socket away already.
fn open_to_all(socket: &Path) -> Result<(), String> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    match std::fs::set_permissions(socket, mode) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot open {} to all: {error}", socket.display()))
        }
        _ => Ok(()),
    }
}

/// `CAPABILITIES:FILES:PRIVILEGES[:PROCESSES]`: a hexadecimal set, a number, `new` or `none`, and
/// a number for each user.
fn restrict(value: &OsString) -> Result<Restrict, String> {
    let parse = || {
        let (caps, rest) = value.to_str()?.split_once(':')?;
        let (files, privileges) = rest.split_once(':')?;
        let files = files.parse().ok().map(allowed)?;
        let (privileges, processes) = match privileges.split_once(':') {
            Some((privileges, processes)) => (privileges, Some(processes.parse().ok()?)),
            None => (privileges, None),
        };
        Some(Restrict {
            drop_caps_keep: u64::from_str_radix(caps, 16).ok()?,
            no_new_privs: privileges == "none",
            landlock: true,
            nofile: Some((files, files)),
            nproc: processes,
        })
    };
    parse().ok_or("--restrict needs CAPABILITIES:FILES:PRIVILEGES[:PROCESSES]".to_string())
}

/// Limits the number of open files to what this process can set. A container engine may have
/// started it with a lower limit than requested; the host knows the result.
fn allowed(files: u64) -> u64 {
    use rustix::process::{Resource, getrlimit};
    use rustix::thread::{CapabilitySet, capabilities};
    let raises =
        |sets: rustix::thread::CapabilitySets| sets.effective.contains(CapabilitySet::SYS_RESOURCE);
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if !capabilities(None).is_ok_and(raises) => files.min(most),
        _ => files,
    }
}

/// `FILE=VALUE`: a kernel setting that only the guest may write.
fn write(value: &OsString) -> Result<(), String> {
    let text = value.to_string_lossy();
    let (file, value) = text.split_once('=').ok_or("--write needs FILE=VALUE")?;
    std::fs::write(file, value).map_err(|error| format!("cannot write to {file}: {error}"))
}

/// Detaches a mount; descriptors open below it stay valid.
fn unmount(dir: &Path) -> Result<(), String> {
    match rustix::mount::unmount(dir, UnmountFlags::DETACH) {
        // Nothing is mounted there.
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(format!("cannot unmount {}: {error}", dir.display())),
    }
}

/// Unmounts the directory of our socket. gVisor needs the directory open for the socket to work, so
/// it is kept open, but read-only and outside of our descriptor table, where the machine's root
/// would find it (`/proc/1/fd`).
fn seal(dir: &Path) -> Result<(), String> {
    mount_remount(dir, MountFlags::BIND | MountFlags::RDONLY, c"")
        .map_err(|error| format!("cannot close {}: {error}", dir.display()))?;
    hide(directory(dir)?).map_err(|error| format!("cannot hide {}: {error}", dir.display()))?;
    unmount(dir)
}

/// Keeps a file open for the life of this process, inside a socket message that is never received.
fn hide(file: OwnedFd) -> rustix::io::Result<()> {
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, sendmsg, socketpair,
    };
    let (to, from) = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let files = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(rustix::io::Errno::NOBUFS);
    }
    let word = [std::io::IoSlice::new(b"x")];
    sendmsg(&to, &word, &mut control, SendFlags::empty())?;
    std::mem::forget((to, from));
    Ok(())
}

fn directory(path: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|error| format!("cannot open {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_for_all_or_with_the_daemon_already() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("link.sock");
        let _bound = listen_for_all(&socket).unwrap();
        let mode = std::fs::metadata(&socket).unwrap().permissions();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode);
        assert_eq!(mode & 0o777, 0o666);
        std::fs::rename(&socket, dir.path().join("taken.sock")).unwrap();
        assert_eq!(open_to_all(&socket), Ok(()));
        assert!(open_to_all(&dir.path().join("taken.sock/x")).is_err());
    }
}
