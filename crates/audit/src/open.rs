//! Opens a log: finds its end, compares it with the expected one, and notes deviations.

use crate::Hash;
use crate::disk::sync_dir;
use crate::hex::hex;
use crate::key::Key;
use crate::record::Record;
use crate::segment::{End, HEAD, HEAD_BYTES, HEAD_PLACES, Segment, end, read_head};
use crate::state::{Settings, Shared};
use crate::writer::{Active, Fields, Writer, make_file, note};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::{Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// The log of a state directory, ready for appending.
pub fn open(home: &Path, settings: Settings, shared: Arc<Shared>) -> Result<Writer> {
    let dir = home.join("audit");
    let failed = |error| Error::io("open the audit log", &error);
    let path = home.join("audit.key");
    if !dir.exists() && Key::read(&path)?.is_some() {
        return Err(gone());
    }
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(failed)?;
    let mut segments = Segment::list(&dir).map_err(failed)?;
    let (key, is_new) = find_key(&path, segments.last())?;
    let key = Arc::new(key);
    if let Some(begun) = adopt_next(&dir, segments.last(), &key).map_err(failed)? {
        segments.push(begun);
    }
    let (head, pointed) = open_head(&dir, &key).map_err(failed)?;
    let mut writer = Writer {
        active: Active {
            file: File::open(&dir).map_err(failed)?,
            segment: Segment::new(&dir, 1),
            offset: 0,
            room: 0,
            index: None,
        },
        flips: pointed.as_ref().map_or(0, |(_, place)| place + 1),
        dir,
        key,
        settings,
        shared,
        spare: None,
        seq: 1,
        prev: Hash::default(),
        head,
    };
    let pointed = pointed.map(|(record, _)| record);
    let mut notes = Vec::new();
    match segments.last() {
        Some(last) => notes.extend(go_on(&mut writer, last, pointed.as_ref())?),
        None => {
            match &pointed {
                Some(pointed) => notes.push(lost_end(pointed, 0)),
                None if is_new => {}
                None => return Err(gone()),
            }
            let file = make_file(&writer.dir.join("next")).map_err(failed)?;
            writer.begin(file).map_err(failed)?;
        }
    }
    notes.push(note("opened", json!({"motu": env!("CARGO_PKG_VERSION")})));
    writer.append(notes)?;
    writer.head.sync_data().map_err(failed)?;
    if is_new {
        Key::keep(&path)?;
    }
    writer.retire();
    Ok(writer)
}

/// A key has its name only when its log is there, so a key without one has lost it.
fn gone() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the audit log is gone and audit.key, which signed it, is there",
    )
    .hint("bring `audit/` back from a backup, or move audit.key away too to begin a new log")
}

/// The key, and whether it has yet to be given its name. It is made if there is neither key nor
/// log; a log without its key never gets another one.
fn find_key(path: &Path, last: Option<&Segment>) -> Result<(Key, bool)> {
    if let Some(key) = Key::read(path)? {
        return Ok((key, false));
    }
    let Some(last) = last else {
        return Ok((Key::draft(path)?, true));
    };
    // A crash before the first log was whole.
    let bytes =
        std::fs::read(&last.path).map_err(|error| Error::io("open the audit log", &error))?;
    match Key::drafted(path).filter(|key| end(&bytes, &key.public()).is_some()) {
        Some(key) => Ok((key, true)),
        None => Err(Error::new(
            ErrorKind::Unavailable,
            "audit.key is gone and its log is there",
        )
        .hint("bring audit.key back from a backup, or move `audit/` away to begin a new log")),
    }
}

/// Gives a segment its name that a crash left without: its first records are on the disk, and the
/// head may say so.
fn adopt_next(dir: &Path, last: Option<&Segment>, key: &Key) -> io::Result<Option<Segment>> {
    let path = dir.join("next");
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let Some(first) = Record::read(line)
        .ok()
        .filter(|first| first.kind() == "segment")
    else {
        return Ok(None);
    };
    if end(&bytes, &key.public()).is_none() {
        return Ok(None);
    }
    let follows = match last {
        None => first.seq == 1 && first.prev == Hash::default(),
        Some(last) => {
            let before = end(&std::fs::read(&last.path)?, &key.public());
            before.is_some_and(|before| {
                before.sealed && first.seq == before.seq + 1 && first.prev == before.hash
            })
        }
    };
    if !follows {
        return Ok(None);
    }
    let segment = Segment::new(dir, first.seq);
    std::fs::rename(&path, &segment.path)?;
    sync_dir(dir)?;
    Ok(Some(segment))
}

