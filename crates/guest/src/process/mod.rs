//! The verbs about processes. The submodules do the work.

mod follow;
mod look;
mod output;
mod plan;
mod reaper;
mod signals;
mod start;
mod tree;

pub use reaper::Reaper;
pub use tree::{Scan, kill as kill_tree, signal as signal_tree};

use crate::answer::{Failed, note};
use crate::blocking;
use crate::memory;
use crate::running::Process;
use crate::state::Guest;
use follow::{Follower, Manner};
use motu_link::Event;
use motu_link::message::{self, Attach, Failure, Processes, Resize, Said, Selector, Start};
use motu_link::mux::{Receiver, Sender};
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::Arc;

/// Size of one page of a listing.
const LISTING_BYTES: usize = 128 * 1024;

pub async fn start(
    guest: &Arc<Guest>,
    request: Start,
    tx: &Sender,
    rx: Receiver,
) -> Result<(), Failed> {
    let follow = request.follow;
    let manner = Manner {
        lossless: request.lossless && follow,
        kill_on_reset: request.kill_on_reset,
        forget: request.forget,
    };
    let mut follower = None;
    let ready = |process: &Arc<Process>| follower = Some(Follower::at(process, 0, 0, manner));
    memory::refresh_view(guest);
    start::start(guest, request, ready).await?;
    guest.started_one.notify_one();
    let Some(follower) = follower else {
        return Err(Failed::new(Failure::Io, "the process was not recorded"));
    };
    follower.greet(tx).await?;
    match follow {
        true => follower.follow(guest, tx, rx).await,
        false => Ok(()),
    }
}

pub async fn attach(
    guest: &Arc<Guest>,
    request: Attach,
    tx: &Sender,
    rx: Receiver,
) -> Result<(), Failed> {
    let process = guest.processes.find(request.process.as_ref())?;
    let (out, err) = if request.from_newest {
        (process.out.end(), process.err.end())
    } else if request.from_oldest {
        (
            process.out.with(|ring| ring.start()),
            process.err.with(|ring| ring.start()),
        )
    } else {
        (request.out_from, request.err_from)
    };
    let manner = Manner {
        lossless: request.lossless,
        kill_on_reset: request.kill_on_reset,
        forget: request.forget,
    };
    let follower = Follower::at(&process, out, err, manner);
    follower.greet(tx).await?;
    follower.follow(guest, tx, rx).await
}

pub async fn list(guest: &Arc<Guest>, tx: &Sender) -> Result<(), Failed> {
    let all = guest.processes.all();
    let scan = blocking::run(|| Ok(Scan::now())).await?;
    let mut page = Processes::default();
    let mut size = 0;
    for process in all {
        let alive = scan.tree(&process).len() as u32;
        if process.is_forgotten() && alive == 0 {
            continue;
        }
        let described = process.describe(alive);
        size += described.encoded_len();
        page.processes.push(described);
        if size >= LISTING_BYTES {
            note(tx, Said::Processes(std::mem::take(&mut page))).await?;
            size = 0;
        }
    }
    Ok(note(tx, Said::Processes(page)).await?)
}

pub async fn signal(guest: &Guest, request: &message::Signal) -> Result<(), Failed> {
    let process = guest.processes.find(request.process.as_ref())?;
    signals::send(&process, request.signal, request.tree).await
}

/// Signals the current foreground group of a terminal.
pub fn signal_foreground(guest: &Guest, request: &message::SignalForeground) -> Result<(), Failed> {
    let process = guest.processes.find(request.process.as_ref())?;
    signals::send_to_front(&process, request.signal)
}

/// Reports kernel facts about a terminal.
pub async fn look(guest: &Guest, selector: &Selector, tx: &Sender) -> Result<(), Failed> {
    let process = guest.processes.find(Some(selector))?;
    let facts = blocking::unless_gone(tx, look::look(&process)).await?;
    Ok(note(tx, Said::TerminalFacts(facts)).await?)
}

pub async fn input(
    guest: &Guest,
    request: message::Input,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let process = guest.processes.find(request.process.as_ref())?;
    if process.has_exited() {
        return Err(signals::ended(process.facts.pid));
    }
    loop {
        let mut pending = match rx.recv().await? {
            Event::Data { bytes, .. } => VecDeque::from([bytes]),
            Event::Eof => break,
            Event::Message(_) => continue,
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        };
        tokio::select! {
            () = process.stdin.feed(&mut pending, false) => {}
            _ = tx.closed() => return Err(Failed::cancelled()),
        }
    }
    if request.close {
        let mut nothing = VecDeque::new();
        tokio::select! {
            () = process.stdin.feed(&mut nothing, true) => {}
            _ = tx.closed() => return Err(Failed::cancelled()),
        }
    }
    Ok(())
}

pub fn resize(guest: &Guest, request: &Resize) -> Result<(), Failed> {
    let process = guest.processes.find(request.process.as_ref())?;
    let size = request
        .size
        .ok_or_else(|| Failed::invalid("no size given"))?;
    let terminal = process
        .terminal()
        .ok_or_else(|| Failed::invalid(format!("process {} has no terminal", process.facts.pid)))?;
    start::resize(terminal.get_ref(), &size)
        .map_err(|errno| Failed::errno("cannot resize the terminal", errno))
}

pub fn forget(guest: &Guest, selector: &Selector) -> Result<(), Failed> {
    let process = guest.processes.find(Some(selector))?;
    if !process.has_exited() {
        return Err(Failed::invalid(format!(
            "process {} is still running",
            process.facts.pid
        )));
    }
    follow::forget(guest, &process);
    Ok(())
}
