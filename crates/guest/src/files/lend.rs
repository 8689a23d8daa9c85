//! Files that the host reads or writes by itself, where both share a kernel.

use super::{read, write};
use crate::answer::{Failed, note};
use crate::blocking;
use crate::place::Place;
use crate::state::Guest;
use bytes::Bytes;
use motu_link::Event;
use motu_link::message::{Lent, Read, Said, Write};
use motu_link::mux::{Receiver, Sender};
use rustix::fs::Mode;
use std::sync::Arc;

pub async fn lend_read(guest: &Arc<Guest>, request: Read, tx: &Sender) -> Result<(), Failed> {
    let place = Place::parse(&request.path)?;
    let fd = read::open(guest, &request, &place, tx).await?;
    let mut offered = guest.lent.offer(fd)?;
    let token = Bytes::copy_from_slice(&offered.token);
    note(tx, Said::Lent(Lent { token })).await?;
    let taken = async {
        offered.taken().await;
        Ok(())
    };
    blocking::unless_gone(tx, taken).await
}

/// The file has the bits of the request even where it replaces another: it is a copy, not new
/// contents of the old one.
pub async fn lend_write(
    guest: &Arc<Guest>,
    request: Write,
    tx: &Sender,
    mut rx: Receiver,
) -> Result<(), Failed> {
    let mode = Mode::from_raw_mode(request.mode & 0o777);
    let sink = write::open(guest, request).await?;
    let failed = |errno| sink.place.failed(errno);
    if !mode.is_empty() {
        rustix::fs::fchmod(&sink.fd, mode).map_err(failed)?;
    }
    let lent = sink.fd.try_clone();
    let lent = lent.map_err(|_| failed(rustix::io::Errno::MFILE))?;
    let offered = guest.lent.offer(lent)?;
    let token = Bytes::copy_from_slice(&offered.token);
    note(tx, Said::Lent(Lent { token })).await?;
    loop {
        match rx.recv().await? {
            Event::Eof => break,
            Event::Data { .. } | Event::Message(_) => {}
            Event::End(_) | Event::Reset => return Err(Failed::cancelled()),
        }
    }
    drop(offered);
    write::put(guest, sink, tx).await
}
