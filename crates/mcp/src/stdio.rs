//! One client on standard input and output, or on a pipe.

use crate::Server;
use crate::lines::Lines;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use motu_core::{Error, Result};
use rmcp::ServiceExt;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long the last chores may take when the client is gone.
const GRACE: Duration = Duration::from_secs(3);

impl Server {
    /// Serves until the client closes its end and has its answers, until it reads no more, or until
    /// a signal asks to leave. What calls have started is ended first.
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
        let transport = Lines::new(read, write, nobody_reads(std::io::stdout()));
        self.serve_until(transport, leave).await
    }

    /// Serves a client of this process, until it closes its end: both directions at once.
    pub async fn serve_pipe<P>(self, pipe: P) -> Result<()>
    where
        P: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(pipe);
        let transport = Lines::new(read, write, std::future::ready(()).boxed());
        self.serve_until(transport, CancellationToken::new()).await
    }

    async fn serve_until<R, W>(self, transport: Lines<R, W>, leave: CancellationToken) -> Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = self.shared.clone();
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

/// Completes when the other end of a pipe, a socket or a terminal is closed. The end of a file is
/// never closed.
fn nobody_reads(output: impl AsFd) -> BoxFuture<'static, ()> {
    let watched = output.as_fd().try_clone_to_owned();
    async move {
        let (tell, told) = oneshot::channel();
        // The runtime's own way changes how everybody else writes there.
        let waiting = watched.and_then(|watched| {
            let wait = move || {
                if closed(&watched) {
                    let _ = tell.send(());
                }
            };
            std::thread::Builder::new()
                .name("motu-output".into())
                .spawn(wait)
        });
        if waiting.is_err() || told.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
    .boxed()
}

/// Waits until the other end is closed; false where that cannot be seen.
fn closed(output: &OwnedFd) -> bool {
    // What means that it is closed is always reported.
    let mut watched = [PollFd::new(output, PollFlags::empty())];
    loop {
        match poll(&mut watched, None) {
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn is_gone(error: &rmcp::service::ServerInitializeError) -> bool {
    matches!(
        error,
        rmcp::service::ServerInitializeError::ConnectionClosed(_)
            | rmcp::service::ServerInitializeError::Cancelled
    )
}
