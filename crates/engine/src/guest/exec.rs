//! Commands of a machine.

use super::call::Call;
use super::{Guest, broken, decode_note, failure, next_note, outcome, unexpected};
use bytes::Bytes;
use futures_util::stream::{StreamExt, unfold};
use jiff::Timestamp;
use motu_core::exec::{
    AttachFrom, Channel, ExecEvent, ExecInput, ExecSession, Exited, Gap, NotStarted, Process,
    Selector, Started, TtySize,
};
use motu_core::files::ByteStream;
use motu_core::{Error, Result};
use motu_link::frame::{CHANNEL_ERR, CHANNEL_IN, CHANNEL_OUT};
use motu_link::message as link;
use motu_link::message::{Control, Do, Failure, Outcome, Said, Verb};
use motu_link::{Event, LinkError, Sender};
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Inputs a caller may have queued; standard input itself is bounded by the link's credit.
const INPUT_QUEUE: usize = 8;
/// How much longer than its time limit a command may take before the host ends it.
const GRACE: Duration = Duration::from_secs(5);
/// How long a guest may take to kill a command before its machine is ended.
const KILL_GRACE: Duration = Duration::from_secs(10);
const KILL: i32 = 9;
/// How often the host checks whether a killed command is gone.
const LOOK: Duration = Duration::from_millis(500);

impl Guest {
    /// Starts a command and follows it.
    pub async fn start(&self, start: link::Start) -> Result<ExecSession> {
        let limit = time_limit(&start);
        let opening = self.open(Verb::Start(start));
        let call = match limit {
            None => opening.await?,
            Some(limit) => tokio::time::timeout(limit, opening)
                .await
                .map_err(|_| self.about.late("did not take the command in its time"))??,
        };
        Ok(session(call, self.me.upgrade(), limit))
    }

    /// Starts a command without following it.
    pub async fn start_background(&self, start: link::Start) -> Result<Started> {
        let limit = time_limit(&start);
        let mut stream = self.open(Verb::Start(start)).await?;
        let started = match next_note(&mut stream).await? {
            Said::Started(started) => started_event(started),
            _ => return Err(unexpected()),
        };
        super::finish(&mut stream).await?;
        if let Some(limit) = limit {
            tokio::spawn(end_in_time(self.me.clone(), started.pid, limit));
        }
        Ok(started)
    }

    /// Follows a command that was started before.
    pub async fn attach(&self, process: Selector, from: AttachFrom) -> Result<ExecSession> {
        let (out_from, err_from) = match from {
            AttachFrom::Offsets { stdout, stderr } => (stdout, stderr),
            _ => (0, 0),
        };
        let mut stream = self
            .open(Verb::Attach(link::Attach {
                process: Some(selector(process)),
                out_from,
                err_from,
                from_oldest: from == AttachFrom::Oldest,
                from_newest: from == AttachFrom::Newest,
                lossless: true,
                kill_on_reset: false,
                forget: false,
            }))
            .await?;
        // Read the first note now: an unknown process is then an error, not a broken stream.
        let first = next_note(&mut stream).await?;
        let mut session = session(stream, self.me.upgrade(), None);
        let started = match first {
            Said::Started(started) => ExecEvent::Started(started_event(started)),
            _ => return Err(unexpected()),
        };
        session.events = futures_util::stream::once(async move { Ok(started) })
            .chain(session.events)
            .boxed();
        Ok(session)
    }

    pub async fn processes(&self) -> Result<Vec<Process>> {
        let notes = self
            .ask_all(Verb::ListProcesses(link::ListProcesses {}))
            .await?;
        let mut all = Vec::new();
        for note in notes {
            match note {
                Said::Processes(found) => all.extend(found.processes.into_iter().map(process)),
                _ => return Err(unexpected()),
            }
        }
        Ok(all)
    }

