//! Answers file verbs from the tree.

use crate::answer::{Failed, note};
use crate::archive;
use crate::files::Put;
use crate::machine::Machine;
use bytes::{Bytes, BytesMut};
use motu_link::frame::CHANNEL_IN;
use motu_link::message::{Digest, Entries, Entry, Failure, Read, Said, Verb, Write};
use motu_link::{Event, LinkError, Stream};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Answers a file verb.
pub async fn answer(machine: &Arc<Machine>, verb: Verb, stream: &mut Stream) -> Result<(), Failed> {
    let said = match verb {
        Verb::Read(read) => return send(machine, read, stream).await,
        Verb::Write(write) => one(receive(machine, write, stream).await?),
        Verb::Stat(stat) => one(machine.tree().stat(&stat.path)?),
        Verb::List(list) => Said::Entries(machine.tree().list(
            &list.path,
            list.depth,
            &list.after,
            list.limit,
        )?),
        Verb::Mkdir(mkdir) => one(machine
            .tree()
            .mkdir(&mkdir.path, mkdir.parents, mkdir.mode)?),
        Verb::Remove(remove) => return machine.tree().remove(&remove.path, remove.recursive),
        Verb::Move(wanted) => {
            one(machine
                .tree()
                .rename(&wanted.from, &wanted.to, wanted.overwrite)?)
        }
        Verb::Chmod(chmod) => one(machine.tree().chmod(&chmod.path, chmod.mode)?),
        Verb::Glob(glob) => Said::Entries(machine.tree().glob(&glob.pattern, glob.limit)),
        Verb::Hash(hash) => {
            let (_, content) = machine.tree().read(&hash.path)?;
            Said::Digest(Digest {
                sha256: Bytes::copy_from_slice(&Sha256::digest(&content)),
                size: content.len() as u64,
            })
        }
        Verb::Watch(_) => return Err(Failed::unsupported("watch files")),
        Verb::TreeOut(out) => {
            let archive = archive::pack(&machine.tree(), &out.path)?;
            return Ok(stream.tx.data(CHANNEL_IN, archive).await?);
        }
        Verb::TreeIn(into) => {
            let archive = content(stream).await?;
            Said::TreeDone(archive::unpack(&mut machine.tree(), &into.path, &archive)?)
        }
        Verb::DoneAs(_) => return Err(Failed::unsupported("look after files as a user")),
        Verb::Long(_) => return Err(Failed::unsupported("take long requests")),
        _ => return Err(Failed::unsupported("do that")),
    };
    Ok(note(&stream.tx, said).await?)
}

fn one(entry: Entry) -> Said {
    Said::Entries(Entries {
        entries: vec![entry],
        next: Bytes::new(),
    })
}

async fn send(machine: &Machine, read: Read, stream: &mut Stream) -> Result<(), Failed> {
    let (entry, content) = machine.tree().read(&read.path)?;
    note(&stream.tx, one(entry)).await?;
    let from = usize::try_from(read.offset).map_or(content.len(), |from| from.min(content.len()));
    let most = match read.length {
        0 => usize::MAX,
        length => usize::try_from(length).unwrap_or(usize::MAX),
    };
    let to = from.saturating_add(most).min(content.len());
    Ok(stream.tx.data(CHANNEL_IN, content.slice(from..to)).await?)
}

/// Reads the whole content first: an abandoned write changes nothing.
async fn content(stream: &mut Stream) -> Result<Bytes, Failed> {
    let mut content = BytesMut::new();
    loop {
        match stream.rx.recv().await? {
            Event::Data { bytes, .. } => content.extend_from_slice(&bytes),
            Event::Eof => return Ok(content.freeze()),
            Event::Message(_) => {}
            Event::Reset | Event::End(_) => return Err(LinkError::Reset.into()),
        }
    }
}

async fn receive(machine: &Machine, write: Write, stream: &mut Stream) -> Result<Entry, Failed> {
    let content = content(stream).await?;
    if write.path.is_empty() {
        return Err(Failed::new(Failure::Invalid, "no path"));
    }
    let how = Put {
        mode: write.mode,
        parents: write.parents,
        append: write.append,
        create_new: write.create_new,
        expected: write.expected,
    };
    machine.tree().put(&write.path, content, how)
}
