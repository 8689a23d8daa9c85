//! Signals: to one process, to whoever is in front of a terminal, or to all that a command started.
//!
//! The agent signals one process, with two signals. So a short script does it, as root: everything
//! that a command starts has its mark among its variables, daemons included.

use super::table::Running;
use super::{Guest, ROOT, script};
use motu_link::message::{Failure, Signal, SignalForeground};
use motu_peer::answer::Failed;

/// The highest signal.
const MAX: i32 = 64;
const SIGKILL: i32 = 9;

/// Waits until the file has the number of a command that was started just now: before that, nothing
/// has its mark. A command that cannot begin is not waited for for long.
const BEGUN: &str = r#"n=0; while [ -n "$3" ] && [ ! -s "$3" ] && [ $n -lt 50 ]; do n=$((n + 1)); sleep 0.1; done
"#;

/// Signals everything with a mark. What is killed may be forking: it is looked for until there is
/// nothing.
const TREE: &str = r#"n=0; f=1
while [ -n "$f" ] && [ $n -lt 50 ]; do
  f=; n=$((n + 1))
  for p in $(grep -lF "MOTU_PROCESS=$2" /proc/[0-9]*/environ 2>/dev/null); do
    p=${p#/proc/}; kill -"$1" "${p%/environ}" 2>/dev/null && f=1
  done
  [ "$1" = 9 ] || break
done; exit 0"#;

/// Signals a process, or the one whose number is in a file.
const ONE: &str = r#"p=$2; [ -z "$3" ] || read -r p <"$3" || exit 3; kill -"$1" "$p""#;

/// Signals the foreground process group of the terminal of a process.
const FRONT: &str = r#"read -r s <"/proc/$2/stat" || exit 3; s=${s##*) }; set -- "$1" $s; [ "$7" -gt 0 ] && kill -"$1" "-$7""#;

impl Guest {
    pub(super) async fn signal(&self, signal: Signal) -> Result<(), Failed> {
        let process = self.table.find(signal.process)?;
        self.send(&process, signal.signal, signal.tree).await
    }

    pub(super) async fn send(&self, to: &Running, signal: i32, tree: bool) -> Result<(), Failed> {
        let number = checked(signal)?;
        // What has ended itself may have left children.
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

    /// Signals everything that a command has started.
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

    /// Ends everything that a command has started; what cannot be done is only told to operators.
    pub(super) async fn kill_tree(&self, process: &Running) {
        let file = process.pid_file().unwrap_or_default();
        self.kill_marked(&process.about.mark, &file).await;
    }

    /// The same for a command of which only the mark is known, and perhaps where its number will be.
    pub(super) async fn kill_marked(&self, mark: &str, file: &str) {
        if let Err(failed) = self.signal_marked((mark, file), SIGKILL).await {
            let reason = failed.message;
            tracing::warn!(id = self.id, reason, "a command may run on");
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