/// The head file, with its checkpoint and position.
fn open_head(dir: &Path, key: &Key) -> io::Result<(File, Option<(Record, usize)>)> {
    let path = dir.join(HEAD);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)?;
    let mut bytes = Vec::new();
    (&file).take(HEAD_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.len() < HEAD_BYTES {
        file.write_all_at(&vec![0; HEAD_BYTES - bytes.len()], bytes.len() as u64)?;
        file.sync_all()?;
        sync_dir(dir)?;
    }
    let found = read_head(&bytes, &key.public());
    let place = |record: &Record| {
        let at = |at: &u64| bytes[*at as usize..].starts_with(&crate::canonical(&record.value));
        HEAD_PLACES.iter().position(at).unwrap_or(0)
    };
    Ok((
        file,
        found.map(|record| {
            let place = place(&record);
            (record, place)
        }),
    ))
}

/// Continues after the last checkpoint. Returns notes about what was found after it.
fn go_on(writer: &mut Writer, last: &Segment, pointed: Option<&Record>) -> Result<Vec<Fields>> {
    let failed = |error| Error::io("open the audit log", &error);
    let bytes = std::fs::read(&last.path).map_err(failed)?;
    let found = end(&bytes, &writer.key.public()).ok_or_else(|| {
        Error::new(
            ErrorKind::Unavailable,
            format!("{} has no checkpoint of audit.key", last.name()),
        )
        .hint(hint![
            verb("verify_audit"),
            " says more; move `audit/` and audit.key away to begin a new log"
        ])
    })?;
    let mut notes = Vec::new();
    match pointed {
        Some(pointed) if pointed.seq > found.seq => notes.push(lost_end(pointed, found.seq)),
        Some(pointed) if pointed.seq == found.seq && pointed.hash != found.hash => {
            notes.push(lost_end(pointed, found.seq));
        }
        Some(_) => {}
        None => notes.push(note("head_lost", json!({"found": found.seq}))),
    }
    let file = OpenOptions::new().read(true).write(true).open(&last.path);
    let file = file.map_err(failed)?;
    notes.extend(cut(&writer.dir, &file, &bytes, &found).map_err(failed)?);
    writer.seq = found.seq + 1;
    writer.prev = found.hash;
    if found.sealed {
        file.set_len(found.offset)
            .and_then(|()| file.sync_all())
            .map_err(failed)?;
        let next = make_file(&writer.dir.join("next")).map_err(failed)?;
        writer.begin(next).map_err(failed)?;
    } else {
        writer.active = Active {
            file,
            segment: last.clone(),
            offset: found.offset,
            room: bytes.len() as u64,
            index: None,
        };
    }
    Ok(notes)
}

/// Removes what a crash left after the last checkpoint: it was never acknowledged.
fn cut(dir: &Path, file: &File, bytes: &[u8], found: &End) -> io::Result<Option<Fields>> {
    let tail = &bytes[found.offset as usize..];
    let Some(last) = tail.iter().rposition(|&byte| byte != 0) else {
        return Ok(None);
    };
    let torn = &tail[..=last];
    std::fs::write(dir.join(format!("torn-{}", found.seq + 1)), torn)?;
    file.write_all_at(&vec![0; torn.len()], found.offset)?;
    file.sync_all()?;
    Ok(Some(note(
        "torn_tail",
        json!({"bytes": torn.len(), "sha256": hex(digest(&SHA256, torn).as_ref())}),
    )))
}

fn lost_end(pointed: &Record, found: u64) -> Fields {
    tracing::error!(
        expected = pointed.seq,
        found,
        "records at the end of the audit log were lost"
    );
    note(
        "end_lost",
        json!({"expected": pointed.seq, "hash": hex(&pointed.hash), "found": found}),
    )
}
