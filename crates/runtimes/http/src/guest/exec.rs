//! Commands: each is one call to the service, which ends with its caller.

use super::table::Running;
use super::{Guest, NO_CALL};
use crate::wire::lines::{Lines, Said as Line, Unreadable};
use crate::wire::{Done, Exec};
use bytes::Bytes;
use motu_core::limits;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use motu_link::message::{Control, Do, Exited, Failure, Said, Start, Started};
use motu_link::{Event, LinkError, Receiver, Sender, Stream};
use motu_peer::PeerError;
use motu_peer::answer::{Failed, note};
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;

/// How a command ended.
struct Ending {
    code: i32,
    signal: i32,
    timed_out: bool,
}

impl Ending {
    fn killed(timed_out: bool) -> Ending {
        Ending {
            code: 128 + SIGKILL,
            signal: SIGKILL,
            timed_out,
        }
    }
}

/// Runs a command to its end, or until its caller is gone.
pub(super) async fn run(
    guest: &Arc<Guest>,
    start: Start,
    stream: &mut Stream,
) -> Result<(), Failed> {
    let exec = asked(guest, &start)?;
    let entered = guest.table.enter(&start, &exec.workdir)?;
    let running = &entered.running;
    let begun = Instant::now();
    let started = Started {
        pid: running.pid,
        tag: running.tag.clone(),
        out_from: 0,
        err_from: 0,
        started_unix_ms: running.started_unix_ms,
    };
    note(&stream.tx, Said::Started(started)).await?;
    let limit = (start.timeout_ms > 0).then(|| Duration::from_millis(start.timeout_ms));
    let ending = tokio::select! {
        ending = work(guest, exec, limit, running, &stream.tx) => ending?,
        left = listen(guest, running, &mut stream.rx) => return Err(left.into()),
        // The call is dropped with its connection: the service ends the command.
        () = running.end.notified() => Ending::killed(false),
    };
    let exited = Exited {
        code: ending.code,
        signal: ending.signal,
        timed_out: ending.timed_out,
        usage: None,
        duration_ms: begun.elapsed().as_millis() as u64,
        out_total: running.out.load(Ordering::Relaxed),
        err_total: running.err.load(Ordering::Relaxed),
        out_of_memory: false,
    };
    Ok(note(&stream.tx, Said::Exited(exited)).await?)
}

/// The call for a command, or the reason why it is refused.
fn asked(guest: &Guest, start: &Start) -> Result<Exec, Failed> {
    let refusals = [
        (!start.follow, "run commands in the background"),
        (start.stdin, "give a command input"),
        (start.pty.is_some(), "have terminals"),
        (!start.user.is_empty(), "run commands as a user"),
        (start.clear_env, "start a command without variables"),
    ];
    if let Some((_, what)) = refusals.iter().find(|(asked, _)| *asked) {
        return Err(Failed::unsupported(what, NO_CALL));
    }
    let text = |bytes: &Bytes| {
        let text = std::str::from_utf8(bytes).map(str::to_string);
        text.map_err(|_| Failed::unsupported("pass on what is no text", "the protocol is JSON"))
    };
    let mut words = start.argv.iter().map(text);
    let command = words.next().unwrap_or_else(|| Ok(String::new()))?;
    if command.is_empty() {
        return Err(Failed::invalid("no program to run"));
    }
    let (mut env, mut workdir) = guest.surroundings();
    env.extend(start.env.clone());
    if !start.cwd.is_empty() {
        workdir = text(&start.cwd)?;
    }
    let offered = guest.offer.has("timeout");
    Ok(Exec {
        sandbox_id: guest.id.clone(),
        command,
        args: words.collect::<Result<_, _>>()?,
        mode: if start.shell { "shell" } else { "argv" },
        env,
        workdir,
        timeout_seconds: offered.then(|| start.timeout_ms.div_ceil(1000)),
    })
}

/// Calls the service and forwards the output.
async fn work(
    guest: &Guest,
    exec: Exec,
    limit: Option<Duration>,
    running: &Running,
    tx: &Sender,
) -> Result<Ending, Failed> {
    if guest.offer.streams() {
        return streamed(guest, exec, running, tx).await;
    }
    let asked = guest.peer.exec(&exec);
    let done = match limit.filter(|_| exec.timeout_seconds.is_none()) {
        None => asked.await,
        // The service does not know time limits: the call is abandoned, and that is reported.
        Some(limit) => match tokio::time::timeout(limit, asked).await {
            Ok(done) => done,
            Err(_) => return given_up(guest, running, tx).await,
        },
    };
    match done {
        Ok(Done {
            exit_code,
            stdout,
            stderr,
        }) => {
            say(running, tx, CHANNEL_OUT, stdout).await?;
            say(running, tx, CHANNEL_ERR, stderr).await?;
            Ok(Ending {
                code: exit_code,
                signal: 0,
                timed_out: false,
            })
        }
        Err(error) if error.status() == Some(408) => Ok(Ending::killed(true)),
        Err(error) => Err(guest.failed(error).await),
    }
}

