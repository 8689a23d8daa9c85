//! A running command: its output here, our input and signals there.

use crate::output::{Broken, Output, To};
use crate::{ending, show, terminal};
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::collect::Collector;
use motu_core::exec::{ExecEvent, ExecInput, ExecSession, Exited};
use motu_core::{Error, ErrorKind, Result, SandboxId};
use rustix::io::Errno;
use std::io::Read;
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Bytes read from standard input at once.
const INPUT_BYTES: usize = 64 * 1024;
/// What a shell says of a command whose output nobody reads any more (128 + SIGPIPE).
const UNREAD: u8 = 141;
const KILL: i32 = 9;

/// What of ours is passed on to the command.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub stdin: bool,
    pub tty: bool,
    /// The sandbox in which the command runs on when the connection to it is lost.
    pub back: Option<SandboxId>,
}

impl Live {
    /// An error, with the way back to a command that may still run.
    fn lost(&self, error: Error, pid: Option<u32>) -> Error {
        match (&self.back, pid, error.kind) {
            (Some(id), Some(pid), ErrorKind::Transport | ErrorKind::Unavailable) => {
                error.hint(format!("it may still run: `motu attach {id} {pid}`"))
            }
            _ => error,
        }
    }
}

/// Shows a session as it happens and gives the exit code of its command.
pub async fn follow(session: ExecSession, live: Live) -> Result<ExitCode> {
    let _raw = live.tty.then(terminal::Raw::enter).transpose()?;
    let ExecSession {
        mut events, input, ..
    } = session;
    let mut signals = Signals::listen(&live)?;
    if live.stdin {
        pass_stdin_on(input.clone());
    }
    let mut output = Output::default();
    let show = async {
        let (mut end, mut pid) = (None, None);
        while let Some(event) = events.next().await {
            let written = match event.map_err(|error| live.lost(error, pid))? {
                ExecEvent::Started(started) => {
                    pid = Some(started.pid);
                    Ok(())
                }
                ExecEvent::Stdout(bytes) => output.write(To::Stdout, bytes).await,
                ExecEvent::Stderr(bytes) => output.write(To::Stderr, bytes).await,
                ExecEvent::Exited(exited) => {
                    end = Some(exited);
                    Ok(())
                }
                ExecEvent::Sandbox(sandbox) => {
                    show::warn_if_open(&sandbox.runtime, sandbox.isolation);
                    Ok(())
                }
                ExecEvent::Gap(_) => Ok(()),
            };
            if let Err(broken) = written {
                return Ok::<_, Error>(Err(broken));
            }
        }
        match (output.finish().await, end) {
            (Ok(()), Some(exited)) => Ok(Ok(exited)),
            (Err(broken), _) => Ok(Err(broken)),
            (Ok(()), None) => {
                let cut = Error::transport("the session ended before its command did");
                Err(live.lost(cut, pid))
            }
        }
    };
    let shown = tokio::select! {
        shown = show => shown?,
        code = signals.pass_on(input) => return Ok(ExitCode::from(code)),
    };
    drop(_raw);
    match shown {
        Ok(exited) => Ok(told(&exited)),
        Err(broken) => unread(broken),
    }
}

/// Our output could not be written.
pub fn unread(Broken(errno): Broken) -> Result<ExitCode> {
    match errno {
        Errno::PIPE => Ok(ExitCode::from(UNREAD)),
        errno => Err(show::cut(&errno.into())),
    }
}

/// Reads a session to its end without showing anything.
pub async fn collect(
    session: ExecSession,
    live: Live,
    mut collector: Collector,
) -> Result<Collector> {
    let ExecSession {
        mut events,
        input,
        audit_id,
    } = session;
    collector.named(audit_id);
    let mut signals = Signals::listen(&live)?;
    if live.stdin {
        pass_stdin_on(input.clone());
    }
    let read = async {
        while let Some(event) = events.next().await {
            collector.add(event?);
        }
        Ok(())
    };
    tokio::select! {
        outcome = read => outcome.map(|()| collector),
        _ = signals.pass_on(input) => Err(Error::unavailable("interrupted")),
    }
}

