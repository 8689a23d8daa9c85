//! Persistent terminals.
//!
//! A shell is a process on a terminal in the machine, found by its tag. The
//! machine keeps its output; a cursor is an offset into it.

use super::Workspaces;
use super::plain;
use super::ring::{self, Enough};
use super::room::in_words;
use crate::admission::{Follow, command};
use crate::guest::Guest;
use crate::shown::{self, Pace};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use motu_core::exec::{
    AttachFrom, ExecEvent, ExecInput, ExecRequest, ExecSession, Process, Selector, TtySize,
};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Program, Result, id, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const COLS: u16 = 120;
const ROWS: u16 = 30;
/// How long a read may wait for silence.
const PATIENCE: Duration = Duration::from_secs(30);
/// bash where there is one.
const SCRIPT: &str = "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi";
/// How long a closed shell may take to end before it is killed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

fn tag(shell: &str) -> String {
    format!("shell-{shell}")
}

/// The last bytes before a cursor, as far as they are still there.
async fn before(guest: &Guest, shell: &str, cursor: u64, most: usize) -> Result<Vec<u8>> {
    let begin = cursor.saturating_sub(most as u64);
    if begin == cursor {
        return Ok(Vec::new());
    }
    let from = AttachFrom::Offsets {
        stdout: begin,
        stderr: 0,
    };
    let enough = Enough {
        max_bytes: most,
        idle: None,
        patience: PATIENCE,
    };
    let part = ring::read(guest, &tag(shell), from, enough).await?.stdout;
    let first = part.end - part.bytes.len() as u64;
    let count = cursor.saturating_sub(first).min(part.bytes.len() as u64);
    Ok(part.bytes[..count as usize].to_vec())
}

impl Workspaces {
    pub(super) async fn new_shell(&self, id: &WorkspaceId, request: OpenShell) -> Result<Shell> {
        let (room, handle) = self.room(id).await?;
        let size = TtySize {
            cols: request.cols.unwrap_or(COLS),
            rows: request.rows.unwrap_or(ROWS),
        };
        check_size(size)?;
        let shells = self.shells(id).await?;
        let open = shells.iter().filter(|shell| shell.state == "running");
        let (open, most) = (open.count() as u64, limits::SHELLS);
        if open >= most.max {
            return Err(
                Error::limit(format!("{open} shells are open; that is {}", most.name))
                    .hint("close some"),
            );
        }
        let cwd = request.cwd.unwrap_or_else(|| self.workdir(&handle));
        let mut env = BTreeMap::from([("TERM".to_string(), "xterm-256color".to_string())]);
        env.extend(request.env);
        env.extend(room.secrets.environment(&request.secret_env)?);
        let shell_id = format!("sh-{}", id::random_name(8));
        let exec = ExecRequest {
            program: Program {
                workdir: Some(cwd.clone()),
                user: request.user,
                env,
                stdin: true,
                ..Program::shell(SCRIPT)
            },
            tty: Some(size),
            no_timeout: true,
            tag: Some(tag(&shell_id)),
            ..ExecRequest::default()
        };
        let start = command(&self.sandboxes.config, exec, Follow::Background)?;
        let guest = handle.guest().map_err(in_words)?;
        let started = match guest.start_background(start).await {
            Ok(started) => started,
            Err(error) => return Err(in_words(handle.explain_soon(error).await)),
        };
        let shell = Shell {
            workspace_id: id.clone(),
            shell_id,
            state: "running".to_string(),
            cwd,
            size,
            pid: Some(started.pid),
            exit_code: None,
            started_at: Timestamp::now(),
        };
        self.sandboxes.shared.store.put_shell(&shell).await?;
        Ok(shell)
    }

    pub(super) async fn shells(&self, id: &WorkspaceId) -> Result<Vec<Shell>> {
        let (_, handle) = self.room(id).await?;
        let mut shells = self.sandboxes.shared.store.shells(id).await?;
        let processes = match handle.guest() {
            Ok(guest) => guest.processes().await?,
            Err(_) => Vec::new(),
        };
        for shell in &mut shells {
            let tag = tag(&shell.shell_id);
            match processes.iter().find(|process| process.tag == tag) {
                Some(process) => note(shell, process),
                None => shell.state = "ended".to_string(),
            }
        }
        Ok(shells)
    }

