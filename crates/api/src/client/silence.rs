//! Noticing that the daemon does not answer.
//!
//! A call may take long, so its own silence says nothing. While one waits, the daemon is asked
//! for its version on a connection of its own every few seconds; a daemon that leaves that
//! unanswered is stopped or stuck, and the call fails.

use super::{Call, Client, Connection};
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, limits};
use std::pin::pin;
use std::time::Duration;

/// How long a call waits before it looks after the daemon, and between two looks.
const QUIET: Duration = Duration::from_secs(5);
/// How long a look may take before somebody is told.
const WARNING: Duration = Duration::from_secs(5);

impl Client {
    /// Waits for something that the daemon does, for as long as there is a daemon that answers.
    pub(super) async fn unless_silent<T>(
        &self,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            error = self.silence() => Err(error),
        }
    }

    async fn silence(&self) -> Error {
        loop {
            tokio::time::sleep(QUIET).await;
            let mut look = pin!(self.look());
            if tokio::time::timeout(WARNING, &mut look).await.is_ok() {
                continue;
            }
            if let Some(warn) = self.warn {
                warn("the daemon does not answer; still waiting for it");
            }
            let whole = Duration::from_secs(limits::DAEMON_SILENCE_SECONDS.default);
            if tokio::time::timeout(whole - WARNING, look).await.is_err() {
                return silent(whole);
            }
        }
    }

    /// Returns when a daemon answered, or when none is there: the call itself tells that.
    async fn look(&self) {
        let asked = async {
            let mut connection = Connection::open(self.dial.look().await?).await?;
            let request = Call::get("/v1/version").into_request()?;
            let answered = connection.send(request).await;
            answered.map(drop).map_err(|error| error.into_error())
        };
        let _ = asked.await;
    }
}

fn silent(after: Duration) -> Error {
    Error::unavailable(format!(
        "the daemon has not answered for {} s",
        after.as_secs()
    ))
    .hint(hint![
        "it may be stopped or overloaded; ",
        host("motu serve --stop"),
        " ends it, and machines run on"
    ])
}
