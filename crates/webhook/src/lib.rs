//! Sends events to a service of the operator's, one at a time and in their order.
//!
//! ```text
//!   journal ──reader──► one event ──POST──► 2xx: its number is the cursor, the next one
//!                           ▲                │
//!                           └── a pause ◄────┘ anything else, up to `tries`
//! ```
//!
//! The cursor is in the store and written after the service has answered, so a daemon that is
//! killed sends at most the last event again: each arrives at least once. What is sent is signed as
//! the Standard Webhooks specification says, whose libraries check it.

mod signature;

pub use signature::{Secret, sign};

use http::{HeaderMap, HeaderValue, Method};
use motu_core::config::WebhookConfig;
use motu_core::event::{Event, Wanted};
use motu_core::{Error, Result, limits};
use motu_engine::events::{Events, Reader};
use motu_peer::{Address, Ask, Connections, Patience};
use std::path::PathBuf;
use std::time::Duration;

/// The pause after the first try that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The service, and what it is to be sent.
#[derive(Debug)]
pub struct Webhook {
    connections: Connections,
    secret_file: PathBuf,
    wanted: Wanted,
    tries: u64,
    patience: Duration,
}

impl Webhook {
    /// The webhook of the configuration, if there is one.
    pub fn new(config: &WebhookConfig) -> Result<Option<Webhook>> {
        let (Some(url), Some(secret_file)) = (&config.url, &config.secret_file) else {
            return Ok(None);
        };
        let address = Address::parse("config.toml: [webhook] url", url)?;
        // A secret that cannot be read is said when the daemon starts; it is read again for every
        // event, so that another one is used at once.
        Secret::read(secret_file)?;
        let patience = Duration::from_secs(config.seconds);
        let bounds = Patience {
            connect: patience,
            call: patience,
            ..Patience::default()
        };
        Ok(Some(Webhook {
            connections: Connections::new(address, None, bounds).trusting(config.ca_file.clone()),
            secret_file: secret_file.clone(),
            wanted: Wanted::of_kinds(&config.kinds)?,
            tries: config.tries,
            patience,
        }))
    }

    /// Sends what happened since the service was last sent something, and what happens from now on,
    /// until the daemon leaves.
    pub async fn run(self, events: Events) {
        let mut reader = match events.sent_reader(self.wanted.clone()).await {
            Ok(reader) => reader,
            Err(error) => {
                tracing::error!(%error, "events are not sent to the webhook");
                return;
            }
        };
        loop {
            match self.next(&events, &mut reader).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(%error, "the webhook waits: events cannot be read");
                    tokio::time::sleep(longest_pause()).await;
                }
            }
        }
    }

    async fn next(&self, events: &Events, reader: &mut Reader) -> Result<bool> {
        let Some(event) = reader.next().await? else {
            return Ok(false);
        };
        let mut pause = FIRST_PAUSE;
        for number in 1..=self.tries {
            let Err(error) = self.send(&event).await else {
                events.note_sent(event.sequence).await;
                return Ok(true);
            };
            tracing::warn!(sequence = event.sequence, number, %error, "the webhook has not taken an event");
            if number == self.tries {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = reader.left() => return Ok(false),
            }
            pause = (pause * 2).min(longest_pause());
        }
        tracing::error!(
            sequence = event.sequence,
            kind = event.happened.kind,
            tries = self.tries,
            "an event was passed over: the webhook did not take it"
        );
        events.note_sent(event.sequence).await;
        Ok(true)
    }

    async fn send(&self, event: &Event) -> Result<()> {
        let body = serde_json::to_vec(event)
            .map_err(|error| Error::internal(format!("an event is no JSON: {error}")))?;
        let id = event.sequence.to_string();
        let time = jiff::Timestamp::now().as_second().to_string();
        let signature = sign(&Secret::read(&self.secret_file)?, &id, &time, &body);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("webhook-id", id),
            ("webhook-timestamp", time),
            ("webhook-signature", signature),
        ] {
            let value = HeaderValue::try_from(value)
                .map_err(|error| Error::internal(format!("{name}: {error}")))?;
            headers.insert(name, value);
        }
        let root = self.connections.address.path("").is_empty();
        let ask = Ask {
            what: "take an event",
            method: Method::POST,
            path: if root { "/" } else { "" }.to_string(),
            headers,
            body: Some(body.into()),
            // An event may arrive twice; its number tells.
            repeatable: true,
            patience: Some(self.patience),
        };
        let failed = |error: motu_peer::PeerError| Error::unavailable(error.to_string());
        let answer = self.connections.send(&ask).await.map_err(failed)?;
        let answer = answer.success(self.patience).await.map_err(failed)?;
        // Nothing is read of an answer that is fine: its connection is closed.
        drop(answer);
        Ok(())
    }
}

fn longest_pause() -> Duration {
    Duration::from_secs(limits::WEBHOOK_PAUSE_SECONDS.default)
}
