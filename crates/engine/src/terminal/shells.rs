//! Shells of workspaces: sessions that belong to a workspace and are read by a cursor.
//!
//! This module only translates. The session has the terminal, its output and its end; a shell adds
//! the workspace it belongs to, and ends for good with its machine.

use super::handle::Handle;
use super::known::Known;
use super::life::transcript_limits;
use super::owner::{Freshness, Owner};
use super::table::Entry;
use super::{Terminals, checks, plain};
use crate::blocking::blocking;
use crate::driver;
use crate::workspace::{Room, in_words};
use futures_util::stream::{BoxStream, StreamExt as _};
use motu_core::exec::{ExecEvent, Selector, TtySize};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::terminal::{ConfigureTerminal, OpenTerminal, TerminalId};
use motu_core::workspace::{OpenShell, ReadShell, Shell, ShellOutput, WorkspaceId, WriteShell};
use motu_core::{Error, ErrorKind, Result, id, limits};
use motu_terminal::output::MIN_BUDGET;
use motu_terminal::record::Transcript;
use motu_terminal::ring::Read;
use motu_terminal::session::{Input, Send, Shape};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const COLS: u16 = limits::SHELL_COLS.default as u16;
const ROWS: u16 = limits::SHELL_ROWS.default as u16;
/// How long a read waits for the output to become idle.
const PATIENCE: Duration = Duration::from_secs(30);
/// bash if it exists, else sh.
const SCRIPT: &str = "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi";
/// How long a closed shell may take to end before it is killed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// An open shell.
pub(super) struct Found {
    pub(super) session: TerminalId,
    entry: Arc<Entry>,
    known: Arc<Known>,
    place: Arc<driver::Handle>,
}

impl Terminals {
    pub(super) async fn new_shell(&self, id: &WorkspaceId, request: OpenShell) -> Result<Shell> {
        let (room, place) = self.workspaces.room(id).await?;
        // A stopped workspace is not started for a shell.
        place.guest().map_err(in_words)?;
        self.admit_shell(&room)?;
        let mut env = request.env;
        env.extend(room.secrets().environment(&request.secret_env)?);
        let open = OpenTerminal {
            session_id: format!("sh-{}", id::random_name(8)),
            sandbox_id: Some(id.clone()),
            of_workspace: true,
            cwd: Some(
                request
                    .cwd
                    .unwrap_or_else(|| self.workspaces.workdir(&place)),
            ),
            command: ["/bin/sh", "-c", SCRIPT].map(String::from).into(),
            env,
            user: request.user,
            size: Some(TtySize {
                cols: request.cols.unwrap_or(COLS),
                rows: request.rows.unwrap_or(ROWS),
            }),
            ..OpenTerminal::default()
        };
        let shell = open.session_id.clone();
        self.open(open).await.map_err(in_words)?;
        self.shell(id, &shell).await?.told(self).await
    }

    fn admit_shell(&self, room: &Room) -> Result<()> {
        let sessions = self.sessions.all();
        let rows = sessions
            .iter()
            .filter_map(|entry| Some(entry.known()?.row()));
        let open = rows.filter(|row| row.is_alive() && room.has_shell(row));
        let (open, most) = (open.count() as u64, limits::SHELLS);
        match open < most.max {
            true => Ok(()),
            false => Err(
                Error::limit(format!("{open} shells are open; that is {}", most.name))
                    .hint("close some"),
            ),
        }
    }

    pub(super) async fn shells(&self, id: &WorkspaceId) -> Result<Vec<Shell>> {
        let mut shells = Vec::new();
        for shell in self.found_shells(id).await? {
            shells.push(shell.told(self).await?);
        }
        shells.sort_by(|a, b| a.shell_id.cmp(&b.shell_id));
        Ok(shells)
    }

    async fn found_shells(&self, id: &WorkspaceId) -> Result<Vec<Found>> {
        let (room, place) = self.workspaces.room(id).await?;
        let found = |entry: Arc<Entry>| {
            let known = entry.known()?;
            let row = known.row();
            room.has_shell(&row).then(|| Found {
                session: row.session_id.clone(),
                entry,
                known,
                place: place.clone(),
            })
        };
        Ok(self.sessions.all().into_iter().filter_map(found).collect())
    }

