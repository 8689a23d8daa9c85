//! Signals: to one process, to the foreground of a terminal, or to all processes of a command.
//!
//! The agent can send only two signals, to one process. So a short script does it, as root: all
//! processes of a command, daemons included, have its mark in their environment.

use super::table::Running;
use super::{Guest, ROOT, script};
use motu_link::message::{Failure, Signal, SignalForeground};
use motu_peer::answer::Failed;

/// The highest signal.
const MAX: i32 = 64;
const SIGKILL: i32 = 9;

/// Waits until the pid file of a new command is written: before that, nothing has its mark. The
/// wait is bounded, in case the command cannot start.
const BEGUN: &str = r#"n=0; while [ -n "$3" ] && [ ! -s "$3" ] && [ $n -lt 50 ]; do n=$((n + 1)); sleep 0.1; done
"#;

/// Signals everything with a mark. Processes may fork meanwhile, so it repeats until none is found.
const TREE: &str = r#"n=0; f=1
while [ -n "$f" ] && [ $n -lt 50 ]; do
  f=; n=$((n + 1))
  for p in $(grep -lF "MOTU_PROCESS=$2" /proc/[0-9]*/environ 2>/dev/null); do
    p=${p#/proc/}; kill -"$1" "${p%/environ}" 2>/dev/null && f=1
  done
  [ "$1" = 9 ] || break
done; exit 0"#;

/// Signals a process, by its pid or pid file.
const ONE: &str = r#"p=$2; [ -z "$3" ] || read -r p <"$3" || exit 3; kill -"$1" "$p""#;

/// Signals the foreground process group of a process's terminal.
const FRONT: &str = r#"read -r s <"/proc/$2/stat" || exit 3; s=${s##*) }; set -- "$1" $s; [ "$7" -gt 0 ] && kill -"$1" "-$7""#;

impl Guest {
    pub(super) async fn signal(&self, signal: Signal) -> Result<(), Failed> {
        let process = self.table.find(signal.process)?;
        self.send(&process, signal.signal, signal.tree).await
    }

    pub(super) async fn send(&self, to: &Running, signal: i32, tree: bool) -> Result<(), Failed> {
        let number = checked(signal)?;
        // An ended process may have left children.
        if to.has_ended().is_some() && !tree {
            return Err(Failed::new(Failure::NotFound, "the process has ended"));
        }
        if tree {
            return self.signal_tree(to, signal).await;
        }
        let pid = to.pid.to_string();
        let file = to.pid_file();
        let script = format!("{BEGUN}{ONE}");
        let args = [
            "-c",
            &script,
            "motu",
            &number,
            &pid,
            file.as_deref().unwrap_or_default(),
        ];
        self.scripted(&args).await
    }

    /// Signals all processes of a command.
    pub(super) async fn signal_tree(&self, to: &Running, signal: i32) -> Result<(), Failed> {
        let file = to.pid_file().unwrap_or_default();
        self.signal_marked((&to.about.mark, &file), signal).await
    }

    async fn signal_marked(&self, (mark, file): (&str, &str), signal: i32) -> Result<(), Failed> {
        let number = checked(signal)?;
        let script = format!("{BEGUN}{TREE}");
        self.scripted(&["-c", &script, "motu", &number, mark, file])
            .await
    }

    /// Kills all processes of a command; failures are only logged.
    pub(super) async fn kill_tree(&self, process: &Running) {
        let file = process.pid_file().unwrap_or_default();
        self.kill_marked(&process.about.mark, &file).await;
    }

    /// Like `kill_tree`, for a command of which only the mark and perhaps the pid file are known.
    pub(super) async fn kill_marked(&self, mark: &str, file: &str) {
        if let Err(failed) = self.signal_marked((mark, file), SIGKILL).await {
            let reason = failed.message;
            tracing::warn!(id = self.id, reason, "a command may still be running");
        }
    }

    pub(super) async fn signal_foreground(&self, signal: SignalForeground) -> Result<(), Failed> {
        let process = self.table.find(signal.process)?;
        if !process.about.pty {
            return Err(Failed::invalid("the process has no terminal"));
        }
        let number = checked(signal.signal)?;
        let pid = process.pid.to_string();
        self.scripted(&["-c", FRONT, "motu", &number, &pid]).await
    }

    async fn scripted(&self, args: &[&str]) -> Result<(), Failed> {
        let done = script::run(&self.envd, ROOT, ("/bin/sh", args)).await;
        let done = self.told(done).await?;
        match done.code {
            0 => Ok(()),
            _ => Err(Failed::new(
                Failure::NotFound,
                format!("the signal reached nobody: {}", done.said()),
            )),
        }
    }
}

fn checked(signal: i32) -> Result<String, Failed> {
    match (0..=MAX).contains(&signal) {
        true => Ok(signal.to_string()),
        false => Err(Failed::invalid(format!("{signal} is no signal"))),
    }
}
