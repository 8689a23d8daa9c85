//! A directory of this user's, open.
//!
//! The state directory may be below a directory of somebody else, who can put anything in its place:
//! a link to `/etc`, a directory with links in it. So whose it is is asked of what was opened, before
//! anything in it is opened, and what is opened in it first is found from there and through no link.

use motu_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, openat, statat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What is in the directory is for its owner alone.
const PRIVATE: Mode = Mode::RWXU;

/// An open directory that belongs to this user, and nobody else may look into.
#[derive(Debug)]
pub struct OwnDirectory {
    dir: OwnedFd,
    path: PathBuf,
}

impl OwnDirectory {
    /// Opens a directory, which is made if it is not there. Fails if it is another user's, or if
    /// another user's link leads to it.
    pub fn open(path: &Path) -> Result<OwnDirectory> {
        let context = |what: &str| format!("{what} {}", path.display());
        let failed = |what: &str, error: io::Error| Error::io(context(what), &error);
        check_links(path)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE.bits())
            .create(path)
            .map_err(|error| failed("cannot create", error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty())
            .map_err(|error| failed("cannot open", error.into()))?;
        let found = fstat(&dir).map_err(|error| failed("cannot look at", error.into()))?;
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(foreign(path));
        }
        if found.st_mode & 0o077 != 0 {
            fchmod(&dir, PRIVATE).map_err(|error| failed("cannot make private", error.into()))?;
        }
        let path = path
            .canonicalize()
            .map_err(|error| failed("cannot open", error))?;
        Ok(OwnDirectory { dir, path })
    }

    /// Where it is, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a plain file in it for writing, which is made for its owner only if it is not there.
    pub fn file(&self, name: &str, how: OFlags) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A pipe without a reader would wait for one.
        let flags = flags | OFlags::NONBLOCK | how;
        let file = openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(File::from(file)),
            _ => Err(io::Error::other(format!("{name} is no plain file"))),
        }
    }

    /// Gives a file in it another name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }
}

/// Refuses links of other users on the way: root's and our own say what root and we meant.
fn check_links(path: &Path) -> Result<()> {
    let us = rustix::process::geteuid().as_raw();
    for part in path.ancestors() {
        let Ok(found) = statat(CWD, part, AtFlags::SYMLINK_NOFOLLOW) else {
            // Not there yet, or not to be seen: opening it says so.
            continue;
        };
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        if is_link && found.st_uid != us && found.st_uid != 0 {
            return Err(foreign(part));
        }
    }
    Ok(())
}

fn foreign(path: &Path) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("{} belongs to another user", path.display()),
    )
    .hint("set MOTU_HOME to a directory of your own")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_directory_is_made_and_is_private() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b");
        let own = OwnDirectory::open(&path).unwrap();
        assert_eq!(own.path(), path.canonicalize().unwrap());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        OwnDirectory::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        // Our own link may lead to it.
        symlink(&path, top.path().join("link")).unwrap();
        let linked = OwnDirectory::open(&top.path().join("link")).unwrap();
        assert_eq!(linked.path(), own.path());
    }

    #[test]
    fn nothing_is_written_through_a_link_or_into_a_pipe() {
        let top = tempfile::tempdir().unwrap();
        let victim = top.path().join("victim");
        std::fs::write(&victim, "as it was").unwrap();
        let own = OwnDirectory::open(&top.path().join("home")).unwrap();
        symlink(&victim, own.path().join("daemon.log")).unwrap();
        assert!(own.file("daemon.log", OFlags::TRUNC).is_err());
        symlink(top.path().join("new"), own.path().join("daemon.lock")).unwrap();
        assert!(own.file("daemon.lock", OFlags::empty()).is_err());
        assert!(!top.path().join("new").exists());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was");
        let pipe = own.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(own.file("pipe", OFlags::empty()).is_err());
        assert!(own.file("plain", OFlags::APPEND).is_ok());
    }

    /// As root, of somebody else's things: root may open everything, and must not.
    #[test]
    fn what_is_another_users_is_refused_before_anything_in_it_is_opened() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let chown = |path: &Path| std::os::unix::fs::lchown(path, Some(12_345), None).unwrap();
        let theirs = top.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        chown(&theirs);
        let error = OwnDirectory::open(&theirs).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        // Their link to a directory of ours, which would be made private and filled.
        let ours = top.path().join("ours");
        std::fs::create_dir(&ours).unwrap();
        std::fs::set_permissions(&ours, PermissionsExt::from_mode(0o755)).unwrap();
        let link = top.path().join("link");
        symlink(&ours, &link).unwrap();
        chown(&link);
        for path in [link.clone(), link.join("below")] {
            let error = OwnDirectory::open(&path).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        }
        assert_eq!(ours.metadata().unwrap().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read_dir(&ours).unwrap().count(), 0);
    }
}
