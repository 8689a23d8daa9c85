//! The one list of verbs, as traits: what the engine implements and what faces call.
//!
//! The list itself is [`crate::verb`]; each verb takes what it is about and one request.

use crate::report::ProgressEvent;
use tokio::sync::mpsc;

pub use crate::verb::{Service, Terminals, Workspaces};

/// Where the steps of a long call are reported. Never waited for: a slow reader misses steps, not the call.
pub type ProgressSink = mpsc::Sender<ProgressEvent>;
