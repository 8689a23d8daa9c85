//! Connections, and the pool of idle ones.

use super::sending::Unsent;
use super::{Body, Duplex, broken};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use motu_core::Result;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long an idle connection is kept; the server closes idle ones after 30 seconds.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// The maximum of idle connections.
const KEPT_MOST: usize = 16;

/// A connection, which is closed on drop.
pub struct Connection {
    sender: SendRequest<Body>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    pub async fn open(stream: Box<dyn Duplex>) -> Result<Connection> {
        let made = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|error| broken(&error))?;
        let task = tokio::spawn(async move {
            // A failure is reported by the pending request.
            let _ = connection.with_upgrades().await;
        });
        Ok(Connection { sender, task })
    }

    pub async fn send(
        &mut self,
        request: Request<Body>,
    ) -> std::result::Result<Response<Incoming>, Unsent> {
        if let Err(error) = self.sender.ready().await {
            return Err(Unsent::of(&error, true));
        }
        let sent = self.sender.try_send_request(request).await;
        sent.map_err(|mut error| {
            let came_back = error.take_message().is_some();
            Unsent::of(error.error(), came_back)
        })
    }
}

/// Idle connections, whose last answer was read to its end.
#[derive(Default)]
pub struct Kept(Mutex<Vec<(Connection, Instant)>>);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

impl Kept {
    pub fn keep(&self, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, since)| since.elapsed() < KEPT_FOR);
        if kept.len() < KEPT_MOST {
            kept.push((connection, Instant::now()));
        }
    }

    /// Takes the most recently used one; the others may expire.
    pub fn take(&self) -> Option<Connection> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(connection, since)| {
            since.elapsed() < KEPT_FOR && !connection.sender.is_closed()
        });
        kept.pop().map(|(connection, _)| connection)
    }
}
