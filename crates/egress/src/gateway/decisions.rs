//! One JSON line for each decision, bounded in bytes and in refusals per second.

use crate::address::Network;
use crate::judge::{Destination, Reason, Verdict};
use rustix::fd::OwnedFd;
use serde::Serialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Most bytes of decisions per sandbox; further ones are counted, not written.
pub const MOST: u64 = 16 << 20;
/// Refusals written per second, so that a port scan does not fill the file.
const REFUSALS: usize = 100;
/// The longest name or path that is written.
const TEXT: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    Dns,
    Connect,
    Request,
    /// The agent was asked for a signature.
    Sign,
    End,
}

/// One line. Unknown fields are left out.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Decision<'a> {
    v: u8,
    time: String,
    event: Event,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// `proxy`, if only the name is known and the host's proxy resolves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'a str>,
    /// Without the query, which may contain secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<&'a str>,
    /// `ended`, if the gateway terminates TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<&'static str>,
    /// Names of the secrets put into the request, or signed with.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    secrets: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_in: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_ms: Option<u64>,
}

impl<'a> Decision<'a> {
    pub(super) fn new(event: Event, verdict: &'a Verdict) -> Self {
        Self {
            v: 1,
            time: jiff::Timestamp::now().to_string(),
            event,
            allowed: verdict.allowed,
            rule: verdict.rule.as_deref(),
            reason: verdict.reason,
            name: None,
            address: None,
            port: None,
            protocol: None,
            via: None,
            method: None,
            path: None,
            tls: None,
            secrets: &[],
            bytes_out: None,
            bytes_in: None,
            duration_ms: None,
        }
    }

    pub(super) fn to(mut self, to: &Destination) -> Self {
        self.address = Some(to.address);
        self.port = (to.port != 0).then_some(to.port);
        self.protocol = Some(to.protocol.to_string());
        self
    }

    pub(super) fn name(mut self, name: Option<&'a str>) -> Self {
        self.name = name.map(short);
        self
    }

    /// For a connection with terminated TLS, with the secrets used.
    pub(super) fn ended(mut self, secrets: &'a [String]) -> Self {
        self.tls = Some("ended");
        self.secrets = secrets;
        self
    }

    /// For the agent, with the secret asked for.
    pub(super) fn signed(mut self, secrets: &'a [String]) -> Self {
        self.secrets = secrets;
        self
    }

    pub(super) fn request(mut self, method: &'a str, path: &'a str) -> Self {
        self.method = Some(short(method));
        self.path = Some(short(path));
        self
    }
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT)]
}

/// Two refusals with the same key are the same.
type Refusal = (
    Event,
    Reason,
    Option<String>,
    Option<IpAddr>,
    Option<u16>,
    Option<String>,
);

#[derive(Debug)]
pub(super) struct Decisions {
    file: File,
    written: u64,
    dropped: u64,
    second: Option<Instant>,
    /// Refusals of this second.
    refused: HashSet<Refusal>,
    /// Synthetic addresses that stand for names.
    pub(super) stand_ins: Option<Network>,
}

impl Decisions {
    pub(super) fn new(file: OwnedFd) -> Self {
        let file = File::from(file);
        // A restarted gateway continues in the same file, within the same limit.
        let written = file.metadata().map_or(0, |meta| meta.len());
        Self {
            file,
            written,
            dropped: 0,
            second: None,
            refused: HashSet::new(),
            stand_ins: None,
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn write(&mut self, decision: &Decision<'_>, now: Instant) {
        // The end of a connection is always written, once per connection.
        let refusal = !decision.allowed && decision.event != Event::End;
        if refusal && !self.is_new(decision, now) {
            self.dropped += 1;
            return;
        }
        let mut decision = decision.clone();
        // A synthetic address means nothing outside: leave it out.
        if let Some(address) = decision.address
            && self.stand_ins.is_some_and(|net| net.contains(address))
        {
            (decision.address, decision.via) = (None, Some("proxy"));
        }
        let Ok(mut line) = serde_json::to_vec(&decision) else {
            self.dropped += 1;
            return;
        };
        line.push(b'\n');
        let fits = self.written + line.len() as u64 <= MOST;
        // A full disk must not stop traffic; dropped lines are counted.
        if fits && self.file.write_all(&line).is_ok() {
            self.written += line.len() as u64;
        } else {
            self.dropped += 1;
        }
    }

    /// Whether this refusal is new in this second and within the limit.
    fn is_new(&mut self, decision: &Decision<'_>, now: Instant) -> bool {
        let over = |since: Instant| now.saturating_duration_since(since) >= Duration::from_secs(1);
        if self.second.is_none_or(over) {
            self.second = Some(now);
            self.refused.clear();
        }
        self.refused.len() < REFUSALS
            && self.refused.insert((
                decision.event,
                decision.reason,
                decision.name.map(str::to_owned),
                decision.address,
                decision.port,
                decision.protocol.clone(),
            ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn a_refusal_is_written_once_a_second_and_a_scan_does_not_fill_the_file() {
        let file = tempfile::tempfile().unwrap();
        let mut read = file.try_clone().unwrap();
        let mut decisions = Decisions::new(file.into());
        let now = Instant::now();
        let no = Verdict::no(Reason::HostNotAllowed);
        for number in 0..1000u32 {
            let name = format!("{}.example", number / 2);
            let decision = Decision::new(Event::Dns, &no).name(Some(&name));
            decisions.write(&decision, now);
        }
        let later = Decision::new(Event::Dns, &no).name(Some("0.example"));
        decisions.write(&later, now + Duration::from_secs(1));
        assert_eq!(decisions.dropped(), 1000 - REFUSALS as u64);
        let mut text = String::new();
        read.rewind().unwrap();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), REFUSALS + 1);
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["event"], "dns");
        assert_eq!(line["reason"], "host_not_allowed");
        assert_eq!(line["allowed"], false);
    }

    #[test]
    fn the_file_ends_at_its_limit() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MOST - 10).unwrap();
        let mut decisions = Decisions::new(file.into());
        let yes = Verdict {
            allowed: true,
            rule: None,
            reason: Reason::Allowed,
        };
        decisions.write(&Decision::new(Event::Connect, &yes), Instant::now());
        assert_eq!(decisions.dropped(), 1);
    }
}
