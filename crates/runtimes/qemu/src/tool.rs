//! Programs of the host, run to their end while something is being built.

use crate::error::QemuError;
use motu_packages::ids::plainly;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where administrators' programs are when the daemon's path leaves them out.
const PLACES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// How much of what a failed program said is shown.
const TAIL: usize = 300;

/// A program of the host.
pub(crate) fn find(tool: &str) -> Result<PathBuf, QemuError> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&places)
        .chain(PLACES.iter().map(PathBuf::from))
        .map(|place| place.join(tool))
        .find(|path| path.is_file())
        .ok_or_else(|| QemuError::Tool {
            tool: tool.to_string(),
        })
}

/// A command with a small, predictable environment.
pub(crate) fn command(tool: &str) -> Result<Command, QemuError> {
    Ok(command_at(&find(tool)?))
}

/// A command that sees the owners an environment has inside. On the disk of an ordinary user these are the user and ids of
/// their range: a user namespace shows them as 0 and up.
pub(crate) fn mapped(tool: &str) -> Result<Command, QemuError> {
    if rustix::process::geteuid().is_root() {
        return command(tool);
    }
    let mut mapped = command("unshare")?;
    mapped.args(["--map-root-user", "--map-auto", "--"]);
    mapped.arg(find(tool)?);
    Ok(mapped)
}

/// A command to which everything that belongs to this user belongs to that one.
pub(crate) fn owned_by((uid, gid): (u32, u32), tool: &str) -> Result<Command, QemuError> {
    let mut owned = command("unshare")?;
    owned.arg(format!("--map-user={uid}"));
    owned.arg(format!("--map-group={gid}")).arg("--");
    owned.arg(find(tool)?);
    Ok(owned)
}

/// A command with that environment, for a program that was found already.
pub(crate) fn command_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE"] {
        match std::env::var_os(name) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .env("LC_ALL", "C")
        .env("PATH", PLACES.join(":"))
        .stdin(Stdio::null());
    command
}

/// Runs a command and returns what it printed.
pub(crate) fn run(mut command: Command) -> Result<String, QemuError> {
    let tool = Path::new(command.get_program())
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let done = command
        .output()
        .map_err(QemuError::io(format!("cannot run {tool}")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(QemuError::Failed {
        tool,
        tail: tail(&plainly(&said)),
    })
}

/// The end of a text, in one line.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.split_whitespace().collect();
    let line = lines.join(" ");
    let skipped = line.chars().count().saturating_sub(TAIL);
    line.chars().skip(skipped).collect()
}
