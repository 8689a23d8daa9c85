//! A machine's own copy of its environment.
//!
//! Nothing separates a machine from the files it sees, so it cannot share them: hard links to the
//! installed tree would let it write there. The copy is staged and renamed, so that it is complete
//! or missing.
//!
//! `/dev`, `/proc`, `/sys`, `/run` and `/tmp` are created instead of copied, with the mount points
//! for files of the host. So nothing in an environment, such as a symbolic link in place of a
//! directory, can redirect what is written here.

use crate::clear;
use motu_core::hint::host;
use motu_core::{Error, hint};
use motu_packages::ids;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Directories that are created, not copied, with their modes.
const MADE: [(&str, u32); 5] = [
    ("dev", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("run", 0o755),
    ("tmp", 0o1777),
];
/// Devices of the host that machines see.
pub const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];
/// Standard symbolic links in `/dev`.
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Where the guest sees its program and, with a workspace, its baseline.
pub const PROGRAM: &str = "run/motu/guest";
pub const BASELINE: &str = "run/motu/baseline";
/// Where a kept workspace is mounted.
pub const WORKSPACE: &str = "workspace";
/// The host's resolver configuration, because the network is the host's.
const RESOLVER: &str = "resolv.conf";
/// Largest resolver configuration that is copied.
const RESOLVER_BYTES: u64 = 64 * 1024;
/// The ELF machine number of this processor.
#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u16 = 183;
/// How much of an error message is shown.
const SAID: usize = 300;

/// Makes `place` a copy of an environment's tree, unless it exists.
pub fn open(environment: &Path, place: &Path) -> Result<(), Error> {
    if place.exists() {
        return Ok(());
    }
    fits(environment)?;
    let failed = |error: io::Error| Error::io("the machine's tree", &error);
    let staged = place.with_extension("new");
    clear::remove(&staged).map_err(failed)?;
    std::fs::create_dir(&staged).map_err(failed)?;
    copy(environment, &staged)?;
    furnish(&staged).map_err(failed)?;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&staged, mode).map_err(failed)?;
    std::fs::rename(&staged, place).map_err(failed)
}

/// Refuses an environment for another processor, judged by its shell. Without a shell it is
/// accepted: its programs fail when they are started.
fn fits(environment: &Path) -> Result<(), Error> {
    let theirs = shell(environment);
    match theirs.as_deref().and_then(machine) {
        Some(found) if found != OWN_MACHINE => Err(Error::unsupported(format!(
            "the environment's programs are for another processor (ELF machine {found})"
        ))
        .hint("proot emulates nothing: choose an environment of this host's architecture")),
        _ => Ok(()),
    }
}

/// The first bytes of a tree's shell; symbolic links are resolved inside the tree.
fn shell(environment: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(environment, flags, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(top, "bin/sh", flags, Mode::empty(), resolve).ok()?;
    let mut start = Vec::new();
    let mut file = std::fs::File::from(file).take(64);
    file.read_to_end(&mut start).ok()?;
    Some(start)
}

/// The ELF machine number of a file, if it is an ELF file.
fn machine(start: &[u8]) -> Option<u16> {
    let little = start.get(5) == Some(&1);
    let bytes: [u8; 2] = start.get(18..20)?.try_into().ok()?;
    start.starts_with(b"\x7fELF").then(|| match little {
        true => u16::from_le_bytes(bytes),
        false => u16::from_be_bytes(bytes),
    })
}

/// Copies a tree without the created directories. Blocks are shared (reflink) where the file system
/// supports it.
fn copy(environment: &Path, staged: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::io("copying the environment", &error);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(environment).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !MADE.iter().any(|(made, _)| name == *made) {
            entries.push(name);
        }
    }
    if entries.is_empty() {
        return Ok(());
    }
    let output = Command::new("cp")
        .args(["-a", "--reflink=auto", "-t"])
        .arg(staged)
        .arg("--")
        .args(&entries)
        .current_dir(environment)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    if said.contains("Permission denied") && !rustix::process::geteuid().is_root() {
        return copy_mapped(environment, staged, &entries);
    }
    Err(complaint("cp", &output))
}

