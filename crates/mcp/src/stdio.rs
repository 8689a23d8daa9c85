//! One client on standard input and output, or on a pipe.

use crate::Server;
use crate::lines::Lines;
use motu_core::{Error, Result};
use rmcp::ServiceExt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long the last chores may take when the client is gone.
const GRACE: Duration = Duration::from_secs(3);

impl Server {
    /// Serves until the client closes its end, or a signal asks to leave. What calls have
    /// started is ended first.
    pub async fn serve_stdio(self) -> Result<()> {
        let leave = CancellationToken::new();
        let asked = leave.clone();
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(|e| Error::io("signals", &e))?;
        let mut terminate =
            signal(SignalKind::terminate()).map_err(|e| Error::io("signals", &e))?;
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            asked.cancel();
        });
        let (read, write) = rmcp::transport::io::stdio_pipes();
        self.serve_until(read, write, leave).await
    }

    /// Serves a client of this process, until it closes its end.
    pub async fn serve_pipe<P>(self, pipe: P) -> Result<()>
    where
        P: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(pipe);
        self.serve_until(read, write, CancellationToken::new())
            .await
    }

    async fn serve_until<R, W>(self, read: R, write: W, leave: CancellationToken) -> Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = self.shared.clone();
        let transport = Lines::new(read, write);
        let serving = tokio::select! {
            serving = self.serve_with_ct(transport, leave.clone()) => serving,
            () = leave.cancelled() => return Ok(()),
        };
        match serving {
            Ok(running) => {
                let _ = running.waiting().await;
            }
            // A client that left before its first message is no error.
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                return Err(Error::transport(format!(
                    "the client does not speak MCP: {error}"
                )));
            }
        }
        shared.chores.close();
        let _ = tokio::time::timeout(GRACE, shared.chores.wait()).await;
        Ok(())
    }
}

fn is_gone(error: &rmcp::service::ServerInitializeError) -> bool {
    matches!(
        error,
        rmcp::service::ServerInitializeError::ConnectionClosed(_)
            | rmcp::service::ServerInitializeError::Cancelled
    )
}
