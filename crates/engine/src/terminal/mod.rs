//! Terminal sessions: shells on terminals that an agent can drive.
//!
//! ```text
//!   table      all sessions by name, and how many may live
//!   life       opening, finding again, ending
//!   forget     letting go of those that ended long ago
//!   place      the sandbox a session runs in; made when none is named
//!   shell      starting a shell that says what it does
//!   owner      the task that owns one session; handle is its outside
//!   join       the way from a session to its machine
//!   writer     transcript, recording and log, off everybody's way
//!   watchers   those who watch live
//!   seat       sitting at a session
//!   shells     sessions that belong to a workspace and are read by a cursor
//!   plain      their output as a person reads it
//!   transcript reading back what was printed
//!   answers    what a session is and did, in the service's words
//!   checks     what callers give
//! ```

mod answers;
mod checks;
mod forget;
mod handle;
mod join;
mod known;
mod life;
mod owner;
mod place;
mod plain;
mod seat;
mod shell;
mod shells;
mod table;
mod transcript;
mod watchers;
mod writer;

use crate::sandbox::Sandboxes;
use crate::workspace::Workspaces;
use async_trait::async_trait;
use handle::Handle;
use motu_core::exec::{ExecSession, TtySize};
use motu_core::files::ByteStream;
use motu_core::lists::{ShellList, TerminalList};
use motu_core::terminal::*;
use motu_core::workspace::{
    AttachShell, OpenShell, ReadShell, Shell, ShellOutput, SignalShell, WorkspaceId, WriteShell,
};
use motu_core::{Error, Result, limits};
use motu_terminal::expect::{Cursor, Pattern};
use motu_terminal::session::{self, Outcome};
use owner::{Freshness, Owner, Work};
use std::sync::Arc;
use table::Sessions;

/// How long `expect_terminal_prompt` waits.
const PROMPT_TIMEOUT: f64 = 30.0;

/// All terminal sessions.
#[derive(Debug)]
pub struct Terminals {
    sandboxes: Arc<Sandboxes>,
    workspaces: Arc<Workspaces>,
    sessions: Arc<Sessions>,
}

impl Terminals {
    pub fn new(sandboxes: Arc<Sandboxes>, workspaces: Arc<Workspaces>) -> Terminals {
        Terminals {
            sandboxes,
            workspaces,
            sessions: Arc::default(),
        }
    }
}

/// A session as a request finds it.
enum Found {
    Here(Handle),
    /// It was terminated.
    Terminated(Arc<crate::store::TerminalRow>),
}

impl Terminals {
    fn find_session(&self, id: &TerminalId) -> Result<Found> {
        let entry = self.sessions.get(id)?;
        if let Some(known) = entry.known()
            && known.is_terminated()
        {
            return Ok(Found::Terminated(known.row()));
        }
        Ok(Found::Here(self.awake(id, &entry)?))
    }

    /// Makes a request of a session that is not terminated.
    async fn with_session<F, Fut>(&self, id: &TerminalId, request: F) -> Result<TerminalAnswer>
    where
        F: FnOnce(Handle) -> Fut + Send,
        Fut: Future<Output = Result<Outcome>> + Send,
    {
        match self.find_session(id)? {
            Found::Here(handle) => {
                self.wake_place(id).await?;
                request(handle).await.map(answers::answer)
            }
            Found::Terminated(row) => Ok(answers::terminated(&row)),
        }
    }

    /// Resumes the sandbox of a session, if it was paused while idle.
    async fn wake_place(&self, id: &TerminalId) -> Result<()> {
        let place = self.sessions.get(id)?.known();
        let place = place.and_then(|known| self.sandboxes.awake(&known.place()));
        if let Some(place) = place.filter(|place| place.naps()) {
            place.wake().await?;
        }
        Ok(())
    }

    /// Reads the state of a session, terminated or not.
    async fn view_session<T: Send + 'static>(
        &self,
        id: &TerminalId,
        freshness: Freshness,
        view: impl FnOnce(&mut Owner) -> T + Send + 'static,
    ) -> Result<T> {
        let entry = self.sessions.get(id)?;
        self.awake(id, &entry)?.ask(freshness, view).await
    }

    /// Describes a session; one without a task is not restored for that.
    async fn describe_session(
        &self,
        entry: &table::Entry,
        freshness: Freshness,
    ) -> Result<Option<Terminal>> {
        let Some(known) = entry.known() else {
            return Ok(None);
        };
        match entry.handle().filter(|_| !known.is_terminated()) {
            Some(handle) => {
                let terminal = handle.ask(freshness, |owner| answers::terminal(owner));
                Ok(Some(terminal.await?))
            }
            None => Ok(Some(answers::resting(&known.row()))),
        }
    }
}

