//! A fake machine: its files, its processes, whether it is paused, and its end.

use crate::answer::Failed;
use crate::files::Tree;
use crate::process::{Process, Variables, lock};
use motu_link::message::{Failure, Init, Metrics, Selector, Start};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::watch;

#[derive(Debug)]
pub struct Machine {
    tree: Mutex<Tree>,
    identity: Mutex<Init>,
    processes: Mutex<Vec<Arc<Process>>>,
    next_pid: AtomicU32,
    started: Instant,
    paused: watch::Sender<bool>,
    ended: watch::Sender<Option<String>>,
    /// Incremented whenever all links are cut.
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

    /// Waits while the machine is paused.
    pub async fn not_paused(&self) {
        // `self` holds the sender, so waiting cannot fail.
        let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
    }

    pub fn cut_links(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends the machine once; the first reason counts.
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

    /// Waits for the end; returns the reason.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub fn find(&self, selector: Option<Selector>) -> Result<Arc<Process>, Failed> {
        let wanted = selector.unwrap_or_default();
        let processes = lock(&self.processes);
        // A tag may be reused: take the newest.
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
        // Checked under the lock that `end` drains under.
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

    pub fn set_identity(&self, identity: Init) {
        *lock(&self.identity) = identity;
    }

    pub fn processes(&self) -> Vec<Arc<Process>> {
        lock(&self.processes).clone()
    }

    /// Notifies about all further cuts of links.
    pub fn cuts(&self) -> watch::Receiver<u64> {
        let mut cuts = self.cuts.subscribe();
        cuts.mark_unchanged();
        cuts
    }

    pub fn uptime_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub fn metrics(&self) -> Metrics {
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
