//! Finds the host's `proot` and tests it.

use crate::sys;
use motu_core::Error;
use motu_core::report::{Check, Health};
use motu_packages::Need;
use seccompiler::BpfProgram;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "proot";
/// How long a trivial program may take under proot.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of proot's output is read.
const SAID: usize = 300;

/// How to install proot on this host.
fn fix() -> String {
    motu_packages::install(Need::Proot)
}

/// Finds the program, in the daemon's `PATH`.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(&path)
}

fn find_in(path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(NAME))
        .find(|file| runs(file))
}

fn runs(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The program, or an error with a hint.
pub fn require() -> Result<PathBuf, Error> {
    find().ok_or_else(|| Error::unavailable("there is no proot on this host").hint(fix()))
}

/// A proot command ready for its arguments: clean environment, no output, with the filters.
pub fn command(program: &Path, filters: &Arc<[BpfProgram; 2]>) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    sys::confine(&mut command, filters.clone());
    command
}

/// Looks for proot and has it run a program.
pub async fn check(filters: &Arc<[BpfProgram; 2]>) -> Check {
    let found = match find() {
        None => Err(("there is no proot on this host".to_string(), fix())),
        Some(program) => match tried(&program, filters).await {
            Ok(()) => Ok(program),
            Err(why) => Err((
                format!("{} does not work here: {why}", program.display()),
                "let the daemon trace its children: kernel.yama.ptrace_scope below 3, and \
                 ptrace in the filter of a container around it"
                    .to_string(),
            )),
        },
    };
    Check {
        name: NAME.to_string(),
        health: match found {
            Ok(_) => Health::Ok,
            Err(_) => Health::Failed,
        },
        detail: match &found {
            Ok(program) => format!(
                "{} works; it shows machines another tree and isolates nothing",
                program.display()
            ),
            Err((why, _)) => why.clone(),
        },
        fix: found.err().map(|(_, fix)| fix),
    }
}

/// Runs a trivial program under proot.
async fn tried(program: &Path, filters: &Arc<[BpfProgram; 2]>) -> Result<(), String> {
    let mut command = command(program, filters);
    command.args(["-0", "-r", "/", "-w", "/", "/bin/true"]);
    let mut command = tokio::process::Command::from(command);
    command.stderr(Stdio::piped()).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = done
        .map_err(|_| "it did not end in 10 s".to_string())?
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("it failed");
            Err(line.chars().take(SAID).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join(NAME);
        std::fs::write(&file, "").expect("a file");
        assert_eq!(find_in(dir.path().as_os_str()), None);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, mode).expect("its mode");
        assert_eq!(find_in(dir.path().as_os_str()), Some(file));
    }
}
