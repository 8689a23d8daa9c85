//! Terminals and decisions that a client follows: it subscribes to a resource and is told when
//! there is something new to read.
//!
//! What is printed is never sent here, so a flood costs a client nothing: it hears at most once
//! in a [`PAUSE`], and reads the resource when it likes.

use crate::Shared;
use crate::resources::Live;
use futures_util::StreamExt;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use motu_core::exec::{ExecEvent, ExecSession};
use motu_core::policy::ReadDecisions;
use motu_core::terminal::TakeSeat;
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

/// Each time something came: whether that is news to who has just begun to watch.
pub type News = BoxStream<'static, bool>;

impl Shared {
    /// Watches a session, or the decisions about a sandbox, from now on.
    pub async fn watch(&self, live: &Live) -> Result<News> {
        match live {
            Live::Terminal(id) => {
                let session = self.service.attach_terminal(id, TakeSeat::default());
                Ok(printed(session.await?))
            }
            Live::Decisions(id) => {
                let ask = ReadDecisions {
                    follow: true,
                    from: u64::MAX,
                };
                let decisions = self.service.read_decisions(id, ask).await?;
                let decided = decisions.take_while(|piece| ready(piece.is_ok()));
                Ok(decided.map(|_| true).boxed())
            }
        }
    }
}

/// The output of a session, until its end. The first is the screen as it was when the watch began.
fn printed(session: ExecSession) -> News {
    let going = session.events.take_while(|event| {
        let over = matches!(event, Ok(ExecEvent::Exited(_)) | Err(_));
        ready(!over)
    });
    // Keep the input: dropping it would leave the session.
    let seen = (session.input, false);
    going
        .scan(seen, |(_, seen), event| {
            let printed = matches!(event, Ok(ExecEvent::Stdout(_) | ExecEvent::Gap(_)));
            let news = printed && *seen;
            *seen |= printed;
            ready(Some(news))
        })
        .boxed()
}

/// Calls `tell` whenever there are news, and once more at the end. Stops when it says no.
pub async fn follow<F>(mut coming: News, tell: impl Fn() -> F)
where
    F: Future<Output = bool>,
{
    let mut news = false;
    let mut next = Instant::now();
    loop {
        tokio::select! {
            came = coming.next() => match came {
                Some(is_new) => news |= is_new,
                None => {
                    tell().await;
                    return;
                }
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
        follow(printed(session), || async {
            told.fetch_add(1, Ordering::Relaxed);
            true
        })
        .await;
        let told = told.into_inner();
        // One second of output: notified at once, then every quarter of a second, and at the end.
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
