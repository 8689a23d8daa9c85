//! Sending signals to a started process.

use super::tree;
use crate::answer::Failed;
use crate::running::Process;
use crate::sys;
use motu_link::message::Failure;
use rustix::io::Errno;

/// Sends a signal to the process group, or to every descendant. A tree that is sent SIGKILL is gone
/// when this returns, even if it keeps forking.
pub async fn send(process: &Process, signal: i32, whole_tree: bool) -> Result<(), Failed> {
    if !whole_tree {
        return send_to_group(process, signal);
    }
    check(signal)?;
    let pid = process.facts.pid;
    if signal == libc::SIGKILL && tree::is_alive(process) {
        return match tree::kill(process).await {
            true => Ok(()),
            false => {
                let message = format!("some of the tree of process {pid} cannot be killed");
                Err(Failed::new(Failure::Io, message))
            }
        };
    }
    match tree::signal(process, signal) {
        0 => Err(ended(pid)),
        _ => Ok(()),
    }
}

/// Sends a signal to the process group, or to a terminal's foreground group.
pub fn send_to_group(process: &Process, signal: i32) -> Result<(), Failed> {
    check(signal)?;
    let pid = process.facts.pid;
    if !process.may_live() {
        return Err(ended(pid));
    }
    let group = foreground(process, signal).unwrap_or(pid as i32);
    match sys::kill(-group, signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(ended(pid)),
        Err(errno) => Err(Failed::errno(format!("cannot signal process {pid}"), errno)),
    }
}

/// Sends a signal to the foreground group of the process's terminal.
pub fn send_to_front(process: &Process, signal: i32) -> Result<(), Failed> {
    check(signal)?;
    let pid = process.facts.pid;
    let terminal = process.terminal().filter(|_| process.may_live());
    let terminal = terminal.ok_or_else(|| ended(pid))?;
    let group = rustix::termios::tcgetpgrp(terminal.get_ref()).map_err(|errno| {
        // gVisor tells the foreground group only to processes on that terminal.
        let message = "this machine's kernel does not tell who is in front";
        Failed::errno_as(Failure::Unsupported, message, errno)
    })?;
    match sys::kill(-group.as_raw_nonzero().get(), signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(Failed::new(
            Failure::NotFound,
            "the program in front has ended",
        )),
        Err(errno) => Err(Failed::errno("cannot signal the program in front", errno)),
    }
}

fn check(signal: i32) -> Result<(), Failed> {
    match (1..=64).contains(&signal) {
        true => Ok(()),
        false => Err(Failed::invalid(format!(
            "{signal} is not a signal (1 to 64)"
        ))),
    }
}

/// The error for a process that has ended.
pub fn ended(pid: u32) -> Failed {
    Failed::new(Failure::NotFound, format!("process {pid} has ended"))
}

/// The group that a signal typed at the terminal would reach.
fn foreground(process: &Process, signal: i32) -> Option<i32> {
    let typed = [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGWINCH,
        libc::SIGCONT,
    ];
    let terminal = process.terminal().filter(|_| typed.contains(&signal))?;
    let group = rustix::termios::tcgetpgrp(terminal.get_ref()).ok()?;
    Some(group.as_raw_nonzero().get())
}
