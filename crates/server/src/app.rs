//! What every handler has.

use crate::activity::Activity;
use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use motu_core::config::GrpcConfig;
use motu_gate::Gate;
use std::sync::Arc;
use tokio::sync::watch;

/// What every handler has.
#[derive(Clone)]
pub struct App {
    pub gate: Gate,
    pub activity: Activity,
    /// What callers in the words of host agents get that say nothing.
    pub agents: Arc<GrpcConfig>,
    /// Whether the server was told to stop.
    pub stopping: Arc<watch::Sender<bool>>,
}

impl App {
    /// A stream that also ends when the server is told to stop. For what has no end of its own and
    /// goes on where it was left, such as the output of a process: it would only hold up the end.
    pub fn while_serving<T: Send + 'static>(
        &self,
        stream: BoxStream<'static, T>,
    ) -> BoxStream<'static, T> {
        let stopping = self.stopping.clone();
        let stopped = async move {
            // The sender lives in `stopping`, so waiting cannot fail.
            let _ = stopping.subscribe().wait_for(|stopping| *stopping).await;
        };
        stream.take_until(Box::pin(stopped)).boxed()
    }

    /// The same for the body of an answer, which ends without a word of its own.
    pub fn body_while_serving(&self, response: Response) -> Response {
        response.map(|body| {
            let pieces = body.into_data_stream().boxed();
            Body::from_stream(self.while_serving(pieces))
        })
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}
