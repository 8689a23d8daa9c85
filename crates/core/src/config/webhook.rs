//! `[events]` and `[webhook]`: how many events are kept, and where they are sent.

use crate::event::Wanted;
use crate::{Error, limits};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What is kept of what happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    pub kept: u64,
}

impl Default for EventsConfig {
    fn default() -> EventsConfig {
        EventsConfig {
            kept: limits::EVENTS_KEPT.default,
        }
    }
}

/// The service that is sent events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookConfig {
    /// `https://`, or `http://` on this host; nothing is sent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file with the secret that signs what is sent. The secret itself is never in this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// Certificates in PEM that the service's own is checked against, in place of those that this
    /// host trusts. For `https://` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Only events of these kinds; all of them when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// How often one event is sent before it is passed over.
    pub tries: u64,
    /// How long the service may take to answer.
    pub seconds: u64,
}

impl Default for WebhookConfig {
    fn default() -> WebhookConfig {
        WebhookConfig {
            url: None,
            secret_file: None,
            ca_file: None,
            kinds: Vec::new(),
            tries: limits::WEBHOOK_TRIES.default,
            seconds: limits::WEBHOOK_SECONDS.default,
        }
    }
}

impl WebhookConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |message: &str, hint: &str| {
            Err(Error::invalid(format!("config.toml: [webhook] {message}")).hint(hint.to_string()))
        };
        if let Err(error) = Wanted::of_kinds(&self.kinds) {
            return wrong(
                &format!("kinds: {}", error.message),
                "docs/events.md has them",
            );
        }
        match (&self.url, &self.secret_file) {
            (Some(_), None) => wrong(
                "has a url and no secret_file",
                "name a file with a secret that only the service knows: it signs every event",
            ),
            (None, Some(_)) => wrong("has a secret_file and no url", "set url"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_webhook_has_an_address_and_a_secret() {
        let parse = |text: &str| Config::parse(&format!("[webhook]\n{text}"));
        let whole = "url = \"https://a.example/hook\"\nsecret_file = \"/etc/hook\"\n\
                     kinds = [\"sandbox\", \"call.finished\"]";
        assert_eq!(parse(whole).unwrap().webhook.kinds.len(), 2);
        for wrong in [
            "url = \"https://a.example/hook\"",
            "secret_file = \"/etc/hook\"",
            "url = \"https://a.example/hook\"\nsecret_file = \"hook\"",
            "kinds = [\"boxes\"]",
            "tries = 0",
            "secret = \"itself\"",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(Config::parse("[events]\nkept = 1").is_err());
        assert_eq!(
            Config::parse("[events]\nkept = 100").unwrap().events.kept,
            100
        );
    }
}
