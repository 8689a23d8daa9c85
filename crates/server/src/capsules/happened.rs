//! What happens to capsules, as server-sent events in the words of host agents.
//!
//! Only what is to come: a client that comes back looks at the list for what it missed.

use super::shapes::{Capsule, is_capsule};
use super::{Answer, Desk, desk};
use crate::app::App;
use crate::extract::Introduced;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::header;
use jiff::Timestamp;
use motu_core::SandboxId;
use motu_core::event::{Event, EventKind, ReadEvents};
use motu_core::files::ByteStream;
use motu_core::verb;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Silence after which something is said, so that a connection that broke is noticed.
const QUIET: Duration = Duration::from_secs(30);

pub async fn stream(app: State<App>, caller: Introduced) -> Answer<Response> {
    let desk = desk(app, caller);
    let ask = ReadEvents {
        tail: Some(0),
        kind: Some("sandbox,host".to_string()),
        follow: true,
        ..ReadEvents::default()
    };
    let lines = desk.call(verb::ReadEvents { ask }).await?;
    let app = desk.app.clone();
    let connected = json!({"event": "connected", "timestamp": Timestamp::now()});
    let told = Told {
        desk,
        lines,
        held: BytesMut::new(),
        ready: VecDeque::from([sent("connected", &connected)]),
    };
    let body = Body::from_stream(unfold(told, |mut told| async move {
        let event = told.next().await?;
        Some((Ok::<Bytes, Infallible>(event), told))
    }));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok(app.body_while_serving((headers, body).into_response()))
}

fn sent(name: &str, event: &Value) -> Bytes {
    format!("event: {name}\ndata: {event}\n\n").into()
}

/// Lines of the journal, as events.
struct Told {
    desk: Desk,
    lines: ByteStream,
    /// The beginning of a line.
    held: BytesMut,
    ready: VecDeque<Bytes>,
}

impl Told {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match tokio::time::timeout(QUIET, self.lines.next()).await {
                Err(_) => return Some(Bytes::from_static(b": keepalive\n\n")),
                Ok(Some(Ok(piece))) => self.take(&piece).await,
                // The journal ends with the daemon; a client that wants more comes back.
                Ok(Some(Err(_)) | None) => return None,
            }
        }
    }

    async fn take(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        while let Some(end) = memchr::memchr(b'\n', &self.held) {
            let line = self.held.split_to(end + 1);
            let Ok(event) = serde_json::from_slice::<Event>(&line) else {
                continue;
            };
            self.ready.extend(told_of(&self.desk, event).await);
        }
    }
}

/// An event in the words of host agents, if it is about a capsule or the host.
async fn told_of(desk: &Desk, event: Event) -> Option<Bytes> {
    let happened = event.happened;
    let (name, action) = name(&happened.kind)?;
    let mut told = json!({"event": name, "timestamp": happened.time});
    if let Some(reason) = happened.facts.reason.or(happened.facts.paused_by) {
        told["metadata"] = json!({"reason": reason});
    }
    if let Some(id) = &happened.id {
        let found = desk.sandbox(SandboxId::parse(id).ok()?).await.ok()?;
        if !is_capsule(&found) {
            return None;
        }
        let capsule = Capsule::of(found);
        told["resource"] = json!({"id": id, "type": "sandbox"});
        told["actor"] = json!({
            "type": if happened.audit_id.is_some() { "api_key" } else { "system" },
        });
        match action {
            true => told["outcome"] = json!("success"),
            false => told["metadata"]["to"] = json!(capsule.status),
        }
        told["sandbox"] = json!(capsule);
    }
    Some(sent(name, &told))
}

/// What host agents call a kind of event, and whether it is something that was asked for.
fn name(kind: &str) -> Option<(&'static str, bool)> {
    let kind = EventKind::ALL.iter().find(|known| known.as_str() == kind)?;
    Some(match kind {
        EventKind::SandboxCreated => ("capsule.create", true),
        EventKind::SandboxPaused => ("capsule.pause", true),
        EventKind::SandboxResumed | EventKind::SandboxStarted => ("capsule.resume", true),
        EventKind::SandboxDestroyed => ("capsule.destroy", true),
        EventKind::SandboxStopped | EventKind::SandboxEnded | EventKind::SandboxExpired => {
            ("capsule.state.changed", false)
        }
        EventKind::HostStarted => ("host.up", true),
        EventKind::HostStopped => ("host.down", true),
        _ => return None,
    })
}
