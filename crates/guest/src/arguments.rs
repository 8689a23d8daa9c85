//! The command line of `serve`.

use crate::{Door, Serve, Upper, WorkspaceDirs, sys};
use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where `/workspace` is unless the caller says otherwise.
const WORKSPACE: &str = "/workspace";

/// What the arguments say so far.
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
}

pub fn parse(arguments: &[OsString]) -> Result<Serve, String> {
    let mut said = Said::default();
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let name = flag.to_string_lossy();
        let mut value = || rest.next().ok_or(format!("{name} needs a value"));
        match &*name {
            "--pid1" => said.pid1 = true,
            "--listen-fd" => said.listener = Some(inherited(&name, value()?)?),
            "--lock-fd" => said.lock = Some(inherited(&name, value()?)?),
            "--listen" => said.listener = Some(listen(Path::new(value()?))?),
            "--workspace" => said.workspace = Some(value()?.into()),
            "--workspace-lower" => said.lower = Some(value()?.into()),
            "--workspace-upper" => said.upper = Some(value()?.into()),
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
        .ok_or("one of --listen-fd and --listen is needed")?;
    Ok(Serve {
        door: Door::Socket(listener),
        pid1: said.pid1,
        restrict: None,
        workspace,
        lock: said.lock,
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

fn directory(path: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|error| format!("cannot open {}: {error}", path.display()))
}
