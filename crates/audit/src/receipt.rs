//! Receipts: entries that prove themselves, and their verification.

use crate::hex::hex;
use crate::index::{Calls, Want};
use crate::key::PublicKey;
use crate::record::{Flaw, Record};
use crate::segment::lines;
use crate::{Hash, VERSION, tree};
use motu_core::audit::{AuditId, Receipt, unknown};
use motu_core::{Error, Result};

/// The receipt of a call, for its last entry, which has the result.
pub fn find(calls: &Calls, id: &AuditId, key: &PublicKey) -> Result<Receipt> {
    let mut found = None;
    let wanted = Want::default().id(id.as_str());
    let read = calls.bytes_back(&wanted, |bytes| {
        found = in_segment(&lines(bytes).0, id, key);
        found.is_none()
    });
    read.map_err(|error| Error::io("read the audit log", &error))?;
    found.ok_or_else(|| unknown(id))
}

/// The receipt, if the call is in this segment.
fn in_segment(lines: &[&[u8]], id: &AuditId, key: &PublicKey) -> Option<Receipt> {
    let needle = format!("\"id\":\"{id}\"");
    let is_it = |line: &&[u8]| line.windows(needle.len()).any(|at| at == needle.as_bytes());
    let at = lines.iter().rposition(is_it)?;
    let is_checkpoint = |line: &[u8]| Record::read(line).ok().filter(Record::is_checkpoint);
    let before = lines[..at]
        .iter()
        .rposition(|line| is_checkpoint(line).is_some());
    let from = before.map_or(0, |before| before + 1);
    let (until, checkpoint) = lines[at..]
        .iter()
        .enumerate()
        .find_map(|(index, line)| Some((at + index, is_checkpoint(line)?)))?;
    let records: Option<Vec<Record>> = lines[from..until]
        .iter()
        .map(|line| Record::read(line).ok())
        .collect();
    let records = records?;
    let hashes: Vec<Hash> = records.iter().map(|record| record.hash).collect();
    Some(Receipt {
        v: VERSION,
        entry: records[at - from].value.clone(),
        path: tree::path(&hashes, at - from),
        checkpoint: checkpoint.value,
        public_key: key.to_string(),
    })
}

/// Verifies a receipt against this key; without one, against the receipt's own.
pub fn check(receipt: &Receipt, key: Option<&PublicKey>) -> Result<()> {
    let wrong = |what: &str, flaw: Flaw| Error::invalid(format!("the receipt's {what}: {flaw}"));
    let own = PublicKey::parse(&receipt.public_key)?;
    if key.is_some_and(|key| *key != own) {
        return Err(Error::invalid("the receipt is of another key"));
    }
    let entry = Record::from_value(receipt.entry.clone()).map_err(|flaw| wrong("entry", flaw))?;
    let checkpoint =
        Record::from_value(receipt.checkpoint.clone()).map_err(|flaw| wrong("checkpoint", flaw))?;
    checkpoint
        .check_signature(&own)
        .map_err(|flaw| wrong("checkpoint", flaw))?;
    let root = tree::follow(&entry.hash, &receipt.path).map(|root| hex(&root));
    match root.as_deref() == Some(checkpoint.text("root")) {
        true => Ok(()),
        false => Err(wrong("path", Flaw::Root)),
    }
}
