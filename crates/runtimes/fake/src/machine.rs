//! A fake machine: its guest answers requests on any number of links.
//!
//! All of its tasks run where its first connection was spawned, so nothing of
//! it depends on the engine that talks to it.

use crate::answer::{Failed, end, note};
use crate::file_verbs;
use crate::files::Tree;
use crate::follow::{self, Manner};
use crate::process::{Process, Variables, lock};
use bytes::Bytes;
use motu_link::message::{
    Attach, Connected, Dial, Failure, Init, Input, Metrics, Pong, Ports, Processes, Request, Said,
    Selector, Start, Verb,
};
use motu_link::{Event, LINK_VERSION, Link, Stream};
use prost::Message as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::io::DuplexStream;
use tokio::sync::watch;

/// The one port of every fake machine: what is sent there comes back.
const ECHO_PORT: u32 = 7;

#[derive(Debug)]
pub struct Machine {
    tree: Mutex<Tree>,
    identity: Mutex<Init>,
    processes: Mutex<Vec<Arc<Process>>>,
    next_pid: AtomicU32,
    started: Instant,
    paused: watch::Sender<bool>,
    ended: watch::Sender<Option<String>>,
    /// Counts the times all links were cut.
    cuts: watch::Sender<u64>,
}

impl Machine {
    pub fn new() -> Arc<Machine> {
        Arc::new(Machine {
            tree: Mutex::new(Tree::new()),
            identity: Mutex::new(Init::default()),
            processes: Mutex::new(Vec::new()),
            next_pid: AtomicU32::new(2),
            started: Instant::now(),
            paused: watch::channel(false).0,
            ended: watch::channel(None).0,
            cuts: watch::channel(0).0,
        })
    }

