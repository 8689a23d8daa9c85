//! A process of a fake machine: an interpreter task, its output, its end.
//!
//! Output is never dropped, so an attached reader gets every byte from the first one on.

use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT};
use motu_link::message::{self as link, Exited, Start};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Signals that do not end a process by default: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
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

impl Process {
    /// A process that has not started, for a request.
    pub fn new(pid: u32, start: &Start, (cwd, user): (Vec<u8>, String)) -> Arc<Process> {
        let (input_to, input) = mpsc::unbounded_channel();
        Arc::new(Process {
            pid,
            tag: start.tag.clone(),
            argv: start.argv.clone(),
            user,
            cwd,
            started_unix_ms: unix_ms(),
            started: Instant::now(),
            progress: watch::channel(Progress::default()).0,
            signal: watch::channel(None).0,
            input_to: Mutex::new(start.stdin.then_some(input_to)),
            input: tokio::sync::Mutex::new(input),
            children: Mutex::new(Vec::new()),
        })
    }

    /// The signals it is sent.
    pub fn signals(&self) -> watch::Receiver<Option<i32>> {
        self.signal.subscribe()
    }

    /// Records its end.
    pub fn exit(&self, code: i32, signal: i32, timed_out: bool) {
        let duration_ms = self.started.elapsed().as_millis() as u64;
        self.progress.send_modify(|progress| {
            progress.exited = Some(Exited {
                code,
                signal,
                timed_out,
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

    /// Ends every task but the first, which is the main one.
    pub fn abort_children(&self) {
        for child in lock(&self.children).iter().skip(1) {
            child.abort();
        }
    }

    /// Ends all tasks, as the machine's end does.
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

    /// Input for the process; false if it accepts none.
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

/// Counts a task as living until it ends or is aborted.
struct Living(Arc<Process>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.progress.send_modify(|progress| progress.alive -= 1);
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// A test that panics while holding a lock has failed already; the data is still consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment of a process.
pub type Variables = BTreeMap<String, String>;