    /// A shell that was opened, and the guest it is in.
    async fn shell(&self, id: &WorkspaceId, shell: &str) -> Result<(Shell, Arc<Guest>, Process)> {
        let (_, handle) = self.room(id).await?;
        let found = self.sandboxes.shared.store.shells(id).await?;
        let missing = || {
            Error::not_found(format!("workspace {id} has no shell {shell:?}"))
                .hint(hint![verb("list_shells"), " shows them"])
        };
        let mut found = found
            .into_iter()
            .find(|one| one.shell_id == shell)
            .ok_or_else(missing)?;
        let guest = handle.guest().map_err(in_words)?;
        let process = ring::find(&guest, &tag(shell))
            .await
            .map_err(|error| match error.kind {
                ErrorKind::NotFound => missing(),
                _ => error,
            })?;
        note(&mut found, &process);
        Ok((found, guest, process))
    }

    pub(super) async fn shell_output(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: ReadShell,
    ) -> Result<ShellOutput> {
        let max_chars = limits::SHELL_CHARS.resolve(request.max_chars)? as usize;
        let idle = match request.wait_for_idle_ms {
            Some(ms) => Some(Duration::from_millis(
                limits::SHELL_IDLE_MS.resolve(Some(ms))?,
            )),
            None => None,
        };
        let (room, _) = self.room(id).await?;
        let (_, guest, process) = self.shell(id, shell).await?;
        if request.cursor > process.stdout_bytes {
            return Err(Error::invalid(format!(
                "the cursor is {}, but only {} bytes were ever written",
                request.cursor, process.stdout_bytes
            ))
            .hint("use next_cursor of the last read, or 0"));
        }
        let from = AttachFrom::Offsets {
            stdout: request.cursor,
            stderr: 0,
        };
        let redactor = room.secrets.redactor();
        let enough = Enough {
            // A character has at most four bytes.
            max_bytes: (max_chars * 4).max(2 * redactor.longest()),
            idle,
            patience: PATIENCE,
        };
        let output = ring::read(&guest, &tag(shell), from, enough).await?.stdout;
        let first = output.end - output.bytes.len() as u64;
        let before = before(&guest, shell, request.cursor, redactor.longest()).await?;
        let mut chars = max_chars;
        let (text, used, truncated) = loop {
            let (raw, used) = output.text(chars);
            let truncated = used < output.bytes.len();
            let (text, held) = shown::part(&redactor, &before, &raw, truncated);
            if !truncated || held < raw.len() {
                break (text, used.saturating_sub(held), truncated);
            }
            // All of it may be the beginning of a secret: only more of it tells.
            chars *= 2;
        };
        let next_cursor = first + used as u64;
        let (after, _, _) = self.shell(id, shell).await?;
        Ok(ShellOutput {
            workspace_id: id.clone(),
            shell_id: shell.to_string(),
            state: after.state,
            cursor: request.cursor,
            next_cursor,
            output: if request.plain {
                plain::text(&text)
            } else {
                text
            },
            truncated,
            lost: output.lost,
            plain: request.plain,
        })
    }