#[async_trait]
impl motu_core::Terminals for Terminals {
    async fn open_terminal(&self, request: OpenTerminal) -> Result<TerminalOpened> {
        self.open(request).await
    }

    /// Sessions before the page are not asked for anything; the gate cuts the rest.
    async fn list_terminals(&self, page: motu_core::Page) -> Result<TerminalList> {
        let after = page.stretch::<String>()?.and_then(|page| page.after);
        let mut all = Vec::new();
        for entry in self.sessions.after(after.as_deref()) {
            all.extend(self.describe_session(&entry, Freshness::Any).await?);
        }
        all.sort_by(|a, b| {
            let of = |one: &Terminal| (!one.alive, std::cmp::Reverse(one.last_activity_at));
            of(a).cmp(&of(b)).then(a.session_id.cmp(&b.session_id))
        });
        Ok(TerminalList::new(all))
    }

    async fn get_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        let entry = self.sessions.get(id)?;
        let found = self.describe_session(&entry, Freshness::New).await?;
        found.ok_or_else(|| table::missing(id))
    }

    async fn configure_terminal(
        &self,
        id: &TerminalId,
        change: ConfigureTerminal,
    ) -> Result<Terminal> {
        self.configure(id, change).await
    }

    async fn terminate_terminal(&self, id: &TerminalId) -> Result<Terminal> {
        self.terminate(id).await
    }

    async fn run_in_terminal(&self, id: &TerminalId, run: RunInTerminal) -> Result<TerminalAnswer> {
        let (timeout, shape) = checks::wait(&run.wait, RunInTerminal::TIMEOUT)?;
        let run = session::Run {
            command: run.command,
            timeout,
            shape,
            force: run.force,
        };
        self.with_session(id, |handle| async move {
            handle
                .request(Freshness::InCommand, move |session, now| {
                    session.run(run, now)
                })
                .await
        })
        .await
    }

    async fn send_to_terminal(
        &self,
        id: &TerminalId,
        send: SendToTerminal,
    ) -> Result<TerminalAnswer> {
        let default = match send.control {
            Some(_) => SendToTerminal::CONTROL_TIMEOUT,
            None => SendToTerminal::TIMEOUT,
        };
        let (timeout, shape) = checks::wait(&send.wait, default)?;
        let send = session::Send {
            input: checks::input(&send)?,
            timeout,
            shape,
        };
        self.with_session(id, |handle| async move {
            handle
                .request(Freshness::InCommand, move |session, now| {
                    session.send(&send, now)
                })
                .await
        })
        .await
    }

    async fn send_terminal_password(
        &self,
        id: &TerminalId,
        password: TerminalPassword,
    ) -> Result<TerminalAnswer> {
        let (timeout, _) = checks::wait(&password.wait, TerminalPassword::TIMEOUT)?;
        let send = session::SendPassword {
            password: password.password,
            timeout,
            force: password.force,
        };
        self.with_session(id, |handle| async move {
            let make = move |session: &mut session::Session, now| session.send_password(&send, now);
            handle.request(Freshness::New, make).await
        })
        .await
    }

    async fn signal_terminal(
        &self,
        id: &TerminalId,
        signal: SignalTerminal,
    ) -> Result<TerminalAnswer> {
        let (timeout, shape) = checks::wait(&signal.wait, SignalTerminal::TIMEOUT)?;
        let (number, name) = checks::signal(&signal.signal)?;
        self.with_session(id, |handle| async move {
            handle
                .request_then(
                    Freshness::Any,
                    move |session, now| session.signal(&name, timeout, shape, now),
                    move |owner, request| send_signal(owner, request, number),
                )
                .await
        })
        .await
    }

    async fn poll_terminal(&self, id: &TerminalId, poll: PollTerminal) -> Result<TerminalAnswer> {
        let (timeout, shape) = checks::wait(&poll.wait, PollTerminal::TIMEOUT)?;
        let poll = session::Poll { timeout, shape };
        self.with_session(id, |handle| async move {
            handle
                .request(Freshness::Any, move |session, now| session.poll(poll, now))
                .await
        })
        .await
    }

    async fn expect_in_terminal(
        &self,
        id: &TerminalId,
        expect: ExpectInTerminal,
    ) -> Result<TerminalAnswer> {
        let (timeout, shape) = checks::wait(&expect.wait, ExpectInTerminal::TIMEOUT)?;
        let from = expect.from.as_deref().map(|text| {
            Cursor::parse(text).ok_or_else(|| {
                Error::invalid(format!(
                    "{:?} is not a cursor",
                    text.chars().take(40).collect::<String>()
                ))
                .hint("use next_cursor or cursor of another answer")
            })
        });
        let pattern = |text: String| match expect.literal {
            true => Pattern::Literal(text),
            false => Pattern::Regex(text),
        };
        let expect = session::Expect {
            patterns: expect.patterns.into_iter().map(pattern).collect(),
            timeout,
            from: from.transpose()?,
            raw: expect.raw,
            echo: expect.echo,
            shape,
        };
        self.with_session(id, |handle| async move {
            let make = move |session: &mut session::Session, now| session.expect(&expect, now);
            handle.request(Freshness::Any, make).await
        })
        .await
    }

    async fn expect_terminal_prompt(&self, id: &TerminalId, wait: Wait) -> Result<TerminalAnswer> {
        let (timeout, _) = checks::wait(&wait, PROMPT_TIMEOUT)?;
        self.with_session(id, |handle| async move {
            let make =
                move |session: &mut session::Session, now| session.expect_prompt(timeout, now);
            handle.request(Freshness::Any, make).await
        })
        .await
    }

    async fn terminal_screen(&self, id: &TerminalId, ask: ReadScreen) -> Result<TerminalScreen> {
        let format = ask.format;
        let picture = move |owner: &mut Owner| answers::picture(owner, format);
        let picture = self.view_session(id, Freshness::New, picture).await?;
        match format {
            // Rendering a large screen takes long: do it on the blocking pool.
            ScreenFormat::Png => crate::blocking::blocking(move || Ok(picture.draw())).await,
            _ => Ok(picture.draw()),
        }
    }

    async fn terminal_scrollback(
        &self,
        id: &TerminalId,
        ask: ReadScrollback,
    ) -> Result<TerminalScrollback> {
        let lines = limits::TERMINAL_SCROLLBACK_LINES.resolve(Some(ask.lines))? as usize;
        let view = move |owner: &mut Owner| answers::scrollback(owner, lines, ask.strip_ansi);
        self.view_session(id, Freshness::New, view).await
    }

    async fn clear_terminal_scrollback(&self, id: &TerminalId) -> Result<Terminal> {
        let clear = |owner: &mut Owner| {
            owner.session.clear_scrollback();
            answers::terminal(owner)
        };
        self.view_session(id, Freshness::Any, clear).await
    }

    async fn terminal_transcript(
        &self,
        id: &TerminalId,
        read: ReadTranscript,
    ) -> Result<TerminalTranscript> {
        self.read_transcript(id, read).await
    }

    async fn terminal_recording(&self, id: &TerminalId) -> Result<ByteStream> {
        self.recording(id).await
    }

    async fn attach_terminal(&self, id: &TerminalId, ask: TakeSeat) -> Result<ExecSession> {
        let seat = ask.seat()?;
        self.wake_place(id).await?;
        self.take_seat(id, seat).await
    }

    async fn open_shell(&self, id: &WorkspaceId, request: OpenShell) -> Result<Shell> {
        self.new_shell(id, request).await
    }

    async fn list_shells(&self, id: &WorkspaceId) -> Result<ShellList> {
        Ok(ShellList::new(id.clone(), self.shells(id).await?))
    }

    async fn read_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: ReadShell,
    ) -> Result<ShellOutput> {
        self.shell(id, shell).await?.read(self, request).await
    }

    async fn write_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        request: WriteShell,
    ) -> Result<Shell> {
        self.shell(id, shell).await?.write(self, request).await
    }

    async fn signal_shell(&self, id: &WorkspaceId, shell: &str, ask: SignalShell) -> Result<Shell> {
        self.shell(id, shell).await?.signal(self, &ask.signal).await
    }

    async fn resize_shell(&self, id: &WorkspaceId, shell: &str, size: TtySize) -> Result<Shell> {
        self.shell(id, shell).await?.resize(self, size).await
    }

    async fn attach_shell(
        &self,
        id: &WorkspaceId,
        shell: &str,
        ask: AttachShell,
    ) -> Result<ExecSession> {
        let shell = self.shell(id, shell).await?;
        shell.must_run()?;
        self.take_seat(&shell.session, Some(ask.into())).await
    }

    async fn close_shell(&self, id: &WorkspaceId, shell: &str) -> Result<Shell> {
        self.shell(id, shell).await?.close(self).await
    }
}

/// Signals the foreground process group, for a request that waits for the effect.
fn send_signal(owner: &mut Owner, request: u64, signal: i32) {
    let (Some(guest), Some(tag)) = (owner.guest.clone(), owner.known.tag()) else {
        let error = Error::unavailable("the machine of this session does not answer now");
        return owner.fail(request, error);
    };
    owner.job(async move {
        let sent = guest.signal_foreground(&tag, signal).await;
        Box::new(move |owner: &mut Owner| {
            if let Err(error) = sent {
                owner.fail(request, error);
            }
        }) as Work
    });
}