    pub(super) async fn shell(&self, id: &WorkspaceId, shell: &str) -> Result<Found> {
        let mut found = self.found_shells(id).await?.into_iter();
        let found = found.find(|one| one.session.as_str() == shell);
        let found = found.ok_or_else(|| {
            Error::not_found(format!("workspace {id} has no shell {shell:?}"))
                .hint(hint![verb("list_shells"), " shows them"])
        })?;
        found.place.guest().map_err(in_words)?;
        Ok(found)
    }
}

impl Found {
    fn handle(&self, terminals: &Terminals) -> Result<Handle> {
        terminals.awake(&self.session, &self.entry)
    }

    pub(super) fn must_run(&self) -> Result<()> {
        match self.known.is_alive() {
            true => Ok(()),
            false => Err(Error::conflict(format!("shell {} has ended", self.session))
                .hint("open another one; what it wrote can still be read")),
        }
    }

    fn state(&self) -> &'static str {
        match self.known.is_alive() {
            true => "running",
            false => "ended",
        }
    }

    /// Describes the shell.
    async fn told(&self, terminals: &Terminals) -> Result<Shell> {
        let pid = match self.known.is_alive() {
            true => {
                let handle = self.handle(terminals)?;
                handle.ask(Freshness::Any, |owner| owner.pid).await?
            }
            false => None,
        };
        let row = self.known.row();
        Ok(Shell {
            workspace_id: row.sandbox_id.clone(),
            shell_id: row.session_id.to_string(),
            state: self.state().to_string(),
            cwd: row.opened_in.clone().unwrap_or_default(),
            size: row.size,
            pid: pid.filter(|_| row.end.is_none()),
            exit_code: row.end.as_ref().and_then(|end| end.exit_code),
            started_at: row.started_at,
        })
    }

    pub(super) async fn read(
        self,
        terminals: &Terminals,
        request: ReadShell,
    ) -> Result<ShellOutput> {
        let max_chars = limits::SHELL_CHARS.resolve(request.max_chars)? as usize;
        let idle = request.wait_for_idle_ms;
        let idle = idle.map(|ms| limits::SHELL_IDLE_MS.resolve(Some(ms)));
        let handle = self.handle(terminals)?;
        if let Some(ms) = idle.transpose()? {
            until_idle(&handle, Duration::from_millis(ms)).await?;
        }
        let cursor = request.cursor;
        // A UTF-8 character has at most four bytes.
        let (read, end) = self
            .bytes(terminals, &handle, cursor, max_chars * 4)
            .await?;
        if cursor > end {
            return Err(Error::invalid(format!(
                "the cursor is {cursor}, but only {end} bytes were ever written"
            ))
            .hint("use next_cursor of the last read, or 0"));
        }
        let (text, used) = plain::beginning(&read.bytes, max_chars);
        let next_cursor = read.from + used as u64;
        Ok(ShellOutput {
            workspace_id: self.known.place(),
            shell_id: self.session.to_string(),
            state: self.state().to_string(),
            cursor,
            next_cursor,
            output: match request.plain {
                true => plain::text(&text),
                false => text,
            },
            truncated: next_cursor < end,
            lost: read.from > cursor,
            plain: request.plain,
        })
    }

    /// At most `most` bytes from an offset, and the end of the output: from memory, or from the
    /// transcript if they are older.
    async fn bytes(
        &self,
        terminals: &Terminals,
        handle: &Handle,
        from: u64,
        most: usize,
    ) -> Result<(Read, u64)> {
        let look = move |owner: &mut Owner| {
            let session = &owner.session;
            (session.bytes(from, most), session.end(), owner.pen.clone())
        };
        let (read, end, pen) = handle.ask(Freshness::Any, look).await?;
        if let Some(read) = read {
            return Ok((read, end));
        }
        if let Some(pen) = pen {
            pen.reached().await;
        }
        let dir = terminals.sandboxes.shared.home.terminal(&self.session);
        let read = blocking(move || {
            let failed = |error| Error::io("cannot read the transcript", &error);
            let transcript = Transcript::open(&dir, transcript_limits()).map_err(failed)?;
            transcript.read(from, end, most).map_err(failed)
        });
        Ok((read.await?, end))
    }

    pub(super) async fn write(self, terminals: &Terminals, request: WriteShell) -> Result<Shell> {
        let mut input = request.input;
        if request.append_newline.unwrap_or(true) {
            input.push('\n');
        }
        self.type_in(terminals, input).await?;
        self.told(terminals).await
    }

    /// Types text; it has reached the machine when this returns.
    async fn type_in(&self, terminals: &Terminals, text: String) -> Result<()> {
        self.must_run()?;
        let send = Send {
            input: Input::Text(text),
            timeout: Duration::ZERO,
            shape: Shape {
                budget: MIN_BUDGET,
                raw: true,
            },
        };
        let handle = self.handle(terminals)?;
        let typed = handle.request(Freshness::Any, move |session, now| session.send(&send, now));
        typed.await.map(drop)
    }

    pub(super) async fn signal(self, terminals: &Terminals, signal: &str) -> Result<Shell> {
        let number = checks::signal_number(signal)?;
        self.must_run()?;
        match number {
            // Signal the foreground process group directly instead of typing Ctrl-C: gVisor's line
            // discipline does not notice it behind an unread line.
            libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP => self.signal_front(number).await?,
            _ => self.kill(number).await?,
        }
        self.told(terminals).await
    }

    async fn signal_front(&self, signal: i32) -> Result<()> {
        match self.known.tag() {
            Some(tag) => {
                let guest = self.place.guest().map_err(in_words)?;
                match guest.signal_foreground(&tag, signal).await {
                    // Without kernel support for the foreground group: signal everything started on
                    // the terminal.
                    Err(error) if error.kind == ErrorKind::Unsupported => self.kill(signal).await,
                    sent => sent,
                }
            }
            None => Ok(()),
        }
    }

    /// Signals everything that was started on the terminal.
    async fn kill(&self, signal: i32) -> Result<()> {
        match self.known.tag() {
            Some(tag) => {
                let guest = self.place.guest().map_err(in_words)?;
                guest.signal(Selector::Tag(tag), signal, true).await
            }
            None => Ok(()),
        }
    }

    pub(super) async fn resize(self, terminals: &Terminals, size: TtySize) -> Result<Shell> {
        self.must_run()?;
        let change = ConfigureTerminal {
            size: Some(size),
            ..ConfigureTerminal::default()
        };
        terminals.configure(&self.session, change).await?;
        self.told(terminals).await
    }

    pub(super) async fn close(self, terminals: &Terminals) -> Result<Shell> {
        if self.known.is_alive() {
            let mut events = watch(&self.handle(terminals)?).await?;
            self.kill(libc::SIGHUP).await?;
            let ended = async { while events.next().await.is_some() {} };
            // Processes that are left are killed with the session.
            let _ = tokio::time::timeout(CLOSE_GRACE, ended).await;
        }
        terminals.terminate(&self.session).await?;
        Ok(Shell {
            state: "closed".to_string(),
            pid: None,
            ..self.told(terminals).await?
        })
    }
}

/// Output from now on, until the session ends.
async fn watch(handle: &Handle) -> Result<BoxStream<'static, Result<ExecEvent>>> {
    let watch = |owner: &mut Owner| match owner.ended {
        Some(_) => futures_util::stream::empty().boxed(),
        None => owner.watchers.add(Vec::new()),
    };
    handle.ask(Freshness::Any, watch).await
}

/// Returns when the output has been idle for this long, or the session has ended.
async fn until_idle(handle: &Handle, idle: Duration) -> Result<()> {
    let mut events = watch(handle).await?;
    let patience = Instant::now() + PATIENCE;
    loop {
        let quiet = (Instant::now() + idle).min(patience);
        match tokio::time::timeout_at(quiet, events.next()).await {
            Ok(Some(Ok(_))) => {}
            _ => return Ok(()),
        }
    }
}