    pub(super) async fn write_to_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: WriteShell,
    ) -> Result<Shell> {
        let (found, guest, _) = self.running_shell(id, shell).await?;
        let mut input = request.input.into_bytes();
        if request.append_newline.unwrap_or(true) {
            input.push(b'\n');
        }
        guest.input(&tag(shell), Bytes::from(input)).await?;
        Ok(found)
    }

    async fn running_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
    ) -> Result<(Shell, Arc<Guest>, Process)> {
        let found = self.shell(id, shell).await?;
        if found.2.exited.is_some() {
            return Err(Error::conflict(format!("shell {shell} has ended"))
                .hint("open another one; what it wrote can still be read"));
        }
        Ok(found)
    }

    pub(super) async fn signal_in_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        signal: &str,
    ) -> Result<Shell> {
        let number = signal_number(signal)?;
        let (found, guest, _) = self.running_shell(id, shell).await?;
        // The terminal itself knows whom these are for.
        let key = match number {
            libc::SIGINT => Some(b"\x03"),
            libc::SIGQUIT => Some(b"\x1c"),
            libc::SIGTSTP => Some(b"\x1a"),
            _ => None,
        };
        match key {
            Some(key) => guest.input(&tag(shell), Bytes::from_static(key)).await?,
            None => {
                guest
                    .signal(Selector::Tag(tag(shell)), number, true)
                    .await?
            }
        }
        Ok(found)
    }

    pub(super) async fn size_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        size: TtySize,
    ) -> Result<Shell> {
        check_size(size)?;
        let (mut found, guest, _) = self.running_shell(id, shell).await?;
        guest.resize(Selector::Tag(tag(shell)), size).await?;
        found.size = size;
        self.sandboxes.shared.store.put_shell(&found).await?;
        Ok(found)
    }

    /// Live. What the machine still has of the output comes first: it makes the screen what it was.
    pub(super) async fn attach_to_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        size: TtySize,
    ) -> Result<ExecSession> {
        let (room, _) = self.room(id).await?;
        self.size_shell(id, shell, size).await?;
        let (_, guest, _) = self.shell(id, shell).await?;
        let enough = Enough {
            max_bytes: usize::MAX,
            idle: None,
            patience: PATIENCE,
        };
        let past = ring::read(&guest, &tag(shell), AttachFrom::Oldest, enough).await?;
        let from = AttachFrom::Offsets {
            stdout: past.stdout.end,
            stderr: 0,
        };
        let session = guest.attach(Selector::Tag(tag(shell)), from).await?;
        let replay = Bytes::from(plain::without_questions(&past.stdout.bytes));
        let replay = stream::once(async move { Ok(ExecEvent::Stdout(replay)) });
        let input = leaving_alone(session.input);
        // A program that draws the whole screen draws it again for the new size.
        let _ = input.send(ExecInput::Resize(size)).await;
        Ok(ExecSession::new(
            room.secrets
                .redacted(replay.chain(session.events).boxed(), Pace::Terminal),
            input,
        ))
    }

    pub(super) async fn end_shell(&self, id: &WorkspaceId, shell: &str) -> Result<Shell> {
        let (mut found, guest, process) = self.shell(id, shell).await?;
        let selector = Selector::Tag(tag(shell));
        if process.exited.is_none() {
            guest.signal(selector.clone(), libc::SIGHUP, true).await?;
            let ended = self.until_ended(&guest, &selector);
            if tokio::time::timeout(CLOSE_GRACE, ended).await.is_err() {
                guest.signal(selector.clone(), libc::SIGKILL, true).await?;
                self.until_ended(&guest, &selector).await?;
            }
        }
        guest.forget(&tag(shell)).await?;
        found.state = "closed".to_string();
        found.pid = None;
        self.sandboxes.shared.store.delete_shell(&found).await?;
        Ok(found)
    }

    async fn until_ended(&self, guest: &Guest, selector: &Selector) -> Result<()> {
        let mut session = guest.attach(selector.clone(), AttachFrom::Newest).await?;
        while let Some(event) = session.events.next().await {
            event?;
        }
        Ok(())
    }

    /// Shells end with their machine.
    pub(super) async fn forget_shells(&self, id: &WorkspaceId) -> Result<()> {
        for shell in self.sandboxes.shared.store.shells(id).await? {
            self.sandboxes.shared.store.delete_shell(&shell).await?;
        }
        Ok(())
    }
}

/// Passes everything on but the end of the input: who leaves does not end the shell.
fn leaving_alone(shell: mpsc::Sender<ExecInput>) -> mpsc::Sender<ExecInput> {
    let (input, mut inputs) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(input) = inputs.recv().await {
            if input != ExecInput::CloseStdin && shell.send(input).await.is_err() {
                return;
            }
        }
    });
    input
}

fn note(shell: &mut Shell, process: &Process) {
    if let Some(exited) = &process.exited {
        shell.state = "ended".to_string();
        shell.exit_code = Some(exited.exit_code);
        shell.pid = None;
    }
}

fn check_size(size: TtySize) -> Result<()> {
    let fits = |value: u16| (2..=1000).contains(&value);
    if fits(size.cols) && fits(size.rows) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a terminal of {} columns and {} rows is not possible",
        size.cols, size.rows
    ))
    .hint("both are 2 to 1000"))
}

/// A signal by name, with or without SIG, or by number.
pub(crate) fn signal_number(name: &str) -> Result<i32> {
    let plain = name.to_ascii_uppercase();
    let plain = plain.strip_prefix("SIG").unwrap_or(&plain);
    let known = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("TERM", libc::SIGTERM),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("WINCH", libc::SIGWINCH),
    ];
    let by_name = known.iter().find(|(known, _)| *known == plain);
    let number = by_name
        .map(|(_, number)| *number)
        .or_else(|| plain.parse().ok());
    number
        .filter(|number| (1..=64).contains(number))
        .ok_or_else(|| {
            Error::invalid(format!("there is no signal {name:?}"))
                .hint("INT, TERM, HUP, QUIT, KILL, TSTP, CONT, USR1, USR2 or a number")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_several_spellings() {
        assert_eq!(signal_number("INT").unwrap(), libc::SIGINT);
        assert_eq!(signal_number("sigterm").unwrap(), libc::SIGTERM);
        assert_eq!(signal_number("9").unwrap(), 9);
        assert!(signal_number("NOPE").is_err());
        assert!(signal_number("0").is_err());
        assert!(signal_number("65").is_err());
    }
}
