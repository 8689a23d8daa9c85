//! Removes a machine's files, whatever it has done to them.

use motu_host::record::Stat;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// proot's temporary directory; its files are named after its pid.
const TEMPORARY: &str = "/tmp";
const PREFIXES: [&str; 2] = ["proot-", "prooted-"];

/// Removes the contents of a directory, but not the directory. It may be missing.
pub fn empty(dir: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        remove(&entry?.path())?;
    }
    Ok(())
}

/// Removes a file or tree; it may be missing. A machine can nest directories without bound and
/// remove its own permissions, so this uses programs that handle both.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.is_dir() => return std::fs::remove_file(path),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    open_up(path)?;
    run("rm", &["-rf"], path)
}

/// Makes every directory of a tree writable for its owner.
pub fn open_up(path: &Path) -> io::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => run("chmod", &["-R", "u+rwX"], path),
    }
}

fn run(program: &str, flags: &[&str], path: &Path) -> io::Result<()> {
    let output = Command::new(program)
        .args(flags)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("failed");
    Err(io::Error::other(format!("{program}: {line}")))
}

/// Removes temporary files of a killed proot. If another process has its pid by now, they may be
/// that one's and are left alone. (A zombie cannot be another process.)
pub fn leftovers(pid: i32) -> io::Result<()> {
    if Stat::read(pid).is_some_and(|found| !found.zombie) {
        return Ok(());
    }
    for path in named_after(Path::new(TEMPORARY), pid)? {
        remove(&path)?;
    }
    Ok(())
}

fn named_after(dir: &Path, pid: i32) -> io::Result<Vec<PathBuf>> {
    use std::os::unix::fs::MetadataExt as _;
    let own = rustix::process::geteuid().as_raw();
    let starts = PREFIXES.map(|prefix| format!("{prefix}{pid}-"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = name
            .to_str()
            .is_some_and(|name| starts.iter().any(|start| name.starts_with(start)));
        if ours && entry.metadata().is_ok_and(|found| found.uid() == own) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn closed_directories_go_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let away = dir.path().join("away");
        std::fs::create_dir(&away).expect("a directory");
        std::fs::write(away.join("file"), "").expect("a file");
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("closed/in")).expect("a tree");
        symlink(&away, tree.join("closed/link")).expect("a link");
        let closed = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(tree.join("closed"), closed).expect("its mode");
        empty(&tree).expect("emptied");
        empty(&tree).expect("emptied before");
        assert_eq!(std::fs::read_dir(&tree).expect("a directory").count(), 0);
        assert!(away.join("file").exists());
    }

    #[test]
    fn only_files_of_that_process_are_its_leftovers() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["proot-42-a", "prooted-42-b", "proot-421-a", "other-42-a"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let mut found = named_after(dir.path(), 42).expect("a list");
        found.sort();
        let expected = ["proot-42-a", "prooted-42-b"].map(|name| dir.path().join(name));
        assert_eq!(found, expected);
    }
}
