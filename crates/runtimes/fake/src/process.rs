//! A process of a fake machine: an interpreter task, its whole output, its end.
//!
//! Nothing is ever dropped from the output, so an attached reader finds every
//! byte from the first one on.

use crate::answer::{ENOENT, Failed};
use crate::machine::Machine;
use crate::program::{self, Context};
use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use motu_link::message::{self as link, Exited, Failure, Start};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

const SIGKILL: i32 = 9;
/// Signals whose default is not to end a process: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: [i32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

/// What changes while a process runs.
#[derive(Debug, Default)]
pub struct Progress {
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub exited: Option<Exited>,
    /// Living tasks of its tree.
    pub alive: u32,
}

#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    pub tag: String,
    pub argv: Vec<Bytes>,
    pub user: String,
    pub cwd: Vec<u8>,
    pub started_unix_ms: u64,
    started: Instant,
    progress: watch::Sender<Progress>,
    signal: watch::Sender<Option<i32>>,
    input_to: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
    input: tokio::sync::Mutex<mpsc::UnboundedReceiver<Bytes>>,
    children: Mutex<Vec<AbortHandle>>,
}

/// How the main task of a process came to its end.
enum Ending {
    Code(i32),
    Signal(i32),
    Timeout,
}

impl Process {
    /// Checks a request and starts what it asks for.
    pub fn start(machine: &Arc<Machine>, start: &Start) -> Result<Arc<Process>, Failed> {
        let argv = arguments(start)?;
        if !program::known(&argv[0]) {
            return Err(Failed {
                errno: ENOENT,
                ..Failed::new(
                    Failure::CannotRun,
                    format!("program {:?} in PATH: no such file or directory", argv[0]),
                )
            });
        }
        if start.pty.is_some() {
            return Err(Failed::unsupported("open a terminal"));
        }
        let (env, cwd, user) = machine.surroundings(start)?;
        let (input_to, input) = mpsc::unbounded_channel();
        let process = Arc::new(Process {
            pid: machine.next_pid(),
            tag: start.tag.clone(),
            argv: start.argv.clone(),
            user,
            cwd: cwd.clone(),
            started_unix_ms: unix_ms(),
            started: Instant::now(),
            progress: watch::channel(Progress::default()).0,
            signal: watch::channel(None).0,
            input_to: Mutex::new(start.stdin.then_some(input_to)),
            input: tokio::sync::Mutex::new(input),
            children: Mutex::new(Vec::new()),
        });
        machine.enter(process.clone())?;
        let timeout = (start.timeout_ms > 0).then(|| Duration::from_millis(start.timeout_ms));
        let context = Context::new(machine.clone(), process.clone(), env, cwd);
        let main = process
            .clone()
            .supervise(machine.clone(), context, argv, timeout);
        process.spawn(main);
        Ok(process)
    }

    async fn supervise(
        self: Arc<Self>,
        machine: Arc<Machine>,
        context: Context,
        argv: Vec<String>,
        timeout: Option<Duration>,
    ) {
        let mut signals = self.signal.subscribe();
        let ending = tokio::select! {
            code = program::run(context, argv) => Ending::Code(code),
            signal = signals.wait_for(Option::is_some) => {
                Ending::Signal(signal.ok().and_then(|signal| *signal).unwrap_or(SIGKILL))
            }
            () = sleep(timeout) => Ending::Timeout,
        };
        machine.not_paused().await;
        if !matches!(ending, Ending::Code(_)) {
            self.abort_children();
        }
        let (code, signal) = match ending {
            Ending::Code(code) => (code, 0),
            Ending::Signal(signal) => (128 + signal, signal),
            Ending::Timeout => (128 + SIGKILL, SIGKILL),
        };
        let duration_ms = self.started.elapsed().as_millis() as u64;
        self.progress.send_modify(|progress| {
            progress.exited = Some(Exited {
                code,
                signal,
                timed_out: matches!(ending, Ending::Timeout),
                usage: None,
                duration_ms,
                out_total: progress.out.len() as u64,
                err_total: progress.err.len() as u64,
                out_of_memory: false,
            });
        });
    }

