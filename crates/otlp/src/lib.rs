//! Tells a collector of OpenTelemetry what calls there were and how the daemon is, over OTLP/HTTP in
//! its JSON encoding.
//!
//! ```text
//!   gate ──each call──► queue (bounded: the oldest goes) ──a batch──► POST …/v1/traces
//!   measurements of /metrics ──every so often──────────────────────► POST …/v1/metrics
//! ```
//!
//! No call waits for any of it. The JSON is written here because it is small; the libraries for it
//! bring an exporter, a client and a runtime of their own (a hundred crates).
//!
//! - [`queue`]: what waits; [`span`]: a call as a span; [`figures`]: measurements as metrics;
//!   `headers`: what the collector knows us by.

mod attributes;
mod figures;
mod headers;
mod queue;
mod span;

pub use queue::{Queue, Spans};

use http::{HeaderMap, Method};
use motu_core::config::OtlpConfig;
use motu_core::{Error, Result, limits};
use motu_peer::{Address, Ask, Connections, Patience, PeerError};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long spans gather before they are sent, unless a batch is full.
const GATHER: Duration = Duration::from_secs(1);
/// The pause after a batch that the collector could not take; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a daemon that leaves goes on sending what waits.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The collector, and what is to be told.
#[derive(Debug)]
pub struct Otlp {
    connections: Connections,
    headers_file: Option<PathBuf>,
    patience: Duration,
    interval: Duration,
    queue: Arc<Queue>,
    /// Who tells: the same in every request.
    resource: Value,
    started: u64,
}

/// What became of a request.
enum Fate {
    Taken,
    /// It may be taken when it is sent again.
    Later(String),
    /// It is not wanted.
    Never(String),
}

impl Otlp {
    /// The collector of the configuration, if there is one.
    pub fn new(config: &OtlpConfig) -> Result<Option<Otlp>> {
        let Some(endpoint) = &config.endpoint else {
            return Ok(None);
        };
        let address = Address::parse("config.toml: [otlp] endpoint", endpoint)?;
        // A file that cannot be read is said when the daemon starts; it is read again for every
        // request, so that another one is used at once.
        headers::read(config.headers_file.as_deref())?;
        let patience = Duration::from_secs(config.seconds);
        let bounds = Patience {
            connect: patience,
            call: patience,
            ..Patience::default()
        };
        Ok(Some(Otlp {
            connections: Connections::new(address, None, bounds).trusting(config.ca_file.clone()),
            headers_file: config.headers_file.clone(),
            patience,
            interval: Duration::from_secs(config.interval_seconds),
            queue: Arc::new(Queue::new(config.queue as usize)),
            resource: resource(),
            started: now(),
        }))
    }