/// Handles the timeout of a command that the service does not know about.
async fn given_up(guest: &Guest, running: &Running, tx: &Sender) -> Result<Ending, Failed> {
    if !guest.offer.has("cancel") {
        let text = "motu: the time is over; the service does not say that it ends commands, \
                    and this one may run on there\n";
        say(
            running,
            tx,
            CHANNEL_ERR,
            Bytes::from_static(text.as_bytes()),
        )
        .await?;
    }
    Ok(Ending::killed(true))
}

async fn streamed(
    guest: &Guest,
    exec: Exec,
    running: &Running,
    tx: &Sender,
) -> Result<Ending, Failed> {
    let mut answer = match guest.peer.exec_stream(&exec).await {
        Ok(answer) => answer,
        Err(error) if error.status() == Some(408) => return Ok(Ending::killed(true)),
        Err(error) => return Err(guest.failed(error).await),
    };
    let mut lines = Lines::new(limits::HTTP_ANSWER_BYTES.default as usize);
    let mut exit = None;
    loop {
        // A command may be silent for any time; a completely silent service does not answer the
        // engine's pings, and its link is closed.
        let piece = match answer.piece().await {
            Ok(piece) => piece,
            Err(error) => return Err(guest.failed(error).await),
        };
        let over = piece.is_none();
        lines.feed(&piece.unwrap_or_default());
        loop {
            let line = match lines.line() {
                Ok(None) if over => lines.last(),
                other => other,
            };
            match line.map_err(unreadable) {
                Ok(None) => break,
                Ok(Some(Line::Out(bytes))) => say(running, tx, CHANNEL_OUT, bytes).await?,
                Ok(Some(Line::Err(bytes))) => say(running, tx, CHANNEL_ERR, bytes).await?,
                Ok(Some(Line::Exit { code, timed_out })) => exit = Some((code, timed_out)),
                Err(error) => return Err(guest.failed(error).await),
            }
        }
        if over {
            break;
        }
    }
    match exit {
        Some((code, timed_out)) => Ok(Ending {
            code,
            signal: 0,
            timed_out,
        }),
        None => Err(guest.failed(cut_off()).await),
    }
}

fn cut_off() -> PeerError {
    PeerError::Broken {
        what: "run a command",
        reason: "its output ended before the command did".to_string(),
    }
}

fn unreadable(error: Unreadable) -> PeerError {
    let what = "run a command";
    match error {
        Unreadable::TooLong => PeerError::TooLong { what },
        Unreadable::Nonsense(said) => PeerError::nonsense(what, said),
    }
}

/// Forwards output; a slow caller slows the service down.
async fn say(running: &Running, tx: &Sender, channel: u8, bytes: Bytes) -> Result<(), Failed> {
    let count = match channel {
        CHANNEL_ERR => &running.err,
        _ => &running.out,
    };
    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(tx.data(channel, bytes).await?)
}

/// Handles controls until the host is gone.
async fn listen(guest: &Guest, running: &Running, rx: &mut Receiver) -> LinkError {
    loop {
        match rx.recv().await {
            Ok(Event::Message(bytes)) => {
                let control = Control::decode(bytes).ok().and_then(|found| found.what);
                if let Some(Do::Signal(signal)) = control
                    && let Err(failed) = guest.end_by(running, signal.signal)
                {
                    tracing::warn!(
                        id = guest.id,
                        reason = failed.message,
                        "a signal was not sent"
                    );
                }
            }
            // Input is not supported: see `asked`.
            Ok(Event::Data { .. } | Event::Eof) => {}
            Ok(Event::Reset | Event::End(_)) => return LinkError::Reset,
            Err(error) => return error,
        }
    }
}

/// Runs a short command of our own.
pub(crate) async fn probe(
    peer: &crate::wire::Peer,
    id: &str,
    command: &str,
    patience: Duration,
) -> Result<Done, Failed> {
    let exec = Exec {
        sandbox_id: id.to_string(),
        command: command.to_string(),
        mode: "argv",
        ..Exec::default()
    };
    match tokio::time::timeout(patience, peer.exec(&exec)).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Failed::new(
            Failure::Cancelled,
            format!("{command:?} did not end within {} s", patience.as_secs()),
        )),
    }
}