    /// Runs a task as a part of this process's tree.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.progress.send_modify(|progress| progress.alive += 1);
        let living = Living(self.clone());
        let task = tokio::spawn(async move {
            let _living = living;
            task.await;
        });
        lock(&self.children).push(task.abort_handle());
    }

    /// Ends every task but the main one, which is the first.
    fn abort_children(&self) {
        for child in lock(&self.children).iter().skip(1) {
            child.abort();
        }
    }

    /// Ends everything at once, as a machine's end does.
    pub fn abort(&self) {
        for task in lock(&self.children).iter() {
            task.abort();
        }
    }

    pub fn write(&self, channel: u8, bytes: &[u8]) {
        self.progress.send_modify(|progress| match channel {
            CHANNEL_ERR => progress.err.extend_from_slice(bytes),
            _ => progress.out.extend_from_slice(bytes),
        });
    }

    /// A signal to the process group, which here is the whole tree.
    pub fn signal(&self, signal: i32) {
        if HARMLESS.contains(&signal) {
            return;
        }
        if self.has_exited() {
            self.abort_children();
        }
        self.signal.send_replace(Some(signal));
    }

    pub fn has_exited(&self) -> bool {
        self.progress.borrow().exited.is_some()
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Bytes of a channel from an offset on, at most `most`.
    pub fn output(&self, channel: u8, from: u64, most: usize) -> Bytes {
        let progress = self.progress.borrow();
        let kept = if channel == CHANNEL_OUT {
            &progress.out
        } else {
            &progress.err
        };
        let from = (from as usize).min(kept.len());
        let to = from.saturating_add(most).min(kept.len());
        Bytes::copy_from_slice(&kept[from..to])
    }

    pub fn ends(&self) -> (u64, u64) {
        let progress = self.progress.borrow();
        (progress.out.len() as u64, progress.err.len() as u64)
    }

    /// Input for the process; false when it takes none.
    pub fn feed(&self, bytes: Bytes) -> bool {
        lock(&self.input_to)
            .as_ref()
            .is_some_and(|input| input.send(bytes).is_ok())
    }

    pub fn close_input(&self) {
        lock(&self.input_to).take();
    }

    /// The next piece of standard input, or `None` at its end.
    pub async fn read_input(&self) -> Option<Bytes> {
        self.input.lock().await.recv().await
    }

    pub fn describe(&self) -> link::Process {
        let progress = self.progress.borrow();
        link::Process {
            pid: self.pid,
            tag: self.tag.clone(),
            argv: self.argv.clone(),
            pty: false,
            started_unix_ms: self.started_unix_ms,
            exited: progress.exited,
            out_total: progress.out.len() as u64,
            err_total: progress.err.len() as u64,
            user: self.user.clone(),
            cwd: Bytes::copy_from_slice(&self.cwd),
            alive: progress.alive,
        }
    }
}

/// Counts a task of a tree as living, even when it is aborted.
struct Living(Arc<Process>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.progress.send_modify(|progress| progress.alive -= 1);
    }
}

/// The words of a request; a script's arguments are words of the script, as they are for the real guest.
fn arguments(start: &Start) -> Result<Vec<String>, Failed> {
    let mut words: Vec<String> = start
        .argv
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() {
        return Err(Failed::new(Failure::Invalid, "no program to run"));
    }
    if start.shell {
        let quoted = words[1..]
            .iter()
            .map(|word| format!(" '{}'", word.replace('\'', r"'\''")));
        let script: String = std::iter::once(words[0].clone()).chain(quoted).collect();
        words = vec!["sh".to_string(), "-c".to_string(), script];
    }
    Ok(words)
}

async fn sleep(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// Tests that panic while holding a lock have failed already; what is locked is still whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment of a process.
pub type Variables = BTreeMap<String, String>;
