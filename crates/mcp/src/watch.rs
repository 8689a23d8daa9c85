//! Terminals that a client follows: it subscribes to a resource of a session and is told when
//! there is something new to read.
//!
//! What is printed is never sent here, so a flood costs a client nothing: it hears at most once
//! in a [`PAUSE`], and reads the resource when it likes.

use crate::Shared;
use futures_util::StreamExt;
use motu_core::exec::{ExecEvent, ExecSession};
use motu_core::terminal::{TakeSeat, TerminalId};
use motu_core::{Error, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The least time between two notices of one resource.
pub const PAUSE: Duration = Duration::from_millis(250);
/// Resources that one connection may follow.
pub const MOST: usize = 32;

/// What one connection follows. Goes with it.
#[derive(Default)]
pub struct Watches(Mutex<HashMap<String, DropGuard>>);

impl Watches {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, DropGuard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more; the token ends when it is to be followed no more.
    pub fn begin(&self, uri: &str) -> Result<CancellationToken> {
        let mut all = self.all();
        if all.len() >= MOST && !all.contains_key(uri) {
            return Err(
                Error::limit(format!("a connection may subscribe to {MOST} resources"))
                    .hint("unsubscribe from one first"),
            );
        }
        let token = CancellationToken::new();
        all.insert(uri.to_string(), token.clone().drop_guard());
        Ok(token)
    }

    pub fn end(&self, uri: &str) {
        self.all().remove(uri);
    }
}

impl Shared {
    /// Watches a session from now on.
    pub async fn watch(&self, id: &TerminalId) -> Result<ExecSession> {
        self.service.attach_terminal(id, TakeSeat::default()).await
    }
}

/// Calls `tell` whenever something was printed, and once more at the end. Stops when it says no.
pub async fn follow<F>(mut session: ExecSession, tell: impl Fn() -> F)
where
    F: Future<Output = bool>,
{
    let mut screen_seen = false;
    let mut news = false;
    let mut next = Instant::now();
    loop {
        tokio::select! {
            event = session.events.next() => match event {
                Some(Ok(ExecEvent::Stdout(_) | ExecEvent::Gap(_))) => {
                    // The first is the screen as it was when the watch began.
                    news |= screen_seen;
                    screen_seen = true;
                }
                Some(Ok(ExecEvent::Exited(_)) | Err(_)) | None => {
                    tell().await;
                    return;
                }
                Some(Ok(_)) => {}
            },
            () = tokio::time::sleep_until(next), if news => {
                if !tell().await {
                    return;
                }
                news = false;
                next = Instant::now() + PAUSE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_now_and_then_and_its_end_always() {
        let (input, _inputs) = mpsc::channel(1);
        let pieces = futures_util::stream::iter(0..1000).then(|_| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(ExecEvent::Stdout("x".into()))
        });
        let session = ExecSession::new(pieces.boxed(), input);
        let told = AtomicUsize::new(0);
        follow(session, || async {
            told.fetch_add(1, Ordering::Relaxed);
            true
        })
        .await;
        let told = told.into_inner();
        // A second of output: at once, then every quarter of a second, and the end.
        assert!((4..=7).contains(&told), "{told}");
    }

    #[test]
    fn a_connection_follows_so_many_and_no_more() {
        let watches = Watches::default();
        let first = watches.begin("0").unwrap();
        for number in 1..MOST {
            watches.begin(&number.to_string()).unwrap();
        }
        assert!(watches.begin("more").is_err());
        watches.end("0");
        assert!(first.is_cancelled());
        assert!(watches.begin("more").is_ok());
    }
}
