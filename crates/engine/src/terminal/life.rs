//! Opens, adopts and ends sessions.
//!
//! A session is stored before its shell is started, and its end before the shell is killed. After a
//! crash at any point, the next daemon either knows the shell or knows that there is none.

use super::Terminals;
use super::answers;
use super::checks::{self, Wanted};
use super::forget;
use super::handle::Handle;
use super::known::Known;
use super::owner::{Begin, Freshness, Owner};
use super::shell::Plan;
use super::table::{Entry, missing};
use super::writer::{Files, Pen, Position};
use crate::blocking::blocking;
use crate::driver;
use crate::store::{TerminalEnd, TerminalRow, TerminalShell};
use crate::workspace::Workspaces;
use jiff::Timestamp;
use motu_core::exec::{Selector, TtySize};
use motu_core::sandbox::State;
use motu_core::terminal::*;
use motu_core::{Error, ErrorKind, Result, id, limits};
use motu_redaction::Patterns;
use motu_terminal::record::{CastHeader, Recorder, Transcript, TranscriptLimits};
use motu_terminal::redact::Values;
use motu_terminal::session::{Carried, Config, Session};
use motu_terminal::{Nonce, Size};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the transcript that are replayed to the screen of an adopted session.
const TAIL_BYTES: usize = 1024 * 1024;
/// How long to wait for a shell's first prompt before its state is reported anyway.
const FIRST_PROMPT: Duration = Duration::from_secs(10);
/// Segments that a transcript is divided into.
const SEGMENTS: u64 = 8;

impl Terminals {
    pub(super) async fn open(&self, mut request: OpenTerminal) -> Result<TerminalOpened> {
        let id = TerminalId::parse(&request.session_id)?;
        let place = request.sandbox_id.take();
        request.sandbox_id = place
            .map(|word| self.workspaces.resolve(word))
            .transpose()?;
        let wanted = checks::wanted(&request)?;
        loop {
            let entry = self.sessions.entry(&id);
            let turn = entry.turn.lock().await;
            if !self.sessions.is(&id, &entry) {
                // The entry was removed while we waited for its turn: start over with a new one.
                continue;
            }
            let opened = self.open_entry(&id, &entry, &request, wanted).await;
            drop(turn);
            self.sessions.leave(&id, &entry);
            self.forget_sessions();
            return opened;
        }
    }