    /// Whether a command still runs; `None` if the guest does not answer.
    async fn lives(&self, pid: u32) -> Option<bool> {
        let processes = tokio::time::timeout(KILL_GRACE, self.processes()).await;
        let processes = processes.ok()?.ok()?;
        let found = processes.iter().find(|process| process.pid == pid);
        Some(found.is_some_and(|process| process.exited.is_none()))
    }

    /// Writes a stream to standard input, and closes it afterwards if asked to.
    pub async fn write_input(
        &self,
        process: Selector,
        close: bool,
        content: ByteStream,
    ) -> Result<()> {
        let input = link::Input {
            process: Some(selector(process)),
            close,
        };
        let mut stream = self.open(Verb::Input(input)).await?;
        super::system::send_all(&mut stream, content).await?;
        super::finish(&mut stream).await
    }

    pub async fn resize(&self, process: Selector, size: TtySize) -> Result<()> {
        self.tell(Verb::Resize(link::Resize {
            process: Some(selector(process)),
            size: Some(link::PtySize {
                cols: size.cols.into(),
                rows: size.rows.into(),
            }),
        }))
        .await
    }

    /// Drops the guest's record and buffers of a process that has ended.
    pub async fn forget(&self, tag: &str) -> Result<()> {
        let process = selector(Selector::Tag(tag.to_string()));
        self.tell(Verb::Forget(process)).await
    }

    pub async fn signal(&self, process: Selector, signal: i32, tree: bool) -> Result<()> {
        self.tell(Verb::Signal(link::Signal {
            process: Some(selector(process)),
            signal,
            tree,
        }))
        .await
    }
}

/// Why a machine was ended whose guest did not kill a command.
const OUTLIVED: &str = "a command outlived its time limit and could not be ended alone";

async fn kill(guest: Arc<Guest>, pid: u32) {
    let killed = guest.signal(Selector::Pid(pid), KILL, true);
    let _ = tokio::time::timeout(KILL_GRACE, killed).await;
}

/// Enforces the time limit of a command that no caller follows.
async fn end_in_time(guest: std::sync::Weak<Guest>, pid: u32, limit: Duration) {
    tokio::time::sleep(limit).await;
    // The machine is gone, and its commands with it.
    let Some(guest) = guest.upgrade() else { return };
    while guest.about.is_held() {
        tokio::time::sleep(GRACE).await;
    }
    if guest.lives(pid).await == Some(false) {
        return;
    }
    kill(guest.clone(), pid).await;
    let begin = Instant::now();
    while begin.elapsed() < KILL_GRACE {
        match guest.lives(pid).await {
            Some(false) => return,
            _ => tokio::time::sleep(LOOK).await,
        }
    }
    guest.about.doom(OUTLIVED);
}

pub(super) fn selector(selector: Selector) -> link::Selector {
    match selector {
        Selector::Pid(pid) => link::Selector {
            pid,
            tag: String::new(),
        },
        Selector::Tag(tag) => link::Selector { pid: 0, tag },
    }
}

/// How long the host waits for the end of a command that has a time limit.
fn time_limit(start: &link::Start) -> Option<Duration> {
    (start.timeout_ms > 0).then(|| Duration::from_millis(start.timeout_ms).saturating_add(GRACE))
}

/// Turns a stream into a session: events come straight off the link, so a slow caller slows the
/// command down.
fn session(call: Call, guest: Option<Arc<Guest>>, limit: Option<Duration>) -> ExecSession {
    let (input, inputs) = mpsc::channel(INPUT_QUEUE);
    tokio::spawn(send_inputs(call.tx.clone(), inputs));
    let follow = Follow {
        call,
        ready: VecDeque::new(),
        over: false,
        guest,
        left: limit,
        killing: false,
        pid: None,
    };
    let events = unfold(follow, |mut follow| async move {
        let event = follow.next().await?;
        Some((event, follow))
    });
    ExecSession::new(events.boxed(), input)
}