/// Copies a tree with files of an unprivileged user's subordinate ids, which the user can read only
/// as root of a user namespace. In the copy everything belongs to the user.
fn copy_mapped(environment: &Path, staged: &Path, entries: &[OsString]) -> Result<(), Error> {
    let failed = |error: io::Error| Error::io("copying the environment", &error);
    ids::check(rustix::process::geteuid().as_raw()).map_err(|lacking| {
        let message =
            format!("copying the environment: some of its files cannot be read: {lacking}");
        Error::unavailable(message).hint(hint![host(lacking.fix())])
    })?;
    let mut reader = Command::new("unshare")
        .args(["--map-root-user", "--map-auto", "--"])
        .args(["tar", "-cf", "-", "--xattrs", "-C"])
        .arg(environment)
        .arg("--")
        .args(entries)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let read = reader.stdout.take().map_or(Stdio::null(), Stdio::from);
    let writer = Command::new("tar")
        .args(["-xpf", "-", "--no-same-owner", "--overwrite", "-C"])
        .arg(staged)
        .env("LC_ALL", "C")
        .stdin(read)
        .output();
    let reader = reader.wait_with_output().map_err(failed)?;
    let writer = writer.map_err(failed)?;
    for (name, output) in [("reading it", &reader), ("writing it", &writer)] {
        if !output.status.success() {
            return Err(complaint(name, output));
        }
    }
    Ok(())
}

fn complaint(who: &str, output: &Output) -> Error {
    let said = String::from_utf8_lossy(&output.stderr);
    let line = ids::plainly(said.lines().next().unwrap_or("failed"));
    let line: String = line.chars().take(SAID).collect();
    let message = format!("copying the environment: {who}: {line}");
    match said.contains("No space left") {
        true => Error::limit(message),
        false => Error::unavailable(message),
    }
}

/// Makes the directories that are not copied.
fn furnish(staged: &Path) -> io::Result<()> {
    for (name, mode) in MADE {
        let dir = staged.join(name);
        std::fs::create_dir(&dir)?;
        // Entries inside first: afterwards the mode may forbid it.
        if name == "dev" {
            DEVICES
                .iter()
                .try_for_each(|device| std::fs::File::create(dir.join(device)).map(drop))?;
            ["pts", "shm"]
                .iter()
                .try_for_each(|name| std::fs::create_dir(dir.join(name)))?;
            LINKS
                .iter()
                .try_for_each(|(name, to)| symlink(to, dir.join(name)))?;
        }
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode))?;
    }
    std::fs::create_dir_all(staged.join(BASELINE))?;
    std::fs::File::create(staged.join(PROGRAM))?;
    match std::fs::create_dir(staged.join(WORKSPACE)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    name_servers(staged)
}

/// Copies the host's name servers into the tree. `/etc` is the environment's: symbolic links are
/// not followed.
fn name_servers(staged: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    match std::fs::File::open(Path::new("/etc").join(RESOLVER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?.take(RESOLVER_BYTES).read_to_end(&mut text)?,
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let etc = match rustix::fs::openat(CWD, staged.join("etc"), flags, Mode::empty()) {
        // An environment without `/etc` does not resolve names.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            return Ok(());
        }
        other => other?,
    };
    match rustix::fs::unlinkat(etc.as_fd(), RESOLVER, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(etc.as_fd(), RESOLVER, flags, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::ErrorKind;

    /// An ELF file's first bytes, little-endian, for a processor.
    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes.resize(64, 0);
        bytes
    }

    #[test]
    fn a_tree_of_another_processor_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("bin")).expect("a tree");
        // Neither of the two processors that we are built for.
        std::fs::write(tree.join("bin/busybox"), elf(0xf7)).expect("a program");
        symlink("/bin/busybox", tree.join("bin/sh")).expect("a link");
        let error = open(&tree, &dir.path().join("root")).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(!dir.path().join("root").exists());
        std::fs::write(tree.join("bin/busybox"), "#!/nothing\n").expect("a script");
        open(&tree, &dir.path().join("root")).expect("made");
    }

    #[test]
    fn links_of_an_environment_lead_nothing_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, away) = (dir.path().join("tree"), dir.path().join("away"));
        for place in [&tree, &away] {
            std::fs::create_dir(place).expect("a directory");
        }
        for name in ["dev", "etc", "run", "tmp", "proc", "sys", "workspace"] {
            symlink(&away, tree.join(name)).expect("a link");
        }
        let root = dir.path().join("root");
        open(&tree, &root).expect("made");
        let left = std::fs::read_dir(&away).expect("a directory").count();
        assert_eq!(left, 0, "something was written through a link");
        assert!(root.join("dev/null").is_file() && root.join(PROGRAM).is_file());
        assert!(!root.with_extension("new").exists());
    }

    #[test]
    fn a_copy_shares_no_file_with_its_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("etc")).expect("a tree");
        std::fs::write(tree.join("etc/file"), "first").expect("a file");
        let root = dir.path().join("root");
        open(&tree, &root).expect("made");
        std::fs::write(root.join("etc/file"), "second").expect("changed");
        // An existing copy is not changed.
        open(&tree, &root).expect("found");
        let read = |top: &Path| std::fs::read_to_string(top.join("etc/file")).expect("a file");
        assert_eq!(
            (read(&tree), read(&root)),
            ("first".into(), "second".into())
        );
    }
}
