//! Progress of a pull.
//!
//! Owns the event and its delivery. Reporting never blocks and never fails: an event that cannot be
//! delivered is dropped.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// One step of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgressEvent {
    /// One of `wait`, `resolve`, `download`, `unpack`, `configure`, `seal`.
    pub stage: String,
    /// One line for people.
    pub message: String,
    /// Units done so far, where the stage has units.
    pub done: Option<u64>,
    /// Units there will be, where that is known.
    pub total: Option<u64>,
}

/// The receiver of one pull's events.
#[derive(Clone)]
pub struct Progress(Option<Arc<dyn Fn(ProgressEvent) + Send + Sync>>);

impl Progress {
    /// Discards all events.
    pub fn none() -> Self {
        Self(None)
    }

    /// Calls `report` for each event, from any thread. It must not block.
    pub fn new(report: impl Fn(ProgressEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(report)))
    }

    /// Sends to a channel, dropping events while it is full or closed.
    pub fn to_channel(sender: mpsc::Sender<ProgressEvent>) -> Self {
        Self::new(move |event| drop(sender.try_send(event)))
    }

    pub(crate) fn send(&self, event: ProgressEvent) {
        if let Some(report) = &self.0 {
            report(event);
        }
    }

    pub(crate) fn say(&self, stage: &str, message: impl Into<String>) {
        self.send(ProgressEvent {
            stage: stage.to_owned(),
            message: message.into(),
            done: None,
            total: None,
        });
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("watched", &self.0.is_some())
            .finish()
    }
}