struct Follow {
    call: Call,
    ready: VecDeque<ExecEvent>,
    over: bool,
    guest: Option<Arc<Guest>>,
    /// Time left to wait for events; time the caller takes between them does not count.
    left: Option<Duration>,
    /// The time limit has passed and the guest was asked to kill the command.
    killing: bool,
    pid: Option<u32>,
}

impl Drop for Follow {
    /// Resets the stream at once, even while an input waits for credit. The command's time limit
    /// stays in force.
    fn drop(&mut self) {
        if !self.over {
            self.call.tx.reset();
        }
        if let (Some(pid), Some(left), Some(guest)) = (self.pid, self.left, &self.guest)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(end_in_time(Arc::downgrade(guest), pid, left));
        }
    }
}

impl Follow {
    async fn next(&mut self) -> Option<Result<ExecEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            match self.wait().await {
                Ok(Event::Data { channel, bytes }) => match channel {
                    CHANNEL_OUT => return Some(Ok(ExecEvent::Stdout(bytes))),
                    CHANNEL_ERR => return Some(Ok(ExecEvent::Stderr(bytes))),
                    _ => {}
                },
                Ok(Event::Message(note)) => match decode_note(&note).and_then(event) {
                    Ok(Some(event)) => return Some(Ok(self.noted(event))),
                    Ok(None) => {}
                    Err(error) => return self.fail(error),
                },
                Ok(Event::End(last)) => {
                    self.over = true;
                    if let Err(error) = self.ended(&last) {
                        return self.fail(error);
                    }
                }
                Ok(Event::Reset) => return self.fail(broken(LinkError::Reset)),
                Ok(Event::Eof) => {}
                Err(error) => return self.fail(error),
            }
        }
    }

    fn noted(&mut self, event: ExecEvent) -> ExecEvent {
        match event {
            ExecEvent::Started(started) => {
                self.pid = Some(started.pid);
                ExecEvent::Started(started)
            }
            ExecEvent::Exited(mut exited) => {
                self.left = None;
                let kills = self.guest.as_ref().map(|guest| &guest.kills);
                exited.out_of_memory |=
                    exited.exit_code != 0 && kills.is_some_and(|kills| kills.any_new());
                // The host asked for the kill, so only the host knows that it was a timeout.
                exited.timed_out |= self.killing;
                ExecEvent::Exited(exited)
            }
            other => other,
        }
    }

    /// The next event. A command that exceeds its time limit is killed by the host: through the
    /// guest, and if that fails, together with its machine.
    async fn wait(&mut self) -> Result<Event> {
        loop {
            let Some(left) = self.left else {
                return self.call.recv_some_day().await;
            };
            let begin = Instant::now();
            let waiting = tokio::time::timeout(left, self.call.rx.recv());
            let waited = tokio::select! {
                waited = waiting => waited,
                error = self.call.about.starved() => return Err(error),
            };
            match waited {
                Ok(event) => {
                    self.left = Some(left.saturating_sub(begin.elapsed()));
                    return self.call.heard(event);
                }
                Err(_) if self.call.about.is_held() => self.left = Some(GRACE),
                Err(_) => self.overdue()?,
            }
        }
    }

    fn overdue(&mut self) -> Result<()> {
        let about = &self.call.about;
        let Some(pid) = self.pid else {
            return Err(about.late("did not start the command in its time"));
        };
        if !self.killing {
            self.killing = true;
            self.left = Some(KILL_GRACE);
            if let Some(guest) = self.guest.clone() {
                tokio::spawn(kill(guest, pid));
            }
            return Ok(());
        }
        self.left = None;
        about.doom(OUTLIVED);
        Err(about
            .late("did not end a command whose time was over; the machine was ended")
            .hint("its disks are kept if it is; nothing else of it runs on"))
    }

    fn fail(&mut self, error: Error) -> Option<Result<ExecEvent>> {
        self.over = true;
        Some(Err(error))
    }

    /// A program that cannot be started is a result, as in a shell: 127, or 126 if the file exists.
    fn ended(&mut self, last: &Bytes) -> Result<()> {
        let Ok(found) = Outcome::decode(&last[..]) else {
            return outcome(last);
        };
        let kind = Failure::try_from(found.kind);
        let missing = found.errno == rustix::io::Errno::NOENT.raw_os_error();
        let why = match (kind, missing) {
            (Ok(Failure::CannotRun), true) => NotStarted::NoSuchProgram,
            (Ok(Failure::CannotRun), false) => NotStarted::NotExecutable,
            (Ok(Failure::NoDirectory), _) => NotStarted::NoSuchDirectory,
            _ => return failure(&found),
        };
        let message: String = found.message.chars().take(500).collect();
        let text = Bytes::from(format!("motu: {message}\n"));
        self.ready.push_back(ExecEvent::Stderr(text.clone()));
        self.ready.push_back(ExecEvent::Exited(Exited {
            exit_code: if missing { 127 } else { 126 },
            not_started: Some(why),
            stderr_bytes: text.len() as u64,
            ..Exited::default()
        }));
        Ok(())
    }
}