    /// Where spans wait for the collector.
    pub fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    /// Sends what there is until the daemon leaves, and then what still waits. `measured` gives the
    /// measurements as `/metrics` has them.
    pub async fn run(
        self,
        measured: impl Fn() -> Result<String> + Send,
        mut leaving: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.spans() => {}
            () = self.measurements(&measured) => {}
            _ = leaving.wait_for(|leaving| *leaving) => {}
        }
        let rest = async {
            while let Some(batch) = self.queue.take(batch()) {
                if let Fate::Later(why) | Fate::Never(why) = self.send_spans(&batch).await {
                    tracing::warn!(%why, spans = batch.len(), "the last spans were not sent");
                    return;
                }
            }
            self.measure(&measured).await;
        };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
    }

    async fn spans(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            self.queue.gathered(batch(), GATHER).await;
            let Some(spans) = self.queue.take(batch()) else {
                continue;
            };
            match self.send_spans(&spans).await {
                Fate::Taken => pause = FIRST_PAUSE,
                Fate::Later(why) => {
                    tracing::warn!(%why, spans = spans.len(), "the collector has not taken spans");
                    self.queue.put_back(spans);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Fate::Never(why) => {
                    tracing::error!(%why, spans = spans.len(), "the collector refuses spans");
                    self.queue.lost(spans.len() as u64);
                }
            }
        }
    }

    async fn measurements(&self, measured: &(impl Fn() -> Result<String> + Send)) {
        loop {
            tokio::time::sleep(self.interval).await;
            self.measure(measured).await;
        }
    }

    /// What is not taken is in the next ones: they count from the start of the daemon.
    async fn measure(&self, measured: &(impl Fn() -> Result<String> + Send)) {
        let text = match measured() {
            Ok(text) => text,
            Err(error) => return tracing::warn!(%error, "there are no measurements to send"),
        };
        let metrics = figures::metrics(&text, self.started, now());
        let body = json!({"resourceMetrics": [{
            "resource": self.resource,
            "scopeMetrics": [{"scope": scope(), "metrics": metrics}],
        }]});
        match self.send("take measurements", "/v1/metrics", &body).await {
            (Fate::Taken, _) => {}
            (Fate::Later(why) | Fate::Never(why), _) => {
                tracing::warn!(%why, "the collector has not taken measurements");
            }
        }
    }

    async fn send_spans(&self, calls: &[motu_core::audit::AuditCall]) -> Fate {
        let spans: Vec<Value> = calls.iter().map(span::span).collect();
        let body = json!({"resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{"scope": scope(), "spans": spans}],
        }]});
        let (fate, rejected) = self.send("take spans", "/v1/traces", &body).await;
        if rejected > 0 {
            tracing::warn!(rejected, "the collector has not taken all spans");
            self.queue.lost(rejected);
        }
        fate
    }

    /// Sends a request: what became of it, and how many of its spans were rejected all the same.
    async fn send(&self, what: &'static str, path: &str, body: &Value) -> (Fate, u64) {
        let headers: HeaderMap = match headers::read(self.headers_file.as_deref()) {
            Ok(headers) => headers,
            Err(error) => return (Fate::Later(error.to_string()), 0),
        };
        let ask = Ask {
            what,
            method: Method::POST,
            path: path.to_string(),
            headers,
            body: Some(body.to_string().into()),
            // A span that arrives twice has the same id.
            repeatable: true,
            patience: Some(self.patience),
        };
        match self.connections.whole(&ask).await {
            Ok(answer) => (Fate::Taken, rejected(&answer)),
            Err(error) => (fate(&error), 0),
        }
    }
}

/// What the specification of OTLP/HTTP says: these are to be sent again, anything else is not.
fn fate(error: &PeerError) -> Fate {
    match error.status() {
        None | Some(429 | 502 | 503 | 504) => Fate::Later(error.to_string()),
        Some(_) => Fate::Never(error.to_string()),
    }
}

/// How many spans a collector says it has not taken of a request that was fine.
fn rejected(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    match &answer["partialSuccess"]["rejectedSpans"] {
        Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_u64().unwrap_or(0),
    }
}

fn batch() -> usize {
    limits::OTLP_BATCH.default as usize
}

fn resource() -> Value {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let attributes = attributes::Attributes::default()
        .text("service.name", "motu")
        .text("service.version", env!("CARGO_PKG_VERSION"))
        .text("host.name", host.trim());
    json!({"attributes": attributes.list()})
}

fn scope() -> Value {
    json!({"name": "motu", "version": env!("CARGO_PKG_VERSION")})
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0)
}

/// An error about a setting of `[otlp]`.
fn wrong(message: String) -> Error {
    Error::invalid(format!("config.toml: [otlp] {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_on_this_host_or_behind_tls() {
        let config = |endpoint: &str| OtlpConfig {
            endpoint: Some(endpoint.to_string()),
            ..OtlpConfig::default()
        };
        assert!(Otlp::new(&OtlpConfig::default()).unwrap().is_none());
        assert!(
            Otlp::new(&config("http://127.0.0.1:4318"))
                .unwrap()
                .is_some()
        );
        assert!(
            Otlp::new(&config("https://otlp.example/in"))
                .unwrap()
                .is_some()
        );
        let error = Otlp::new(&config("http://10.0.0.1:4318")).unwrap_err();
        assert!(error.message.contains("[otlp] endpoint"), "{error}");
    }

    #[test]
    fn what_was_rejected_is_counted_however_it_is_written() {
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":"3"}}"#), 3);
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":2}}"#), 2);
        assert_eq!(rejected(b"{}"), 0);
        assert_eq!(rejected(b"ok"), 0);
    }
}
