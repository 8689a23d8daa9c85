//! One host following one process: output out, input and controls in.

use crate::answer::{Failed, note};
use crate::machine::Machine;
use crate::process::Process;
use bytes::Bytes;
use motu_link::frame::{CHANNEL_ERR, CHANNEL_OUT, MAX_PAYLOAD};
use motu_link::message::{Control, Do, Said, Started};
use motu_link::{Event, LinkError, Receiver, Sender, Stream};
use prost::Message as _;
use std::sync::Arc;

/// A follower's position, and what happens when it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub out: u64,
    pub err: u64,
    pub kill_on_reset: bool,
    pub forget: bool,
}

/// Follows a process to its end, or until the host is gone.
pub async fn follow(
    machine: &Arc<Machine>,
    process: &Arc<Process>,
    stream: &mut Stream,
    manner: Manner,
) -> Result<(), Failed> {
    greet(process, &stream.tx, manner).await?;
    let left = tokio::select! {
        delivered = deliver(process, &stream.tx, manner) => match delivered {
            Ok(()) => {
                if manner.forget {
                    machine.forget(process);
                }
                return Ok(());
            }
            Err(error) => error,
        },
        error = listen(process, &mut stream.rx) => error,
    };
    if left == LinkError::Reset && manner.kill_on_reset {
        process.signal(9);
        machine.forget(process);
    }
    Err(left.into())
}

/// Sends the `Started` note.
pub async fn greet(process: &Process, tx: &Sender, manner: Manner) -> Result<(), LinkError> {
    let started = Started {
        pid: process.pid,
        tag: process.tag.clone(),
        out_from: manner.out,
        err_from: manner.err,
        started_unix_ms: process.started_unix_ms,
    };
    note(tx, Said::Started(started)).await
}

async fn deliver(process: &Process, tx: &Sender, manner: Manner) -> Result<(), LinkError> {
    let mut progress = process.progress();
    let mut at = [manner.out, manner.err];
    loop {
        let exited = progress.borrow_and_update().exited;
        let mut moved = false;
        for (channel, at) in [CHANNEL_OUT, CHANNEL_ERR].into_iter().zip(&mut at) {
            let bytes = process.output(channel, *at, MAX_PAYLOAD);
            moved |= !bytes.is_empty();
            *at += bytes.len() as u64;
            tx.data(channel, bytes).await?;
        }
        match exited {
            _ if moved => {}
            Some(exited) => return note(tx, Said::Exited(exited)).await,
            None => {
                // `process` holds the sender, so waiting cannot fail.
                let _ = progress.changed().await;
            }
        }
    }
}

/// Handles input and controls until the host is gone.
async fn listen(process: &Process, rx: &mut Receiver) -> LinkError {
    loop {
        match rx.recv().await {
            Ok(Event::Data { bytes, .. }) => drop(process.feed(bytes)),
            Ok(Event::Eof) => process.close_input(),
            Ok(Event::Message(bytes)) => control(process, bytes),
            Ok(Event::Reset | Event::End(_)) => return LinkError::Reset,
            Err(error) => return error,
        }
    }
}

fn control(process: &Process, bytes: Bytes) {
    if let Some(Do::Signal(signal)) = Control::decode(bytes).ok().and_then(|control| control.what) {
        process.signal(signal.signal);
    }
}
