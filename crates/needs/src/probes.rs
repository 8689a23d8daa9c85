//! What the runtimes of this host can do, asked once for all tests.
//!
//! `motu doctor` makes a machine of each runtime to learn whether it works. Hundreds of tests ask that first, each in a
//! state directory of its own; here one answer serves all, until the host reboots or the program changes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What virtual machines are made from, and what takes longest of the first one in a state directory.
const SHELVES: [&str; 4] = ["kernels", "initramfs", "images", "templates"];
/// What a state directory knows of gVisor once it has been tried there.
const GVISOR: &str = "cache/gvisor/probed";

/// The directory of everything that tests share, in the target directory.
pub fn shared() -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-home");
    std::fs::create_dir_all(&place)
        .and_then(|()| place.canonicalize())
        .unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

/// The state directory in which runtimes are tried.
pub fn tried() -> PathBuf {
    shared().join("tried")
}

/// The right to try runtimes in the shared directory, until it is dropped. Others wait for the answer instead of making
/// machines beside this one's.
///
/// # Panics
///
/// When the lock cannot be had.
pub fn alone() -> File {
    let lock = shared().join("tried.lock");
    let taken = File::create(&lock).and_then(|file| file.lock().map(|()| file));
    taken.unwrap_or_else(|error| panic!("{}: {error}", lock.display()))
}

/// The answer of `motu doctor --json` on this host, for a caller with the test runner's rights.
///
/// # Panics
///
/// When the program cannot be run.
pub fn doctor(motu: &Path) -> String {
    ask(motu).unwrap_or_else(|error| panic!("{} doctor: {error}", motu.display()))
}

/// Lets a state directory that is new know what was found out in the shared one. Without an answer there it asks itself.
pub fn warm(home: &Path) {
    let (known, own) = (tried().join(GVISOR), home.join(GVISOR));
    if !known.exists() || own.exists() {
        return;
    }
    let copied = std::fs::create_dir_all(own.parent().unwrap_or(home))
        .and_then(|()| std::fs::copy(&known, &own));
    if let Err(error) = copied {
        panic!("{}: {error}", own.display());
    }
}

/// Lets a state directory that is new make virtual machines from the kernel, the images and the templates that others
/// have made already. What is made from them stays its own.
///
/// # Panics
///
/// When a directory or a link cannot be made.
pub fn share_machines(home: &Path) {
    for shelf in SHELVES {
        let (all, own) = (
            shared().join("qemu/cache").join(shelf),
            home.join("cache").join(shelf),
        );
        let linked = std::fs::create_dir_all(&all)
            .and_then(|()| std::fs::create_dir_all(home.join("cache")))
            .and_then(|()| std::os::unix::fs::symlink(&all, &own));
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                panic!("{}: {error}", own.display())
            }
            _ => {}
        }
    }
}

/// The opposite, for a test that removes them.
///
/// # Panics
///
/// When a link cannot be replaced by a directory.
pub fn own_machines(home: &Path) {
    for shelf in SHELVES {
        let own = home.join("cache").join(shelf);
        let made = std::fs::remove_file(&own).and_then(|()| std::fs::create_dir(&own));
        made.unwrap_or_else(|error| panic!("{}: {error}", own.display()));
    }
}

fn ask(motu: &Path) -> io::Result<String> {
    let home = tried();
    std::fs::create_dir_all(&home)?;
    share_machines(&home);
    let _alone = alone();
    let key = key(motu)?;
    let file = shared().join("tried.json");
    if let Ok(known) = std::fs::read_to_string(&file)
        && let Some(answer) = known.strip_prefix(&key)
    {
        return Ok(answer.to_string());
    }
    let run = |args: &[&str]| {
        Command::new(motu)
            .args(args)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", &home)
            .env("MOTU_HOME", &home)
            .stdin(Stdio::null())
            .output()
    };
    // Its exit code says whether any machine can be made here, which the answer says, too.
    let answer = run(&["doctor", "--json"])?.stdout;
    run(&["serve", "--stop"])?;
    let answer = String::from_utf8(answer).map_err(io::Error::other)?;
    std::fs::write(&file, format!("{key}{answer}"))?;
    Ok(answer)
}

/// What the answer depends on, in one line.
fn key(motu: &Path) -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let program = std::fs::metadata(motu)?;
    let (boot, inode) = (boot.trim(), program.ino());
    Ok(format!(
        "{boot} {inode} {} {}\n",
        program.mtime(),
        program.mtime_nsec()
    ))
}
