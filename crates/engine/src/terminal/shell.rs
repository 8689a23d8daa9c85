//! Starts shells with our integration, which reports commands and directories.

use super::Terminals;
use crate::admission::{Follow, command};
use crate::driver;
use crate::guest::Guest;
use bytes::Bytes;
use futures_util::stream::StreamExt as _;
use motu_core::exec::{ExecRequest, TtySize};
use motu_core::files::{GuestPath, WriteOptions};
use motu_core::terminal::OpenTerminal;
use motu_core::{Error, ErrorKind, Program, Result};
use motu_terminal::Nonce;
use motu_terminal::integration::{InjectedFile, Injection, Shell, ShellRequest, Startup};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The directory of our files in a machine: outside of the user's, owned by root.
const DIR: &str = "/run/motu/terminal";
const DEFAULT_SHELL: &str = "bash";
/// Shells that are suggested if the wanted one is missing.
const SHELLS: [&str; 6] = ["bash", "zsh", "fish", "dash", "ash", "sh"];
const SHELL_DIRS: [&str; 4] = ["/bin", "/usr/bin", "/usr/local/bin", "/sbin"];

/// A shell that can be started.
#[derive(Debug)]
pub struct Plan {
    /// The command as requested.
    pub command: Vec<String>,
    /// The word that signs its marks.
    pub nonce: Option<Nonce>,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    files: Vec<InjectedFile>,
}

impl Terminals {
    /// Plans the shell of a request.
    pub(super) fn plan_shell(
        &self,
        request: &OpenTerminal,
        place: &driver::Handle,
    ) -> Result<Plan> {
        let mut words = request.command.clone();
        if words.is_empty() {
            words.push(DEFAULT_SHELL.to_string());
        }
        let mut env = BTreeMap::from([
            ("TERM".to_string(), "xterm-256color".to_string()),
            ("LANG".to_string(), "C.UTF-8".to_string()),
        ]);
        let mut plan = Plan {
            argv: words.clone(),
            command: words,
            nonce: None,
            env: BTreeMap::new(),
            files: Vec::new(),
        };
        if let Some((shell, startup)) = integrated(&plan.command, request.user_files) {
            let nonce = Nonce::random()
                .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
            // On the host itself the files go to the daemon's private directory.
            let dir = match place.sandbox().on_host_files() {
                true => self.sandboxes.shared.home.terminals().join("integration"),
                false => PathBuf::from(DIR),
            };
            let injection = Injection::new(
                &ShellRequest {
                    shell,
                    program: &plan.command[0],
                    startup,
                    dir: &dir,
                    zdotdir: request.env.get("ZDOTDIR").map(String::as_str),
                },
                &nonce,
            );
            env.extend(request.env.clone());
            env.extend(injection.env);
            plan.argv = injection.argv;
            plan.files = injection.files;
            plan.nonce = Some(nonce);
        } else {
            env.extend(request.env.clone());
        }
        plan.env = env;
        Ok(plan)
    }

    /// Starts the shell on a terminal.
    pub(super) async fn start_shell(
        &self,
        request: &OpenTerminal,
        plan: &Plan,
        guest: &Guest,
        tag: &str,
        size: TtySize,
    ) -> Result<()> {
        let exec = ExecRequest {
            program: Program {
                command: plan.argv.clone(),
                workdir: request.cwd.clone(),
                env: plan.env.clone(),
                user: request.user.clone(),
                stdin: true,
                ..Program::default()
            },
            tty: Some(size),
            no_timeout: true,
            tag: Some(tag.to_string()),
            ..ExecRequest::default()
        };
        let start = command(&self.sandboxes.config, exec, Follow::Background)?;
        for file in &plan.files {
            place_file(guest, file).await?;
        }
        match guest.start_background(start).await {
            Ok(_) => Ok(()),
            Err(error) if request.command.is_empty() && error.kind == ErrorKind::Invalid => {
                Err(no_shell(guest, error).await)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a command is a shell we can integrate, and how it starts.
fn integrated(command: &[String], user_files: bool) -> Option<(Shell, Startup)> {
    let shell = Shell::of(command.first()?)?;
    let usual = match user_files {
        true => Startup::User,
        false => Startup::Bare,
    };
    let startup = match command.get(1).map(String::as_str) {
        None => usual,
        Some("-i") => usual,
        Some("-l" | "--login") => Startup::Login,
        Some(_) => return None,
    };
    (command.len() <= 2).then_some((shell, startup))
}

/// Writes one of our files, unless it exists with the same size.
async fn place_file(guest: &Guest, file: &InjectedFile) -> Result<()> {
    let path = guest_path(&file.path)?;
    let there = guest.stat(&path, false).await;
    if there.is_ok_and(|entry| entry.size_bytes == file.contents.len() as u64) {
        return Ok(());
    }
    if let Some(parent) = file.path.parent() {
        guest.mkdir(&guest_path(parent)?, Some(0o755)).await?;
    }
    let contents = Bytes::from_static(file.contents.as_bytes());
    let options = WriteOptions {
        mode: Some(0o644),
        user: None,
        ..WriteOptions::default()
    };
    let content = futures_util::stream::once(async move { Ok(contents) });
    guest.write(&path, options, content.boxed()).await?;
    Ok(())
}

fn guest_path(path: &Path) -> Result<GuestPath> {
    use std::os::unix::ffi::OsStrExt as _;
    GuestPath::new(Bytes::copy_from_slice(path.as_os_str().as_bytes()))
}

/// Suggests the shells that exist.
async fn no_shell(guest: &Guest, error: Error) -> Error {
    let mut found = Vec::new();
    for shell in SHELLS {
        for dir in SHELL_DIRS {
            let Ok(path) = guest_path(&Path::new(dir).join(shell)) else {
                continue;
            };
            if guest.stat(&path, true).await.is_ok() {
                found.push(shell);
                break;
            }
        }
    }
    if found.is_empty() || found.contains(&DEFAULT_SHELL) {
        // No shell was found at all: the error has another cause.
        return error;
    }
    let first = found[0];
    Error::invalid(format!("there is no {DEFAULT_SHELL} in this environment"))
        .hint(format!(
            "it has: {}; open the session with `command` [\"{first}\"], or in an environment with \
             {DEFAULT_SHELL}",
            found.join(", ")
        ))
        .details(serde_json::json!({ "shells": found }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_shell_is_integrated() {
        let words =
            |words: &[&str]| -> Vec<String> { words.iter().map(|word| word.to_string()).collect() };
        let how = |command: &[&str]| integrated(&words(command), false);
        assert_eq!(how(&["bash"]), Some((Shell::Bash, Startup::Bare)));
        assert_eq!(
            how(&["/usr/bin/zsh", "-l"]),
            Some((Shell::Zsh, Startup::Login))
        );
        assert_eq!(how(&["bash", "-c", "true"]), None);
        assert_eq!(how(&["bash", "script"]), None);
        assert_eq!(how(&["python3"]), None);
        let user = integrated(&words(&["fish"]), true);
        assert_eq!(user, Some((Shell::Fish, Startup::User)));
    }
}