    async fn open_entry(
        &self,
        id: &TerminalId,
        entry: &Arc<Entry>,
        request: &OpenTerminal,
        wanted: Wanted,
    ) -> Result<TerminalOpened> {
        if entry.known().is_some_and(|known| known.is_terminated()) {
            // The name may be used again: delete the terminated session's files first.
            forget::let_go(&self.sandboxes.shared, id, entry).await?;
        }
        let known = entry.known();
        let row = known.as_ref().map(|known| known.row());
        if let Some(row) = row.as_ref().filter(|row| row.is_alive()) {
            return self.found(id, row, request).await;
        }
        let _opening = self
            .sessions
            .admit(id, entry, &self.sandboxes.config.quota)?;
        let before = row.as_ref().map(|row| &row.sandbox_id);
        let place = self.terminal_place(request, before).await?;
        let plan = self.plan_shell(request, &place)?;
        let handle = self
            .begin_session(id, entry, request, wanted, &place, &plan)
            .await;
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                // Restore the previous row. What is known of it is stored anew: nothing more is
                // heard of the one that was given up.
                let store = &self.sandboxes.shared.store;
                let before = row.map(|row| self.known(TerminalRow::clone(&row)));
                entry.unset(before.clone());
                match before {
                    Some(known) => known.change(|_| {}).await?,
                    None => store.delete_terminal(id).await?,
                }
                return Err(place.explain_soon(error).await);
            }
        };
        let begun = handle.request(Freshness::Any, |session, now| {
            session.begin(FIRST_PROMPT, now)
        });
        // An error means that the shell has ended already; its state is reported below.
        let _ = begun.await;
        let terminal = handle.ask(Freshness::New, |owner| answers::terminal(owner));
        Ok(TerminalOpened {
            created: true,
            terminal: terminal.await?,
        })
    }

    /// An existing session; the request's settings are applied to it.
    async fn found(
        &self,
        id: &TerminalId,
        row: &TerminalRow,
        request: &OpenTerminal,
    ) -> Result<TerminalOpened> {
        if let Some(place) = &request.sandbox_id
            && *place != row.sandbox_id
        {
            return Err(Error::conflict(format!(
                "session {id} is in {}, not in {place}",
                row.sandbox_id
            ))
            .hint("use another session_id"));
        }
        let change = ConfigureTerminal {
            description: request.description.clone(),
            prompt_regex: request.prompt_regex.clone(),
            quiescence_ms: request.quiescence_ms,
            size: request.size,
        };
        Ok(TerminalOpened {
            created: false,
            terminal: self.configure(id, change).await?,
        })
    }

    /// The row of a session, with its directory.
    fn known(&self, row: TerminalRow) -> Arc<Known> {
        let shared = &self.sandboxes.shared;
        let dir = shared.home.terminal(&row.session_id);
        Known::new(row, &shared.store, &dir)
    }

    /// Stores a session, starts its shell and its task.
    async fn begin_session(
        &self,
        id: &TerminalId,
        entry: &Arc<Entry>,
        request: &OpenTerminal,
        wanted: Wanted,
        place: &Arc<driver::Handle>,
        plan: &Plan,
    ) -> Result<Handle> {
        let guest = place.guest()?;
        let sandbox = place.sandbox();
        let tag = format!("term-{}", id::random_name(12));
        let row = TerminalRow {
            session_id: id.clone(),
            sandbox_id: sandbox.sandbox_id,
            runtime: sandbox.runtime,
            isolation: sandbox.isolation,
            command: plan.command.clone(),
            shell: Some(TerminalShell {
                tag: tag.clone(),
                nonce: plan.nonce.as_ref().map(|nonce| nonce.as_str().to_string()),
            }),
            size: wanted.size,
            started_at: Timestamp::now(),
            opened_in: request.cwd.clone().filter(|_| request.of_workspace),
            description: wanted.description,
            prompt_regex: request.prompt_regex.clone().filter(|text| !text.is_empty()),
            quiescence_ms: wanted.quiescence_ms,
            end: None,
            terminated: false,
        };
        if let Some(before) = entry.known() {
            // The name is the new shell's from here on, whatever becomes known of the one before.
            before.retire().await;
        }
        let store = &self.sandboxes.shared.store;
        store.put_terminal(&row).await?;
        let dir = self.sandboxes.shared.home.make_terminal(id)?;
        let header = header(&row);
        let writer = self.sessions.writer()?;
        // Wait for pending output of the previous shell, which goes to the same files.
        writer.reached().await;
        let (pen, offset) = blocking({
            move || {
                let files = open_files(&dir, &header)?;
                let end = files.recorder.transcript().end();
                Ok((Pen::new(writer, files), end))
            }
        })
        .await?;
        self.start_shell(request, plan, &guest, &tag, wanted.size)
            .await?;
        let config = Config {
            offset,
            nonce: plan.nonce.clone(),
            prompt_regex: wanted.prompt_regex,
            ..config(&row, hidden(&self.workspaces, &row).await)
        };
        let known = self.known(row);
        known.describe().await;
        let (handle, asks) = Handle::new();
        let owner = Owner::new(Begin {
            session: Session::new(config),
            known: known.clone(),
            place: Some(place.clone()),
            pen: Some(pen),
            machine_from: 0,
            found: false,
        });
        tokio::spawn(owner.run(asks));
        entry.set(known, Some(handle.clone()));
        Ok(handle)
    }

    pub(super) async fn configure(
        &self,
        id: &TerminalId,
        change: ConfigureTerminal,
    ) -> Result<Terminal> {
        let size = change
            .size
            .map(|size| checks::size(Some(size)))
            .transpose()?;
        checks::prompt_regex(change.prompt_regex.as_deref())?;
        let description = checks::description(change.description.clone())?;
        let quiet = change.quiescence_ms;
        let quiet = quiet.map(|ms| checks::quiescence(Some(ms))).transpose()?;
        let entry = self.sessions.get(id)?;
        let known = entry.known().ok_or_else(|| missing(id))?;
        if known.is_terminated() {
            return Ok(answers::resting(&known.row()));
        }
        let handle = self.awake(id, &entry)?;
        known
            .change(|row| {
                if change.description.is_some() {
                    row.description = description;
                }
                if let Some(text) = change.prompt_regex {
                    row.prompt_regex = Some(text).filter(|text| !text.is_empty());
                }
                row.quiescence_ms = quiet.unwrap_or(row.quiescence_ms);
                row.size = size.unwrap_or(row.size);
            })
            .await?;
        let work = move |owner: &mut Owner| {
            owner.configure(size.is_some());
            answers::terminal(owner)
        };
        handle.ask(Freshness::Any, work).await
    }

    pub(super) async fn terminate(&self, id: &TerminalId) -> Result<Terminal> {
        let terminated = self.terminate_entry(id).await;
        self.forget_sessions();
        terminated
    }

    async fn terminate_entry(&self, id: &TerminalId) -> Result<Terminal> {
        let entry = self.sessions.get(id)?;
        let _turn = entry.turn.lock().await;
        let known = entry.known();
        let known = known.ok_or_else(|| missing(id))?;
        if !known.is_terminated() {
            known.change(|row| row.terminated = true).await?;
        }
        // First, so that output of dying programs is not taken for an answer.
        let end = match entry.handle() {
            Some(handle) => handle.ask(Freshness::Any, Owner::terminate).await?,
            None => ended_with("the session was terminated"),
        };
        known
            .learn(|row| {
                row.end.get_or_insert(end);
            })
            .await;
        let row = known.row();
        if let Some(shell) = &row.shell
            && let Some(place) = self.sandboxes.awake(&row.sandbox_id)
        {
            forget_shell(&place, &shell.tag).await?;
        }
        known.learn(|row| row.shell = None).await;
        Ok(answers::resting(&known.row()))
    }

    /// The task of a session; if it has ended, a new one is made from the files.
    pub(super) fn awake(&self, id: &TerminalId, entry: &Arc<Entry>) -> Result<Handle> {
        if let Some(handle) = entry.handle() {
            return Ok(handle);
        }
        let known = entry.known();
        let known = known.ok_or_else(|| missing(id))?;
        let (handle, asks) = Handle::new();
        if !entry.wake(&known, handle.clone()) {
            return Err(missing(id));
        }
        let dir = self.sandboxes.shared.home.terminal(id);
        let writer = self.sessions.writer()?;
        let place = match known.is_alive() {
            true => self.sandboxes.awake(&known.row().sandbox_id),
            false => None,
        };
        let workspaces = self.workspaces.clone();
        tokio::spawn(async move {
            if place.is_some() {
                // A session of an older daemon has no metadata yet.
                known.describe().await;
            }
            let row = known.row();
            let hidden = hidden(&workspaces, &row).await;
            let living = place.is_some();
            let kept = hidden.clone();
            let found = row.clone();
            let read = blocking(move || find(&dir, &found, kept, living)).await;
            let (session, files, machine_from) = match read {
                Ok(found) => found,
                Err(error) => {
                    let session = &row.session_id;
                    tracing::warn!(%error, %session, "the files of a session cannot be used");
                    let session = Session::new(config(&known.row(), hidden));
                    (session, None, 0)
                }
            };
            let owner = Owner::new(Begin {
                session,
                known,
                place,
                pen: files.map(|files| Pen::new(writer, files)),
                machine_from,
                found: living,
            });
            owner.run(asks).await;
        });
        Ok(handle)
    }

    /// Adopts the sessions of a previous daemon, after their sandboxes.
    pub(crate) async fn adopt(&self) -> Result<()> {
        let store = &self.sandboxes.shared.store;
        for row in store.terminals().await? {
            let id = row.session_id.clone();
            let place = self.sandboxes.awake(&row.sandbox_id);
            let running = place
                .as_ref()
                .is_some_and(|place| matches!(place.state(), State::Running | State::Paused));
            let known = self.known(row);
            let row = known.row();
            if row.terminated {
                if let (Some(place), Some(shell)) = (place.filter(|_| running), &row.shell) {
                    // The previous daemon died before it could make the machine forget the shell.
                    forget_shell_later(place, shell.tag.clone(), known.clone());
                }
            } else if row.is_alive() && !running {
                let end = ended_with("its machine was gone when the daemon came back");
                known
                    .learn(|row| {
                        row.end = Some(end);
                        row.shell = None;
                        row.terminated = row.opened_in.is_some();
                    })
                    .await;
            }
            let alive = known.is_alive();
            let entry = self.sessions.entry(&id);
            entry.set(known, None);
            if alive {
                self.awake(&id, &entry)?;
            }
        }
        self.forget_sessions();
        Ok(())
    }
}

