//! Runs commands in a workspace and keeps their history.

use super::Workspaces;
use super::room::{Room, in_words};
use crate::admission::{Follow, command};
use crate::driver::Handle;
use crate::shown::Pace;
use crate::store::Store;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use jiff::Timestamp;
use motu_core::collect::Collector;
use motu_core::exec::{ExecEvent, ExecRequest, ExecResult, ExecSession, Exited, Started};
use motu_core::workspace::{CommandLog, CommandRecord, WORKSPACE, WorkspaceExec, WorkspaceId};
use motu_core::{Error, Result, limits};
use std::sync::Arc;

impl Workspaces {
    pub(super) async fn exec(
        &self,
        id: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecResult> {
        let collector = Collector::new(request.program.max_output_bytes)?;
        let (_, handle) = self.room(id).await?;
        let mut collector = collector.within(handle.sandbox()).of_workspace();
        let session = self.exec_stream(id, request).await?;
        collector.add_all(session).await?;
        collector.finish()
    }

    pub(super) async fn exec_stream(
        &self,
        id: &WorkspaceId,
        request: WorkspaceExec,
    ) -> Result<ExecSession> {
        let (room, handle) = self.room(id).await?;
        let mut program = request.program;
        let secrets = room.secrets.environment(&request.secret_env)?;
        program.env.extend(secrets);
        self.follow_remembered(room, handle, program.into(), request.checkpoint)
            .await
    }

    /// Runs a command in a workspace; all verbs that run commands end up here.
    pub(crate) async fn follow_remembered(
        &self,
        room: Arc<Room>,
        handle: Arc<Handle>,
        mut exec: ExecRequest,
        checkpoint: Option<bool>,
    ) -> Result<ExecSession> {
        exec.program
            .workdir
            .get_or_insert_with(|| self.workdir(&handle));
        let asked = exec.clone();
        let pace = Pace::of(&exec);
        let start = command(&self.sandboxes.config, exec, Follow::Foreground)?;
        let guest = handle.guest().map_err(in_words)?;
        let mut remembered = self.remember(&room, &handle, &asked, checkpoint).await?;
        let session = match guest.start(start).await {
            Ok(session) => session,
            Err(error) => {
                remembered.finish("lost", None).await;
                return Err(in_words(handle.explain_soon(error).await));
            }
        };
        let run = Run {
            events: room.secrets.redacted(session.events, pace),
            remembered,
            room,
            handle,
        };
        Ok(ExecSession::new(
            unfold(run, |mut run| async move {
                let event = run.next().await?;
                Some((event, run))
            })
            .boxed(),
            session.input,
        ))
    }

    /// Adds a command to the history, after its checkpoint.
    async fn remember(
        &self,
        room: &Room,
        handle: &Handle,
        asked: &ExecRequest,
        checkpoint: Option<bool>,
    ) -> Result<Remembered> {
        let wanted = checkpoint.unwrap_or_else(|| room.row().checkpoint);
        let checkpoint = match wanted {
            true => Some(self.checkpoint(room, handle).await?),
            false => None,
        };
        let redact = |text: &String| room.secrets.redact(text);
        let record = CommandRecord {
            sequence: 0,
            command: asked.program.command.iter().map(redact).collect(),
            workdir: asked.program.workdir.clone().unwrap_or_default(),
            exit_code: None,
            status: "running".to_string(),
            stdout: String::new(),
            stderr: String::new(),
            truncated: false,
            duration_ms: 0,
            started_at: Timestamp::now(),
            checkpoint,
        };
        let store = &self.sandboxes.shared.store;
        let record = store.begin_command(&room.id, record).await?;
        Ok(Remembered::new(store.clone(), room.id.clone(), record))
    }

    /// Starts a background command in a workspace. Its output stays in the machine; the history
    /// records only its start.
    pub(crate) async fn start_remembered(
        &self,
        room: &Room,
        handle: &Handle,
        mut exec: ExecRequest,
    ) -> Result<Started> {
        exec.program
            .workdir
            .get_or_insert_with(|| self.workdir(handle));
        let asked = exec.clone();
        let start = command(&self.sandboxes.config, exec, Follow::Background)?;
        let guest = handle.guest()?;
        let mut remembered = self.remember(room, handle, &asked, None).await?;
        match guest.start_background(start).await {
            Ok(started) => {
                remembered.finish("background", None).await;
                Ok(started)
            }
            Err(error) => {
                remembered.finish("lost", None).await;
                Err(handle.explain_soon(error).await)
            }
        }
    }

    /// The default directory of commands.
    pub(crate) fn workdir(&self, handle: &Handle) -> String {
        let workdir = handle.sandbox().workdir;
        match workdir.is_empty() {
            true => WORKSPACE.to_string(),
            false => workdir,
        }
    }

    pub(super) async fn logs(&self, id: &WorkspaceId) -> Result<CommandLog> {
        let (room, _) = self.room(id).await?;
        let entries = self.sandboxes.shared.store.commands(&room.id).await?;
        Ok(CommandLog {
            workspace_id: id.clone(),
            count: entries.len() as u64,
            entries,
        })
    }

    /// Marks commands as lost that were running when the previous daemon died: they ended with its
    /// link.
    pub(super) async fn end_lost_commands(&self, id: &WorkspaceId) -> Result<()> {
        for mut record in self.sandboxes.shared.store.commands(id).await? {
            if record.status == "running" {
                record.status = "lost".to_string();
                self.sandboxes
                    .shared
                    .store
                    .write_command(id, &record)
                    .await?;
            }
        }
        Ok(())
    }
}

/// A command that is being followed and recorded.
struct Run {
    events: BoxStream<'static, Result<ExecEvent>>,
    remembered: Remembered,
    #[expect(dead_code, reason = "its secrets are needed until the last event")]
    room: Arc<Room>,
    handle: Arc<Handle>,
}

impl Run {
    async fn next(&mut self) -> Option<Result<ExecEvent>> {
        let event = match self.events.next().await? {
            Ok(event) => event,
            Err(error) => {
                self.remembered.finish("lost", None).await;
                let error: Error = self.handle.explain_soon(error).await;
                return Some(Err(in_words(error)));
            }
        };
        match &event {
            ExecEvent::Stdout(bytes) => self.remembered.stdout.add(bytes),
            ExecEvent::Stderr(bytes) => self.remembered.stderr.add(bytes),
            ExecEvent::Gap(_) => self.remembered.stdout.cut = true,
            ExecEvent::Exited(exited) => {
                let status = if exited.timed_out {
                    "timed_out"
                } else {
                    "exited"
                };
                // Written before the event is passed on: a caller that has seen the end finds it in
                // the history.
                self.remembered.finish(status, Some(exited)).await;
                self.handle.touch();
            }
            ExecEvent::Sandbox(_) | ExecEvent::Started(_) => {}
        }
        Some(Ok(event))
    }
}

/// The beginning of one output channel.
#[derive(Debug, Default)]
struct Beginning {
    bytes: Vec<u8>,
    cut: bool,
}

impl Beginning {
    fn add(&mut self, more: &[u8]) {
        let room = limits::HISTORY_OUTPUT_BYTES.max as usize - self.bytes.len();
        self.bytes.extend_from_slice(&more[..more.len().min(room)]);
        self.cut |= more.len() > room;
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A history record in the making; written when it is dropped, at the latest.
struct Remembered {
    store: Store,
    id: WorkspaceId,
    record: CommandRecord,
    stdout: Beginning,
    stderr: Beginning,
    written: bool,
}

impl Remembered {
    fn new(store: Store, id: WorkspaceId, record: CommandRecord) -> Remembered {
        Remembered {
            store,
            id,
            record,
            stdout: Beginning::default(),
            stderr: Beginning::default(),
            written: false,
        }
    }

    fn close(&mut self, status: &str, exited: Option<&Exited>) -> CommandRecord {
        self.written = true;
        self.record.status = status.to_string();
        self.record.stdout = self.stdout.text();
        self.record.stderr = self.stderr.text();
        self.record.truncated = self.stdout.cut || self.stderr.cut;
        if let Some(exited) = exited {
            self.record.exit_code = Some(exited.exit_code);
            self.record.duration_ms = exited.duration_ms;
        }
        self.record.clone()
    }

    async fn finish(&mut self, status: &str, exited: Option<&Exited>) {
        let record = self.close(status, exited);
        if let Err(error) = self.store.write_command(&self.id, &record).await {
            tracing::warn!(id = %self.id, %error, "could not add a command to the history");
        }
    }
}

impl Drop for Remembered {
    /// Dropped before the command ended: the caller has left, which cancels the command.
    fn drop(&mut self) {
        if self.written {
            return;
        }
        let record = self.close("cancelled", None);
        let (store, id) = (self.store.clone(), self.id.clone());
        tokio::spawn(async move { store.write_command(&id, &record).await });
    }
}
