//! Programs run on behalf of a build.
//!
//! Starts programs in their own process group with a small environment, reads their output, and
//! kills them all when the build is cancelled. It never interprets what they do.

use std::{
    collections::VecDeque,
    env,
    io::{self, BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::error::EnvironmentError;

/// Lines of output kept for error messages.
const TAIL_LINES: usize = 40;
/// Longest line taken from a program.
const MAX_LINE_BYTES: u64 = 4096;

/// Variables that programs inherit: PATH, and proxies.
const PASSED_ON: [&str; 13] = [
    "PATH",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// The PATH of administrators, added to the caller's.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Ends the programs of one build from any thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel(Arc<CancelState>);

#[derive(Debug, Default)]
struct CancelState {
    cancelled: AtomicBool,
    /// Running process groups. A group is removed from this list before its leader is reaped, so a
    /// reused pid is never signalled.
    groups: Mutex<Vec<Pid>>,
}

impl Cancel {
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    pub fn cancel(&self) {
        let groups = self.groups();
        // Under the lock: a program started later sees the flag.
        self.0.cancelled.store(true, Ordering::SeqCst);
        for group in groups.iter() {
            // A group that is gone already is no error.
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }

    /// Cancels when dropped, as a future is.
    pub fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Exit {
    pub status: ExitStatus,
    /// Last lines of its standard error.
    pub tail: String,
}

/// A running program. Dropping it kills its group and waits for it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    group: Pid,
    cancel: Cancel,
    follower: Option<thread::JoinHandle<String>>,
    reaped: bool,
}

/// Starts `command` with piped standard streams. `on_line` sees each line of
/// its standard error.
pub(crate) fn start(
    mut command: Command,
    cancel: &Cancel,
    scratch: &Path,
    on_line: impl FnMut(&str) + Send + 'static,
) -> io::Result<Running> {
    use std::os::unix::process::CommandExt as _;

    set_environment(&mut command, scratch);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir(scratch)
        .process_group(0);
    let mut groups = cancel.groups();
    if cancel.is_cancelled() {
        return Err(io::Error::from(io::ErrorKind::Interrupted));
    }
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    groups.push(group);
    drop(groups);
    let stderr = child.stderr.take().expect("stderr was piped above");
    let follower = thread::spawn(move || follow(stderr, on_line));
    Ok(Running {
        child,
        group,
        cancel: cancel.clone(),
        follower: Some(follower),
        reaped: false,
    })
}

/// Runs a program to its end and returns its standard output.
pub(crate) fn output(
    command: Command,
    cancel: &Cancel,
    scratch: &Path,
    limit: u64,
) -> io::Result<(Exit, Vec<u8>)> {
    let mut running = start(command, cancel, scratch, |_| {})?;
    drop(running.take_stdin());
    let mut out = Vec::new();
    running
        .take_stdout()
        .take(limit + 1)
        .read_to_end(&mut out)?;
    if out.len() as u64 > limit {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok((running.finish()?, out))
}

impl Running {
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("stdin is taken once")
    }

    pub fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("stdout is taken once")
    }

    pub fn kill(&self) {
        if !self.reaped {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }

    /// Waits for the end of the program and of everything that shares its standard error.
    pub fn finish(mut self) -> io::Result<Exit> {
        let status = self.reap()?;
        let tail = match self.follower.take() {
            Some(follower) => follower.join().unwrap_or_default(),
            None => String::new(),
        };
        Ok(Exit { status, tail })
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        // Wait without reaping, so that the pid is not reused before the group has left the list.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(error) = waitid(WaitId::Pid(self.group), options) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        self.cancel.groups().retain(|group| *group != self.group);
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.kill();
        if let Err(error) = self.reap() {
            tracing::warn!(%error, "waiting for a build program failed");
        }
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
    }
}

/// Whether `tool` can be run.
pub(crate) fn require(tool: &str, hint: &str) -> Result<(), EnvironmentError> {
    let found = env::split_paths(&search_path()).any(|dir| dir.join(tool).is_file());
    if found {
        return Ok(());
    }
    Err(EnvironmentError::ToolMissing {
        tool: tool.to_owned(),
        hint: hint.to_owned(),
    })
}

fn search_path() -> String {
    match env::var("PATH") {
        Ok(path) if !path.is_empty() => format!("{path}:{SYSTEM_PATH}"),
        _ => SYSTEM_PATH.to_owned(),
    }
}

fn set_environment(command: &mut Command, scratch: &Path) {
    // Keep variables that the caller has set on the command.
    let own: Vec<_> = command
        .get_envs()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
        .collect();
    command.env_clear();
    for key in PASSED_ON {
        if let Some(value) = env::var_os(key) {
            command.env(key, value);
        }
    }
    command
        .env("PATH", search_path())
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", scratch)
        .env("TMPDIR", scratch)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .envs(own);
}

/// Reads lines until all writers are gone; returns the last ones.
fn follow(stream: impl Read, mut on_line: impl FnMut(&str)) -> String {
    let mut reader = BufReader::new(stream);
    let mut tail = VecDeque::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        // Progress bars overwrite one line; keep its last state.
        let text = text.trim_end().rsplit('\r').next().unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        on_line(text);
        if tail.len() == TAIL_LINES {
            tail.pop_front();
        }
        tail.push_back(text.to_owned());
    }
    Vec::from(tail).join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_status_and_tail_are_kept_apart() {
        let script = "echo out; for i in $(seq 50); do echo line $i >&2; done; exit 3";
        let (exit, out) =
            output(shell(script), &Cancel::default(), Path::new("/tmp"), 100).unwrap();
        assert_eq!(out, b"out\n");
        assert_eq!(exit.status.code(), Some(3));
        assert_eq!(exit.tail.lines().count(), TAIL_LINES);
        assert!(exit.tail.ends_with("line 50"));
    }

    #[test]
    fn too_much_output_is_an_error_and_ends_the_program() {
        let error = output(shell("yes"), &Cancel::default(), Path::new("/tmp"), 100).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn cancelling_ends_children_of_children() {
        let cancel = Cancel::default();
        let remote = cancel.clone();
        let started = Instant::now();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            remote.cancel();
        });
        let script = "sleep 60 & sleep 60";
        let (exit, _) = output(shell(script), &cancel, Path::new("/tmp"), 100).unwrap();
        assert!(!exit.status.success());
        assert!(started.elapsed() < Duration::from_secs(10));
        let refused = output(shell("true"), &cancel, Path::new("/tmp"), 100).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn secrets_of_the_caller_are_not_passed_on() {
        let (_, out) = output(shell("env"), &Cancel::default(), Path::new("/tmp"), 10_000).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("TMPDIR=/tmp"), "{text}");
        assert!(!text.contains("CARGO"), "{text}");
    }
}
