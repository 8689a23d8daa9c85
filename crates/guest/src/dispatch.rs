//! One stream: a request in, an outcome out. It decodes and forwards; every verb
//! lives in its own module.

use crate::answer::{Failed, note};
use crate::credentials::{self, User};
use crate::state::Guest;
use crate::{blocking, files, ports, process, system, workspace};
use bytes::Bytes;
use motu_link::message::{DoneAs, Failure, Long, Outcome, Request, Said, Verb};
use motu_link::mux::{Receiver, Sender, Stream};
use motu_link::{Event, Link};
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for the host to close the link after a shutdown was answered.
const HANG_UP: Duration = Duration::from_millis(500);

/// Serves one stream to its end.
pub async fn converse(guest: Arc<Guest>, link: Link, request: Bytes, stream: Stream) {
    let Stream { tx, rx } = stream;
    let verb = decoded(request);
    let last = matches!(verb, Ok(Verb::Shutdown(_)));
    let done = match verb {
        Ok(verb) => run(&guest, verb, &tx, rx).await,
        Err(failed) => Err(failed),
    };
    let outcome = done.map_or_else(Failed::outcome, |()| Outcome::ok());
    // A failed send means that the host is gone.
    let _ = tx.end(Bytes::from(outcome.encode_to_vec())).await;
    guest.rested.notify_one();
    if last {
        let _ = tokio::time::timeout(HANG_UP, link.closed()).await;
        guest.finish();
    }
}

fn decoded(request: Bytes) -> Result<Verb, Failed> {
    match Request::decode(request) {
        Ok(Request { verb: Some(verb) }) => Ok(verb),
        Ok(Request { verb: None }) => Err(unknown()),
        Err(error) => Err(Failed::invalid(format!(
            "the request is malformed: {error}"
        ))),
    }
}

fn unknown() -> Failed {
    let message = "this guest does not know the request";
    Failed::new(Failure::Unsupported, message)
}

/// A request for files, as a user.
async fn done_as(
    guest: &Arc<Guest>,
    request: DoneAs,
    tx: &Sender,
    rx: Receiver,
) -> Result<(), Failed> {
    let verb = decoded(request.request)?;
    let is_of_files = matches!(
        verb,
        Verb::Stat(_)
            | Verb::List(_)
            | Verb::Read(_)
            | Verb::Write(_)
            | Verb::Mkdir(_)
            | Verb::Remove(_)
            | Verb::Move(_)
            | Verb::Chmod(_)
            | Verb::Glob(_)
            | Verb::Watch(_)
            | Verb::TreeOut(_)
            | Verb::TreeIn(_)
            | Verb::Hash(_)
    );
    if !is_of_files {
        return Err(unknown());
    }
    let work = Box::pin(run(guest, verb, tx, rx));
    match User::find(&guest.users, &request.user)? {
        None => work.await,
        Some(user) => credentials::done_as(user, work).await,
    }
}

/// The longest request that comes as data.
const MAX_LONG: u64 = 20 * 1024 * 1024;

/// A request whose bytes are the first data of the stream.
async fn long(
    guest: &Arc<Guest>,
    request: Long,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    if request.bytes > MAX_LONG {
        let message = format!("a request has {} bytes", request.bytes);
        return Err(Failed::new(Failure::Limit, message));
    }
    let mut whole = Vec::with_capacity(request.bytes as usize);
    while (whole.len() as u64) < request.bytes {
        match rx.recv().await? {
            Event::Data { bytes, .. } => whole.extend_from_slice(&bytes),
            Event::Message(_) => {}
            Event::Eof | Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    match decoded(Bytes::from(whole))? {
        Verb::Start(start) => process::start(guest, start, tx, rx).await,
        _ => Err(unknown()),
    }
}

async fn run(guest: &Arc<Guest>, verb: Verb, tx: &Sender, rx: Receiver) -> Result<(), Failed> {
    match verb {
        Verb::DoneAs(request) => done_as(guest, request, tx, rx).await,
        Verb::Long(request) => long(guest, request, tx, rx).await,

        Verb::Start(request) => process::start(guest, request, tx, rx).await,
        Verb::Attach(request) => process::attach(guest, request, tx, rx).await,
        Verb::ListProcesses(_) => process::list(guest, tx).await,
        Verb::Signal(request) => process::signal(guest, &request).await,
        Verb::Input(request) => process::input(guest, request, tx, rx).await,
        Verb::Resize(request) => process::resize(guest, &request),
        Verb::Forget(selector) => process::forget(guest, &selector),
        Verb::LookAtTerminal(selector) => process::look(guest, &selector, tx).await,
        Verb::SignalForeground(request) => process::signal_foreground(guest, &request),

        Verb::Read(request) => files::read(guest, request, tx).await,
        Verb::Write(request) => files::write(guest, request, tx, rx).await,
        Verb::LendRead(request) => files::lend_read(guest, request, tx).await,
        Verb::LendWrite(request) => files::lend_write(guest, request, tx, rx).await,
        Verb::Watch(request) => files::watch(guest, request, tx).await,
        Verb::TreeOut(request) => files::tree_out(guest, request, tx).await,
        Verb::TreeIn(request) => files::tree_in(guest, request, tx, rx).await,
        Verb::Hash(request) => files::hash(guest, request, tx).await,
        Verb::Dial(request) => ports::dial(guest, request, tx, rx).await,

        Verb::Changes(request) => workspace::changes(guest, request, tx).await,
        Verb::ReadBase(request) => workspace::read_base(guest, request, tx).await,
        Verb::Pick(request) => workspace::pick(guest, request, tx, rx).await,
        Verb::Restore(request) => workspace::restore(guest, request, tx, rx).await,
        Verb::Apply(request) => workspace::apply(guest, request, tx, rx).await,

        Verb::Ping(_) => Ok(note(tx, Said::Pong(system::pong(guest))).await?),
        Verb::Init(request) => system::init(guest, request).await,
        Verb::Metrics(_) => Ok(note(tx, Said::Metrics(system::metrics(guest))).await?),
        Verb::SetClock(request) => system::set_clock(request.unix_ns),
        Verb::Reseed(request) => system::reseed(&request.entropy),
        Verb::Shutdown(request) => system::shutdown(guest, request.grace_ms).await,

        Verb::ListPorts(_) => {
            let found = blocking::unless_gone(tx, blocking::run(|| Ok(ports::listening()))).await?;
            Ok(note(tx, Said::Ports(found)).await?)
        }
        other => {
            let cancel = blocking::Cancel::default();
            let _cancelled_when_dropped = cancel.on_drop();
            let work = files::simple(guest, other, cancel, tx);
            blocking::unless_gone(tx, work).await
        }
    }
}