fn forget_shell_later(place: Arc<driver::Handle>, tag: String, known: Arc<Known>) {
    tokio::spawn(async move {
        match forget_shell(&place, &tag).await {
            Ok(()) => known.learn(|row| row.shell = None).await,
            Err(error) => {
                let session = known.row().session_id.clone();
                tracing::warn!(%error, %session, "could not finish terminating a session");
            }
        }
    });
}

/// An end with nothing but a reason.
fn ended_with(reason: &str) -> TerminalEnd {
    TerminalEnd {
        reason: reason.to_string(),
        exit_code: None,
        at: Timestamp::now(),
        cursor: 0,
        cwd: None,
    }
}

/// Kills everything on a terminal and makes the guest forget it.
async fn forget_shell(place: &driver::Handle, tag: &str) -> Result<()> {
    // A machine that is not running has nothing to kill.
    let Ok(guest) = place.guest() else {
        return Ok(());
    };
    let selector = Selector::Tag(tag.to_string());
    let gone = |result: Result<()>| match result {
        // A machine that is being taken away kills it.
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => Ok(()),
        other => other,
    };
    gone(guest.signal(selector, libc::SIGKILL, true).await)?;
    match guest.forget(tag).await {
        // The guest has not noticed the exit yet; it forgets the process later by itself.
        Err(error) if error.kind == ErrorKind::Invalid => Ok(()),
        other => gone(other),
    }
}

