//! Streams the audit log as lines.

use crate::blocking::blocking;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, once};
use motu_audit::{Export, Follower};
use motu_core::files::ByteStream;

/// New records as they are written.
pub fn followed(follower: Follower) -> ByteStream {
    let calls = stream::unfold(Some(follower), async |follower| {
        let mut follower = follower?;
        match follower.next().await {
            Ok(Some(line)) => Some((Ok(Bytes::from(line)), Some(follower))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    // An empty first chunk sends the response headers at once, even while nothing is recorded.
    once(async { Ok(Bytes::new()) }).chain(calls).boxed()
}

/// All stored records.
pub fn exported(export: Export) -> ByteStream {
    stream::unfold(Some(export), async |export| {
        let mut export = export?;
        let read = blocking(move || {
            let piece = export.next_piece()?;
            Ok((piece, export))
        });
        match read.await {
            Ok((Some(piece), export)) => Some((Ok(Bytes::from(piece)), Some(export))),
            Ok((None, _)) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}
