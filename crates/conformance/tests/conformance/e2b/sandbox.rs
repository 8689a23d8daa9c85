//! A machine of the test service: a directory, and processes with its mark.

use super::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The variable that marks processes of a machine.
pub const MARK: &str = "E2B_SANDBOX_ID";

pub struct Sandbox {
    pub id: String,
    pub token: String,
    pub template: String,
    pub metadata: Value,
    pub home: PathBuf,
    pub processes: Mutex<BTreeMap<u32, Arc<Process>>>,
    paused: AtomicBool,
    /// Processes stopped by the pause.
    stopped: Mutex<Vec<Pid>>,
    /// The last timeout.
    seconds: AtomicU64,
}

impl Sandbox {
    pub fn new(machines: &Path, id: String, template: &str, metadata: Value) -> Sandbox {
        let home = machines.join(&id).join("home");
        std::fs::create_dir_all(home.join("../tmp")).expect("a directory");
        std::fs::create_dir_all(&home).expect("a directory");
        Sandbox {
            token: motu_core::id::random_name(32),
            template: template.to_string(),
            metadata,
            home: home.canonicalize().expect("it is there"),
            id,
            processes: Mutex::default(),
            paused: AtomicBool::new(false),
            stopped: Mutex::default(),
            seconds: AtomicU64::new(0),
        }
    }

    pub fn tmp(&self) -> PathBuf {
        self.home.with_file_name("tmp")
    }

    pub fn prolong(&self, seconds: u64) {
        self.seconds.store(seconds, Ordering::SeqCst);
    }

    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Stops all processes and cuts all streams. Returns whether it was running.
    pub fn pause(&self) -> bool {
        if self.paused.swap(true, Ordering::SeqCst) {
            return false;
        }
        // Processes that were stopped before must stay stopped afterwards.
        let running = self.own().into_iter().filter(|pid| !is_stopped(*pid));
        let running: Vec<Pid> = running.collect();
        signal(&running, Signal::STOP);
        *self.stopped.lock().expect("not poisoned") = running;
        self.cut();
        true
    }

    /// Returns whether it was paused.
    pub fn resume(&self) -> bool {
        let was = self.paused.swap(false, Ordering::SeqCst);
        let stopped = std::mem::take(&mut *self.stopped.lock().expect("not poisoned"));
        signal(&stopped, Signal::CONT);
        was
    }

    /// Kills every process, and ends every stream without an end message.
    pub fn end(&self) {
        self.paused.store(true, Ordering::SeqCst);
        self.cut();
        // Processes may fork while being killed, so repeat.
        while signal(&self.own(), Signal::KILL) > 0 {}
        let all = std::mem::take(&mut *self.processes.lock().expect("not poisoned"));
        for process in all.into_values() {
            process.join();
        }
        let own = self.home.parent().expect("a directory of its own");
        std::fs::remove_dir_all(own).expect("the machine's files go");
    }

    pub fn cut(&self) {
        for process in self.processes.lock().expect("not poisoned").values() {
            process.cut();
        }
    }

    /// All processes with this machine's mark.
    fn own(&self) -> Vec<Pid> {
        let mark = format!("{MARK}={}", self.id);
        let marked = |entry: &std::fs::DirEntry| {
            // Ended and foreign processes cannot be read.
            let around = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            around
                .split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes())
        };
        let number = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            Pid::from_raw(name.parse().ok()?)
        };
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        all.filter(marked).filter_map(number).collect()
    }
}

fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") T "))
}

/// Signals processes; returns how many existed.
fn signal(pids: &[Pid], signal: Signal) -> usize {
    let sent = pids
        .iter()
        .filter(|pid| kill_process(**pid, signal).is_ok());
    sent.count()
}
