//! Detects a daemon that does not answer.
//!
//! A call may take long, so its duration proves nothing. While a call waits, the daemon's
//! version is requested on another connection every few seconds; if that is not answered, the
//! daemon is stopped or stuck, and the call fails.

use super::{Call, Client, Connection};
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, limits};
use std::pin::pin;
use std::time::Duration;

/// How long a call waits before the first check, and between two checks.
const QUIET: Duration = Duration::from_secs(5);
/// How long a check may take before the warning.
const WARNING: Duration = Duration::from_secs(5);

impl Client {
    /// Waits for the result of a call while the daemon answers checks.
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

    /// Returns when a daemon answered, or if there is none: then the call itself fails.
    async fn look(&self) {
        let asked = async {
            let mut connection = Connection::open(self.dial.look().await?).await?;
            let request = Call::get("/v1/version").into_request(self)?;
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
