//! One stream: a request in, an outcome out. It decodes and forwards; every verb
//! lives in its own module.

use crate::answer::{Failed, note};
use crate::state::Guest;
use crate::{blocking, files, ports, process, system, workspace};
use bytes::Bytes;
use motu_link::Link;
use motu_link::message::{Failure, Outcome, Request, Said, Verb};
use motu_link::mux::{Receiver, Sender, Stream};
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for the host to close the link after a shutdown was answered.
const HANG_UP: Duration = Duration::from_millis(500);

/// Serves one stream to its end.
pub async fn converse(guest: Arc<Guest>, link: Link, request: Bytes, stream: Stream) {
    let Stream { tx, rx } = stream;
    let verb = match Request::decode(request) {
        Ok(Request { verb: Some(verb) }) => Ok(verb),
        Ok(Request { verb: None }) => Err(Failed::new(
            Failure::Unsupported,
            "this guest does not know the request",
        )),
        Err(error) => Err(Failed::invalid(format!(
            "the request is malformed: {error}"
        ))),
    };
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

async fn run(guest: &Arc<Guest>, verb: Verb, tx: &Sender, rx: Receiver) -> Result<(), Failed> {
    match verb {
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