fn event(said: Said) -> Result<Option<ExecEvent>> {
    Ok(match said {
        Said::Started(started) => Some(ExecEvent::Started(started_event(started))),
        Said::Gap(gap) => Some(ExecEvent::Gap(Gap {
            channel: if gap.channel == u32::from(CHANNEL_ERR) {
                Channel::Stderr
            } else {
                Channel::Stdout
            },
            from: gap.from,
            to: gap.to,
        })),
        Said::Exited(exited) => Some(ExecEvent::Exited(exited_event(exited))),
        _ => None,
    })
}

fn started_event(started: link::Started) -> Started {
    Started {
        pid: started.pid,
        tag: started.tag,
        stdout_from: started.out_from,
        stderr_from: started.err_from,
    }
}

fn exited_event(exited: link::Exited) -> Exited {
    let usage = exited.usage.unwrap_or_default();
    Exited {
        exit_code: exited.code,
        not_started: None,
        signal: (exited.signal != 0).then_some(exited.signal),
        timed_out: exited.timed_out,
        out_of_memory: exited.out_of_memory,
        duration_ms: exited.duration_ms,
        stdout_bytes: exited.out_total,
        stderr_bytes: exited.err_total,
        user_cpu_us: usage.user_us,
        system_cpu_us: usage.system_us,
        max_rss_bytes: usage.max_rss_bytes,
    }
}

fn process(found: link::Process) -> Process {
    let lossy = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    Process {
        pid: found.pid,
        tag: found.tag,
        command: found.argv.iter().map(lossy).collect(),
        tty: found.pty,
        user: found.user,
        workdir: lossy(&found.cwd),
        started_at: i64::try_from(found.started_unix_ms)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .unwrap_or_default(),
        alive: found.alive,
        stdout_bytes: found.out_total,
        stderr_bytes: found.err_total,
        exited: found.exited.map(exited_event),
    }
}

/// Passes a caller's inputs on until it stops sending or the stream ends.
async fn send_inputs(tx: Sender, mut inputs: mpsc::Receiver<ExecInput>) {
    while let Some(input) = inputs.recv().await {
        let sent = match input {
            ExecInput::Stdin(bytes) => tx.data(CHANNEL_IN, bytes).await,
            ExecInput::CloseStdin => tx.eof().await,
            ExecInput::Resize(size) => {
                control(
                    &tx,
                    Do::Resize(link::PtySize {
                        cols: size.cols.into(),
                        rows: size.rows.into(),
                    }),
                )
                .await
            }
            ExecInput::Signal(signal) => {
                control(
                    &tx,
                    Do::Signal(link::SignalNumber {
                        signal,
                        tree: false,
                    }),
                )
                .await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn control(tx: &Sender, what: Do) -> std::result::Result<(), LinkError> {
    tx.message(Bytes::from(Control::from(what).encode_to_vec()))
        .await
}
