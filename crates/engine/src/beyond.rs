//! Values of secrets that stay outside of one sandbox. A server that receives such a value may echo
//! it, so the values are redacted from everything that is shown.

use crate::shown::{self, Pace};
use futures_util::stream::BoxStream;
use motu_core::Result;
use motu_core::exec::ExecEvent;
use motu_egress::border::Border;
use motu_redaction::{Forms, Known, Patterns, Redactor};
use motu_terminal::redact::Values;
use std::sync::Arc;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// The secret values last sent to the gateway of a sandbox. Clones share them.
#[derive(Clone, Debug)]
pub struct Beyond {
    told: watch::Sender<Told>,
}

struct Told {
    /// False after a daemon restart until the values have been read again.
    known: bool,
    values: Values,
    redactor: Redactor,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Told({})", self.values.len())
    }
}

impl Default for Beyond {
    fn default() -> Beyond {
        let told = Told {
            known: true,
            values: Values::default(),
            redactor: Redactor::idle(),
        };
        Beyond {
            told: watch::Sender::new(told),
        }
    }
}

impl Beyond {
    /// Marks the values as unknown: the sandbox has some, but they have not been read yet.
    pub fn forget(&self) {
        self.told.send_modify(|told| told.known = false);
    }

    /// Marks the values as complete: they have been read.
    pub fn settle(&self) {
        self.told.send_modify(|told| told.known = true);
    }

    /// Waits until the values have been read.
    pub async fn settled(&self) {
        // `wait_for` fails only when the sender is dropped, and `self` holds it.
        let _ = self.told.subscribe().wait_for(|told| told.known).await;
    }

    /// Records the values of a border that is sent to the gateway.
    pub fn learn(&self, border: &Border) {
        let value = |text: &str| Zeroizing::new(text.to_string());
        let pairs = border.bound.iter().map(|one| &one.secret);
        let pairs = pairs.map(|secret| (secret.name.clone(), value(secret.value.as_str())));
        let values: Vec<_> = pairs.collect();
        let known = values.iter().map(|(name, value)| Known {
            name: Some(name),
            value: value.as_bytes(),
            forms: Forms::All,
        });
        let redactor = Redactor::new(known, &Patterns::none());
        self.told.send_replace(Told {
            known: true,
            redactor,
            values: Arc::new(values),
        });
    }

    /// All values by name.
    pub fn values(&self) -> Values {
        self.told.borrow().values.clone()
    }

    /// A redactor for all values.
    pub fn redactor(&self) -> Redactor {
        self.told.borrow().redactor.clone()
    }

    /// A session's output with the values redacted.
    pub fn redacted(
        &self,
        events: BoxStream<'static, Result<ExecEvent>>,
        pace: Pace,
    ) -> BoxStream<'static, Result<ExecEvent>> {
        shown::redacted(&self.redactor(), events, pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_border::authority::Authority;
    use motu_border::{Secret, Value};
    use motu_egress::border::Bound;

    fn border(value: &str) -> Border {
        let secret = Secret {
            name: "api".to_string(),
            placeholder: "motu-x".to_string(),
            value: Value::new(value),
            body: false,
            aws: false,
        };
        Border {
            authority: Authority {
                certificate: String::new(),
                key: Value::new(""),
            },
            roots: Vec::new(),
            bound: vec![Bound {
                hosts: Vec::new(),
                secret,
            }],
            keys: Vec::new(),
        }
    }

    #[test]
    fn what_was_told_last_is_not_shown() {
        let beyond = Beyond::default();
        assert!(beyond.redactor().is_idle());
        let clone = beyond.clone();
        beyond.learn(&border("hunter2-hunter2"));
        assert_eq!(
            clone.redactor().text("a hunter2-hunter2"),
            "a [redacted api]"
        );
        beyond.learn(&border("another-value"));
        assert_eq!(
            clone.redactor().text("no another-value"),
            "no [redacted api]"
        );
        assert_eq!(clone.values().len(), 1);
        assert!(!format!("{clone:?}").contains("another"));
    }

    #[tokio::test]
    async fn who_asks_early_waits_until_somebody_has_looked() {
        let beyond = Beyond::default();
        beyond.settled().await;
        beyond.forget();
        let early = {
            let beyond = beyond.clone();
            tokio::spawn(async move {
                beyond.settled().await;
                beyond.redactor().text("hunter2-hunter2")
            })
        };
        tokio::task::yield_now().await;
        assert!(!early.is_finished());
        beyond.learn(&border("hunter2-hunter2"));
        assert_eq!(early.await.expect("it ends"), "[redacted api]");
        beyond.forget();
        beyond.settle();
        beyond.settled().await;
    }
}
