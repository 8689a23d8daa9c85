//! What tests need of a host: the programs they may run, and how one says that the host lacks something else.
//!
//! The programs are the list that `tools/setup` installs from: it reads `tools/needs`. A test that runs an unlisted program fails on every machine, not only
//! where the program is missing.

pub mod probes;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// The list at build time.
const LIST: &str = include_str!("../../../tools/needs");
/// Directories to search besides the caller's `PATH`, which may lack `sbin`.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// One line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// A program's name, or the path of another file or directory.
    pub name: &'static str,
    /// A Debian package, or `REGISTRY:PACKAGE` with a pinned version; `-` if it is from elsewhere.
    pub package: &'static str,
}

/// The whole list.
pub fn list() -> impl Iterator<Item = Need> {
    LIST.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|word| !word.starts_with('#'))?;
        Some(Need {
            name,
            package: words.next().unwrap_or("-"),
        })
    })
}

/// A listed program of this host.
///
/// # Panics
///
/// When the program is not listed, or not installed.
#[track_caller]
pub fn find(program: &str) -> PathBuf {
    let Some(need) = list().find(|need| need.name == program) else {
        panic!("{program} is not in tools/needs: tests call only what tools/setup installs");
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(PLACES.iter().map(PathBuf::from))
        .map(|place| place.join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            let package = need.package;
            panic!("{program} is missing; `tools/setup test` installs it ({package})")
        })
}

/// What virtual machines of tests and benchmarks run on: `MOTU_TEST_ACCEL` (`kvm` or `tcg`), and
/// emulation, which works everywhere, where nobody says so.
pub fn accelerator() -> String {
    std::env::var("MOTU_TEST_ACCEL").unwrap_or_else(|_| "tcg".to_string())
}

/// A command of a listed program.
///
/// # Panics
///
/// As [`find`] does.
#[track_caller]
pub fn command(program: &str) -> Command {
    Command::new(find(program))
}

/// Reports a skipped test to people and programs. With `MOTU_NO_SKIP` set that is a failure, for
/// hosts on which everything should work.
///
/// # Panics
///
/// Where nothing may be skipped, or the file of skipped tests cannot be written.
pub fn skip(reason: &str) {
    println!("SKIP: {reason}");
    assert!(
        std::env::var_os("MOTU_NO_SKIP").is_none(),
        "MOTU_NO_SKIP is set, but: {reason}"
    );
    let Some(log) = std::env::var_os("MOTU_SKIP_LOG") else {
        return;
    };
    let written = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .and_then(|mut file| file.write_all(format!("{reason}\n").as_bytes()));
    if let Err(error) = written {
        panic!("cannot write {}: {error}", log.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_listed_once() {
        let mut names: Vec<&str> = list().map(|need| need.name).collect();
        assert!(names.contains(&"busybox") && names.contains(&"mmdebstrap"));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name is listed twice");
    }

    #[test]
    #[should_panic(expected = "no-such-program is not in tools/needs")]
    fn an_unlisted_program_is_refused() {
        command("no-such-program");
    }

    #[test]
    fn a_listed_program_runs() {
        assert!(
            command("sh")
                .args(["-c", "true"])
                .status()
                .is_ok_and(|status| status.success())
        );
    }
}
