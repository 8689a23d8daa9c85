//! Sending signals to a started process.

use super::record::Process;
use super::tree;
use crate::answer::Failed;
use crate::sys;
use motu_link::message::Failure;
use rustix::io::Errno;

/// Sends a signal to the process group, or to every descendant. A whole tree that is killed is gone
/// when this returns, however much it forks.
pub async fn send(process: &Process, signal: i32, whole_tree: bool) -> Result<(), Failed> {
    if whole_tree && signal == libc::SIGKILL && tree::is_alive(process) {
        return match tree::kill(process).await {
            true => Ok(()),
            false => Err(Failed::new(
                Failure::Io,
                format!("some of process {} cannot be killed", process.facts.pid),
            )),
        };
    }
    send_once(process, signal, whole_tree)
}

fn send_once(process: &Process, signal: i32, whole_tree: bool) -> Result<(), Failed> {
    if !(1..=64).contains(&signal) {
        return Err(Failed::invalid(format!(
            "{signal} is not a signal (1 to 64)"
        )));
    }
    let pid = process.facts.pid;
    let ended = || Failed::new(Failure::NotFound, format!("process {pid} has ended"));
    if whole_tree {
        return match tree::signal(process, signal) {
            0 => Err(ended()),
            _ => Ok(()),
        };
    }
    if !process.may_live() {
        return Err(ended());
    }
    let group = foreground(process, signal).unwrap_or(pid as i32);
    match sys::kill(-group, signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(ended()),
        Err(errno) => Err(Failed::errno(format!("cannot signal process {pid}"), errno)),
    }
}

/// The group that a signal typed at a terminal would reach.
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
