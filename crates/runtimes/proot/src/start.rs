//! Starts a guest under proot.

use crate::root::{self, BASELINE, DEVICES, PROGRAM};
use crate::tool;
use motu_core::Error;
use motu_core::runtime::{Kept, MachineSpec};
use motu_host::kept::{self, Copied};
use motu_host::record::Record;
use motu_host::{door, sys, tree};
use seccompiler::BpfProgram;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A machine's tree, in its directory or in that of its disks.
pub const ROOT: &str = "root";
/// The guest's program and the directory for `/dev/shm`, in a machine's directory.
const GUEST: &str = "guest";
const SHARED: &str = "shm";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The settings of all machines.
#[derive(Debug)]
pub struct Starter {
    pub guest: bytes::Bytes,
    pub files: Option<u64>,
    pub filters: Arc<[BpfProgram; 2]>,
}

/// Where a machine's tree is.
pub fn tree_of(dir: &Path, kept: Option<&Kept>) -> PathBuf {
    kept.map_or(dir, |kept| &kept.dir).join(ROOT)
}

impl Starter {
    /// Makes a machine's tree, starts proot and records its process.
    pub fn start(&self, spec: &MachineSpec) -> Result<Record, Error> {
        let program = tool::require()?;
        let shown = Shown::new(spec)?;
        let copied = spec.kept.as_ref().map(kept::open).transpose()?;
        root::open(&spec.root, &shown.root)?;
        self.place(&spec.dir)
            .map_err(|error| Error::io("the machine's directory", &error))?;
        let listener =
            door::listen(&spec.dir).map_err(|error| Error::io("the guest: its socket", &error))?;
        let mut command = tool::command(&program, &self.filters);
        command
            .args(shown.arguments())
            .arg(Path::new("/").join(PROGRAM))
            .args(["serve", "--end-with-parent", "--listen-fd"])
            .arg(listener.as_raw_fd().to_string())
            .env("PATH", PATH)
            .env("HOME", "/root")
            .env("LANG", "C.UTF-8")
            .env(tree::MARK, &spec.dir)
            .current_dir(&spec.dir);
        let mut inherited = vec![listener.as_raw_fd()];
        inherited.extend(copied.iter().map(|copied| workspace(&mut command, copied)));
        sys::detach(&mut command, inherited, self.files);
        let child = command
            .spawn()
            .map_err(|error| Error::io("proot", &error))?;
        drop((listener, copied));
        // Dropping the child neither kills nor reaps it: `ended` or `remove` reaps it.
        let kept = spec.kept.as_ref().map(|kept| kept.dir.clone());
        let record = Record::new(child.id() as i32, kept)
            .ok_or_else(|| Error::internal("proot was gone at once"))?;
        record.store(&spec.dir)?;
        Ok(record)
    }

    /// Makes the files in a machine's directory that are shown inside.
    fn place(&self, dir: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(dir.join(SHARED))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o500)
            .open(dir.join(GUEST))?;
        file.write_all(&self.guest)
    }
}

/// Passes the workspace to the guest; returns the descriptor of the lock it must keep.
fn workspace(command: &mut Command, copied: &Copied) -> RawFd {
    let lock = copied.lock.as_raw_fd();
    command
        .arg("--workspace")
        .arg(Path::new("/").join(root::WORKSPACE))
        .arg("--workspace-lower")
        .arg(Path::new("/").join(BASELINE))
        .arg("--workspace-copied-ns")
        .arg(copied.copied_unix_ns.to_string())
        .arg("--lock-fd")
        .arg(lock.to_string());
    lock
}

/// The paths of the host that a machine sees.
#[derive(Debug)]
pub struct Shown {
    root: PathBuf,
    binds: Vec<(PathBuf, PathBuf)>,
}

impl Shown {
    pub fn new(spec: &MachineSpec) -> Result<Shown, Error> {
        let inside = |name: &str| Path::new("/").join(name);
        let same = |path: PathBuf| (path.clone(), path);
        let mut binds = vec![same("/proc".into())];
        binds.extend(DEVICES.map(|name| same(Path::new("/dev").join(name))));
        binds.push(same("/dev/pts".into()));
        binds.push((spec.dir.join(SHARED), inside("dev/shm")));
        binds.push((spec.dir.join(GUEST), inside(PROGRAM)));
        if let Some(kept) = &spec.kept {
            binds.push((kept::workspace(&kept.dir), inside(root::WORKSPACE)));
            binds.push((kept.baseline.clone(), inside(BASELINE)));
        }
        let shown = Shown {
            root: tree_of(&spec.dir, spec.kept.as_ref()),
            binds,
        };
        shown.check().map(|()| shown)
    }

    /// proot separates paths with colons and cannot escape one.
    fn check(&self) -> Result<(), Error> {
        let paths = self.binds.iter().map(|(path, _)| path);
        let odd = |path: &&PathBuf| path.as_os_str().as_bytes().contains(&b':');
        match paths.chain([&self.root]).find(odd) {
            None => Ok(()),
            Some(path) => Err(Error::unsupported(format!(
                "proot cannot show {}: its path has a colon",
                path.display()
            ))
            .hint("use a state directory (MOTU_HOME) without colons")),
        }
    }

    /// The arguments of proot before the program's.
    pub fn arguments(&self) -> Vec<OsString> {
        let word = |text: &str| OsString::from(text);
        let mut words = vec![word("-0"), word("-r"), self.root.clone().into()];
        words.extend([word("-w"), word("/")]);
        for (host, inside) in &self.binds {
            let pair = [host.as_os_str(), OsStr::new(":"), inside.as_os_str()];
            words.extend([word("-b"), pair.into_iter().collect()]);
        }
        words
    }
}