    pub fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    pub fn set_paused(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Returns when the machine runs: everything inside waits here while it is paused.
    pub async fn not_paused(&self) {
        // The machine holds the sender, so waiting cannot fail.
        let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
    }

    pub fn cut_links(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends the machine once; the first reason wins.
    pub fn end(&self, reason: &str) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason.to_string());
            }
            first
        });
        for process in lock(&self.processes).drain(..) {
            process.abort();
        }
        self.cut_links();
    }

    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits for the end and says why.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Serves one connection until the host leaves or the link is cut.
    pub async fn serve(self: Arc<Self>, io: DuplexStream) {
        let mut cuts = self.cuts.subscribe();
        cuts.mark_unchanged();
        tokio::select! {
            () = self.converse(io) => {}
            _ = cuts.changed() => {}
        }
    }

    async fn converse(self: &Arc<Self>, mut io: DuplexStream) {
        if motu_link::hello::guest(&mut io).await.is_err() {
            return;
        }
        let (read, write) = tokio::io::split(io);
        let (link, mut incoming) = Link::start(read, write, true);
        let _closing = Closing(link);
        while let Some((request, stream)) = incoming.next().await {
            tokio::spawn(self.clone().answer(request, stream));
        }
    }

    async fn answer(self: Arc<Self>, request: Bytes, mut stream: Stream) {
        self.not_paused().await;
        let result = match Request::decode(request)
            .ok()
            .and_then(|request| request.verb)
        {
            None => Err(Failed::new(Failure::Unsupported, "an unknown request")),
            Some(verb) => self.dispatch(verb, &mut stream).await,
        };
        end(&stream.tx, result).await;
    }

    async fn dispatch(self: &Arc<Self>, verb: Verb, stream: &mut Stream) -> Result<(), Failed> {
        let said = match verb {
            Verb::Start(start) => return self.start(start, stream).await,
            Verb::Attach(attach) => return self.attach(attach, stream).await,
            Verb::ListProcesses(_) => Said::Processes(Processes {
                processes: lock(&self.processes).iter().map(|p| p.describe()).collect(),
            }),
            Verb::Signal(signal) => {
                self.find(signal.process)?.signal(signal.signal);
                return Ok(());
            }
            Verb::Input(input) => return self.input(input, stream).await,
            Verb::Forget(selector) => {
                let process = self.find(Some(selector))?;
                self.forget(&process);
                return Ok(());
            }
            Verb::Dial(dial) => return dial_echo(dial, stream).await,
            Verb::ListPorts(_) => Said::Ports(Ports::default()),
            Verb::Ping(_) => Said::Pong(Pong {
                guest_version: "fake".to_string(),
                uptime_ms: self.uptime_ms(),
                link_version: LINK_VERSION,
            }),
            Verb::Init(init) => {
                *lock(&self.identity) = init;
                return Ok(());
            }
            Verb::Metrics(_) => Said::Metrics(self.metrics()),
            Verb::SetClock(_) | Verb::Reseed(_) => return Ok(()),
            Verb::Shutdown(_) => {
                self.end("the guest was told to shut down");
                return Ok(());
            }
            Verb::Resize(_) => return Err(Failed::unsupported("resize a terminal")),
            files => return file_verbs::answer(self, files, stream).await,
        };
        Ok(note(&stream.tx, said).await?)
    }

    async fn start(self: &Arc<Self>, start: Start, stream: &mut Stream) -> Result<(), Failed> {
        let process = Process::start(self, &start)?;
        let manner = Manner {
            out: 0,
            err: 0,
            kill_on_reset: start.kill_on_reset,
            forget: start.forget,
        };
        if start.follow {
            return follow::follow(self, &process, stream, manner).await;
        }
        Ok(follow::greet(&process, &stream.tx, manner).await?)
    }

    async fn attach(self: &Arc<Self>, attach: Attach, stream: &mut Stream) -> Result<(), Failed> {
        let process = self.find(attach.process)?;
        let ends = process.ends();
        let (out, err) = match (attach.from_newest, attach.from_oldest) {
            (true, _) => ends,
            (_, true) => (0, 0),
            _ => (attach.out_from.min(ends.0), attach.err_from.min(ends.1)),
        };
        let manner = Manner {
            out,
            err,
            kill_on_reset: attach.kill_on_reset,
            forget: attach.forget,
        };
        follow::follow(self, &process, stream, manner).await
    }

    async fn input(&self, input: Input, stream: &mut Stream) -> Result<(), Failed> {
        let process = self.find(input.process)?;
        loop {
            match stream.rx.recv().await? {
                Event::Data { bytes, .. } => {
                    if !process.feed(bytes) {
                        return Err(Failed::new(Failure::Invalid, "its input is closed"));
                    }
                }
                Event::Message(_) => {}
                Event::Eof | Event::End(_) | Event::Reset => break,
            }
        }
        if input.close {
            process.close_input();
        }
        Ok(())
    }

    fn find(&self, selector: Option<Selector>) -> Result<Arc<Process>, Failed> {
        let wanted = selector.unwrap_or_default();
        let processes = lock(&self.processes);
        // A tag may have been used before: the youngest is meant.
        let found = processes
            .iter()
            .rev()
            .find(|process| match wanted.tag.is_empty() {
                true => process.pid == wanted.pid,
                false => process.tag == wanted.tag,
            });
        found
            .cloned()
            .ok_or_else(|| Failed::new(Failure::NotFound, "there is no such process"))
    }

    /// Enters a process, unless its tag is in use.
    pub fn enter(&self, process: Arc<Process>) -> Result<(), Failed> {
        let mut processes = lock(&self.processes);
        let taken = |other: &Arc<Process>| other.tag == process.tag && !other.has_exited();
        if !process.tag.is_empty() && processes.iter().any(taken) {
            let message = format!("a process tagged {:?} is running", process.tag);
            return Err(Failed::new(Failure::Exists, message));
        }
        // Checked under the lock that the machine's end drains under.
        if self.has_ended() {
            return Err(Failed::new(Failure::Cancelled, "the machine has ended"));
        }
        processes.push(process);
        Ok(())
    }

    pub fn forget(&self, process: &Arc<Process>) {
        lock(&self.processes).retain(|other| !Arc::ptr_eq(other, process));
    }

    pub fn next_pid(&self) -> u32 {
        self.next_pid.fetch_add(1, Ordering::Relaxed)
    }

    /// Environment, working directory and user of a new process.
    pub fn surroundings(&self, start: &Start) -> Result<(Variables, Vec<u8>, String), Failed> {
        let identity = lock(&self.identity).clone();
        let mut env = Variables::new();
        if !start.clear_env {
            env.insert("PATH".to_string(), "/bin".to_string());
            env.insert("HOME".to_string(), "/workspace".to_string());
            env.extend(identity.env);
        }
        env.extend(start.env.clone());
        let (cwd, asked) = match (start.cwd.is_empty(), identity.default_cwd.is_empty()) {
            (false, _) => (start.cwd.to_vec(), true),
            (true, false) => (identity.default_cwd.to_vec(), false),
            (true, true) => (b"/".to_vec(), false),
        };
        let cwd = match (self.tree().is_directory(&cwd), asked) {
            (true, _) => crate::files::normal(&cwd),
            (false, false) => b"/".to_vec(),
            (false, true) => {
                return Err(Failed {
                    kind: Failure::CannotRun,
                    ..Failed::missing(&cwd)
                });
            }
        };
        let user = [start.user.as_str(), &identity.default_user, "root"]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        Ok((env, cwd, user.to_string()))
    }

    fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn metrics(&self) -> Metrics {
        let alive: u32 = lock(&self.processes)
            .iter()
            .map(|p| p.describe().alive)
            .sum();
        Metrics {
            cpus: 1,
            memory_total_bytes: 1 << 30,
            processes: 1 + alive,
            uptime_ms: self.uptime_ms(),
            ..Metrics::default()
        }
    }
}

/// Closes a link when the task that serves it ends, however it ends.
struct Closing(Link);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn dial_echo(dial: Dial, stream: &mut Stream) -> Result<(), Failed> {
    if dial.port != ECHO_PORT || !dial.unix.is_empty() {
        return Err(Failed::new(Failure::NotFound, "nothing listens there"));
    }
    note(&stream.tx, Said::Connected(Connected {})).await?;
    loop {
        match stream.rx.recv().await? {
            Event::Data { bytes, .. } => {
                stream.tx.data(motu_link::frame::CHANNEL_OUT, bytes).await?;
            }
            Event::Message(_) => {}
            Event::Eof | Event::End(_) | Event::Reset => return Ok(()),
        }
    }
}
