//! Events as messages.

use crate::agent::Agent;
use crate::ask;
use crate::service::Outgoing;
use crate::wire::events::{Event, WatchRequest};
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use motu_core::event::{self, ReadEvents};
use motu_core::files::ByteStream;
use motu_core::{Error, Result, Service};

impl Agent {
    pub async fn watch_events(self, message: WatchRequest) -> Result<Outgoing<Event>> {
        let kinds = message.kinds.join(",");
        let lines = self.read_events(ReadEvents {
            after: message.after,
            tail: message.tail,
            kind: ask::word(kinds),
            id: ask::word(message.id),
            follow: !message.once,
            ..ReadEvents::default()
        });
        let lines = Lines {
            lines: lines.await?,
            rest: BytesMut::new(),
        };
        let events = unfold(Some(lines), |lines| async move {
            let mut lines = lines?;
            match lines.next().await.transpose()? {
                Ok(event) => Some((Ok(event), Some(lines))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(events.boxed())
    }
}

struct Lines {
    lines: ByteStream,
    /// The beginning of a line.
    rest: BytesMut,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return read(&self.rest.split_to(end + 1)).map(Some);
            }
            match self.lines.next().await {
                Some(piece) => self.rest.extend_from_slice(&piece?),
                None => return Ok(None),
            }
        }
    }
}

fn read(line: &[u8]) -> Result<Event> {
    let wrong = |error| Error::internal(format!("an event cannot be read: {error}"));
    let event: event::Event = serde_json::from_slice(line).map_err(wrong)?;
    let happened = event.happened;
    Ok(Event {
        sequence: event.sequence,
        time: happened.time.to_string(),
        kind: happened.kind,
        id: happened.id.unwrap_or_default(),
        project: happened.project,
        audit_id: happened.audit_id.map_or(String::new(), |id| id.to_string()),
        facts: serde_json::to_string(&happened.facts).map_err(wrong)?,
    })
}
