//! `[otlp]`: where spans of calls and measurements are sent.

use crate::{Error, limits};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// `https://`, or `http://` on this host, without `/v1/traces`; nothing is sent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A file with headers for the collector, one `Name: value` on each line. They are secrets, so
    /// they are never in this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// Certificates in PEM that the collector's own is checked against, in place of those that this
    /// host trusts. For `https://` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// How long the collector may take to answer.
    pub seconds: u64,
    /// How many spans wait for the collector.
    pub queue: u64,
    /// How often measurements are sent.
    pub interval_seconds: u64,
}

impl Default for OtlpConfig {
    fn default() -> OtlpConfig {
        OtlpConfig {
            endpoint: None,
            headers_file: None,
            ca_file: None,
            seconds: limits::OTLP_SECONDS.default,
            queue: limits::OTLP_QUEUE.default,
            interval_seconds: limits::OTLP_INTERVAL_SECONDS.default,
        }
    }
}

impl OtlpConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        match (&self.endpoint, &self.headers_file) {
            (None, Some(_)) => {
                let message = "config.toml: [otlp] has a headers_file and no endpoint";
                Err(Error::invalid(message).hint("set endpoint"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_collector_has_an_address_and_bounds() {
        let parse = |text: &str| Config::parse(&format!("[otlp]\n{text}"));
        let whole = "endpoint = \"http://127.0.0.1:4318\"\nheaders_file = \"/etc/motu/otlp\"\n\
                     seconds = 5\nqueue = 100\ninterval_seconds = 60";
        assert_eq!(parse(whole).unwrap().otlp.queue, 100);
        assert_eq!(parse("").unwrap().otlp.endpoint, None);
        for wrong in [
            "headers_file = \"/etc/motu/otlp\"",
            "endpoint = \"http://127.0.0.1:4318\"\nheaders_file = \"otlp\"",
            "queue = 0",
            "seconds = 61",
            "interval_seconds = 0",
            "headers = \"authorization: itself\"",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
