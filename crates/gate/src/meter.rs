//! Measurements of calls, in the text format of Prometheus. Labels are bounded: verbs, outcomes and
//! runtimes, never ids, names or projects.

use motu_core::{Error, ErrorKind, Result};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Upper bounds of the histogram, in seconds: from a look at the table to a long command.
const BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RuntimeLabels {
    runtime: String,
}

/// What the daemon is like now, which whoever serves it knows.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub connections: u64,
    pub memory_bytes: u64,
    /// Sandboxes that live, by runtime.
    pub sandboxes: BTreeMap<String, u64>,
    /// Spans of calls that no collector has.
    pub unsent: u64,
}

type Durations = Family<VerbLabels, Histogram, fn() -> Histogram>;

/// Counts every call of this daemon.
#[derive(Debug)]
pub struct Meter {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Durations,
    refused: Counter,
    sandboxes: Family<RuntimeLabels, Gauge>,
    connections: Gauge,
    memory: Gauge,
    unsent: Counter,
}

impl Default for Meter {
    fn default() -> Meter {
        let buckets: fn() -> Histogram = || Histogram::new(BUCKETS);
        let meter = Meter {
            registry: Registry::with_prefix("motu"),
            calls: Family::default(),
            durations: Family::new_with_constructor(buckets),
            refused: Counter::default(),
            sandboxes: Family::default(),
            connections: Gauge::default(),
            memory: Gauge::default(),
            unsent: Counter::default(),
        };
        meter.registered()
    }
}

impl Meter {
    fn registered(mut self) -> Meter {
        let registry = &mut self.registry;
        registry.register("calls", "Calls by verb and outcome", self.calls.clone());
        registry.register(
            "call_duration_seconds",
            "How long calls took, live sessions until their end",
            self.durations.clone(),
        );
        registry.register(
            "unauthenticated_requests",
            "Requests without a good key",
            self.refused.clone(),
        );
        registry.register(
            "sandboxes",
            "Sandboxes that live, by runtime",
            self.sandboxes.clone(),
        );
        registry.register(
            "connections",
            "Open connections to the daemon",
            self.connections.clone(),
        );
        registry.register(
            "daemon_memory_bytes",
            "Resident memory of the daemon",
            self.memory.clone(),
        );
        registry.register(
            "otlp_spans_dropped",
            "Spans of calls that the collector was not sent or has refused",
            self.unsent.clone(),
        );
        self
    }

    /// Counts a call that has ended.
    pub fn count(&self, verb: &'static str, outcome: &str, took: Duration) {
        let outcome = known(outcome);
        self.calls
            .get_or_create(&CallLabels { verb, outcome })
            .inc();
        self.durations
            .get_or_create(&VerbLabels { verb })
            .observe(took.as_secs_f64());
    }

    /// Counts a request that nobody knows the sender of.
    pub fn refuse(&self) {
        self.refused.inc();
    }

    /// All of it as text.
    pub fn text(&self, figures: Figures) -> Result<String> {
        self.connections.set(figures.connections as i64);
        self.memory.set(figures.memory_bytes as i64);
        self.unsent.inner().store(figures.unsent, Ordering::Relaxed);
        self.sandboxes.clear();
        for (runtime, count) in figures.sandboxes {
            let gauge = self
                .sandboxes
                .get_or_create_owned(&RuntimeLabels { runtime });
            gauge.set(count as i64);
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)
            .map_err(|_| Error::internal("the measurements cannot be written"))?;
        Ok(text)
    }
}

/// The outcome as one of those there are.
fn known(outcome: &str) -> &'static str {
    let kinds = ErrorKind::ALL.iter().map(|kind| kind.as_str());
    let mut all = kinds.chain(["ok", "abandoned"]);
    all.find(|word| *word == outcome).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_verb_and_outcome() {
        let meter = Meter::default();
        meter.count("create_sandbox", "ok", Duration::from_millis(20));
        meter.count("create_sandbox", "not_found", Duration::from_millis(1));
        meter.count("create_sandbox", "made up", Duration::ZERO);
        let figures = Figures {
            connections: 3,
            memory_bytes: 1024,
            sandboxes: BTreeMap::from([("qemu".to_string(), 2)]),
            unsent: 4,
        };
        let text = meter.text(figures).unwrap();
        for line in [
            "motu_calls_total{verb=\"create_sandbox\",outcome=\"ok\"} 1",
            "motu_calls_total{verb=\"create_sandbox\",outcome=\"other\"} 1",
            "motu_call_duration_seconds_count{verb=\"create_sandbox\"} 3",
            "motu_sandboxes{runtime=\"qemu\"} 2",
            "motu_connections 3",
            "motu_otlp_spans_dropped_total 4",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        // Machines that are gone are not counted on.
        let text = meter.text(Figures::default()).unwrap();
        assert!(!text.contains("qemu"), "{text}");
    }
}