/// Shows the output of something that is not ours to end, until it ends or we are interrupted.
pub async fn watch(session: ExecSession) -> Result<ExitCode> {
    let ExecSession {
        mut events, input, ..
    } = session;
    let mut output = Output::default();
    let show = async {
        while let Some(event) = events.next().await {
            let written = match event? {
                ExecEvent::Stdout(bytes) => output.write(To::Stdout, bytes).await,
                ExecEvent::Stderr(bytes) => output.write(To::Stderr, bytes).await,
                _ => Ok(()),
            };
            if let Err(broken) = written {
                return unread(broken);
            }
        }
        match output.finish().await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(broken) => unread(broken),
        }
    };
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    // Keep the input open: closing it would end the request.
    let outcome = tokio::select! {
        outcome = show => outcome,
        () = interrupted => Ok(ExitCode::SUCCESS),
    };
    drop(input);
    outcome
}

/// Says what the exit code alone does not.
fn told(exited: &Exited) -> ExitCode {
    let yellow = show::style(show::YELLOW);
    let warn = |text: &str| show::note(&format!("{yellow}motu:{yellow:#} {text}\n"));
    if exited.timed_out {
        let seconds = exited.duration_ms as f64 / 1000.0;
        warn(&format!(
            "timed out: stopped after {seconds:.1} s (--timeout-seconds)"
        ));
    }
    if exited.out_of_memory {
        warn("out of memory: something was killed at the memory limit (--mem-mib)");
    }
    exit_code(exited.exit_code, exited.timed_out)
}

/// The command's own code, except after a timeout.
pub fn exit_code(code: i32, timed_out: bool) -> ExitCode {
    match (timed_out, u8::try_from(code)) {
        (true, _) => ExitCode::from(ErrorKind::Timeout.exit_code()),
        (false, Ok(code)) => ExitCode::from(code),
        (false, Err(_)) => ExitCode::FAILURE,
    }
}

/// Sends standard input from a thread of its own, because a read of a terminal cannot be cancelled.
fn pass_stdin_on(input: mpsc::Sender<ExecInput>) {
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; INPUT_BYTES];
        loop {
            let item = match stdin.read(&mut buffer) {
                Ok(0) => ExecInput::CloseStdin,
                Ok(length) => ExecInput::Stdin(Bytes::copy_from_slice(&buffer[..length])),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => ExecInput::CloseStdin,
            };
            let last = item == ExecInput::CloseStdin;
            if input.blocking_send(item).is_err() || last {
                return;
            }
        }
    });
}

/// Signals that are meant for the command.
struct Signals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
    resized: Option<Signal>,
}

impl Signals {
    fn listen(live: &Live) -> Result<Signals> {
        ending::bound(ending::LEAVE);
        let listen = |kind| signal(kind).map_err(|error| Error::io("listen for signals", &error));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            resized: match live.tty {
                true => Some(listen(SignalKind::window_change())?),
                false => None,
            },
        })
    }

    /// Passes signals on: the second interrupt as a kill. Returns, with our exit code, when the
    /// session must be given up, which ends the command too: after a third interrupt, when a
    /// signal would wait behind input that the command does not read, after a second request to
    /// terminate, or when the first one has not ended the command for a while.
    async fn pass_on(&mut self, input: mpsc::Sender<ExecInput>) -> u8 {
        let mut interrupts = 0;
        let mut leave: Option<tokio::time::Instant> = None;
        loop {
            let number = tokio::select! {
                () = until(leave) => return ending::TERMINATED,
                _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                _ = self.quit.recv() => SignalKind::quit().as_raw_value(),
                _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
                _ = self.hangup.recv() => SignalKind::hangup().as_raw_value(),
                () = resized(&mut self.resized) => {
                    if let Ok(size) = terminal::size() {
                        let _ = input.try_send(ExecInput::Resize(size));
                    }
                    continue;
                }
            };
            interrupts += i32::from(number == SignalKind::interrupt().as_raw_value());
            if number == SignalKind::terminate().as_raw_value() {
                if leave.is_some() {
                    return ending::TERMINATED;
                }
                leave = Some(tokio::time::Instant::now() + ending::LEAVE);
            }
            let passed = if interrupts == 2 { KILL } else { number };
            let sent = input.try_send(ExecInput::Signal(passed));
            if interrupts > 2 || matches!(sent, Err(TrySendError::Full(_))) {
                return 128 + number as u8;
            }
        }
    }
}

async fn until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn resized(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