fn header(row: &TerminalRow) -> CastHeader {
    let started = row.started_at.as_second().try_into().unwrap_or(0);
    let mut header = CastHeader::new(size(row.size), started);
    header.command = Some(row.command.join(" ").chars().take(1000).collect());
    header.title = Some(row.session_id.to_string());
    header
}

fn size(size: TtySize) -> Size {
    Size::new(size.cols, size.rows)
}

/// Values and patterns to redact from a session.
#[derive(Clone)]
struct Hidden {
    patterns: Patterns,
    values: Values,
}

/// Patterns of well-known credentials, and the secrets of the session's workspace or sandbox.
async fn hidden(workspaces: &Workspaces, row: &TerminalRow) -> Hidden {
    let (id, sandboxes) = (&row.sandbox_id, &workspaces.sandboxes);
    let values = match workspaces.known(id).await {
        Ok(Some(room)) => Some(room.secrets().values()),
        Ok(None) => sandboxes.awake(id).map(|handle| handle.beyond().values()),
        Err(error) => {
            let session = &row.session_id;
            tracing::warn!(%error, %session, "the secrets of a session's workspace cannot be read");
            None
        }
    };
    Hidden {
        patterns: sandboxes.patterns.clone(),
        values: values.unwrap_or_default(),
    }
}

fn config(row: &TerminalRow, hidden: Hidden) -> Config {
    Config {
        size: size(row.size),
        quiet: Duration::from_millis(row.quiescence_ms),
        patterns: hidden.patterns,
        values: hidden.values,
        ..Config::default()
    }
}

fn open_files(dir: &Path, header: &CastHeader) -> Result<Files> {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    Recorder::open(dir, header, transcript_limits(), now)
        .and_then(Files::new)
        .map_err(|error| Error::io("cannot record the session", &error))
}

/// Restores a session from its files: the screen, and the offset to continue from.
fn find(
    dir: &Path,
    row: &TerminalRow,
    hidden: Hidden,
    living: bool,
) -> Result<(Session, Option<Files>, u64)> {
    let failed = |error| Error::io("cannot read the transcript", &error);
    let tag = row.shell.as_ref().map(|shell| shell.tag.as_str());
    let position = Position::read(dir).filter(|position| Some(position.tag.as_str()) == tag);
    // The files of an ended session are only read.
    let mut files = match living {
        true => Some(open_files(dir, &header(row))?),
        false => None,
    };
    let tail = match &mut files {
        Some(files) => {
            let transcript = files.recorder.transcript_mut();
            if let Some(position) = &position {
                // Output after the saved position is received again: cut it from the transcript.
                transcript.cut(position.stream).map_err(failed)?;
            }
            tail(transcript)
        }
        None => tail(&Transcript::open(dir, transcript_limits()).map_err(failed)?),
    };
    let tail = tail.map_err(failed)?;
    let nonce = row.shell.as_ref().and_then(|shell| shell.nonce.as_deref());
    let mut session = Session::new(Config {
        offset: tail.from,
        nonce: nonce.and_then(Nonce::new),
        prompt_regex: checks::prompt_regex(row.prompt_regex.as_deref()).unwrap_or(None),
        ..config(row, hidden)
    });
    let (carried, machine) = match position {
        Some(position) => (position.carried, position.machine),
        None => (Carried::default(), 0),
    };
    session.restore(&tail.bytes, &carried);
    Ok((session, files, machine))
}

fn tail(transcript: &Transcript) -> std::io::Result<motu_terminal::ring::Read> {
    let end = transcript.end();
    transcript.read(end.saturating_sub(TAIL_BYTES as u64), end, TAIL_BYTES)
}

pub(super) fn transcript_limits() -> TranscriptLimits {
    TranscriptLimits {
        segment_bytes: limits::TERMINAL_TRANSCRIPT_BYTES.default / SEGMENTS,
        segments: SEGMENTS as usize,
    }
}
