//! The outside of a session: what everyone else sees and asks.

use super::owner::{Ask, Freshness, Owner};
use motu_core::{Error, Result};
use motu_terminal::TerminalError;
use motu_terminal::session::{Outcome, Session, Ticket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Capacity of a session task's inbox.
const INBOX: usize = 64;

static NEXT_REQUEST: AtomicU64 = AtomicU64::new(1);

/// Sends requests to a session's task.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::Sender<Ask>,
}

impl Handle {
    pub fn new() -> (Handle, mpsc::Receiver<Ask>) {
        let (inbox, asks) = mpsc::channel(INBOX);
        (Handle { inbox }, asks)
    }

    /// Whether the task has ended.
    pub fn is_gone(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Waits until the task has ended.
    pub async fn gone(&self) {
        self.inbox.closed().await;
    }

    /// Runs a closure in the task, which owns the session.
    pub async fn ask<T: Send + 'static>(
        &self,
        freshness: Freshness,
        work: impl FnOnce(&mut Owner) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answered) = oneshot::channel();
        let ask = Ask::new(freshness, move |owner| {
            let _ = reply.send(work(owner));
        });
        self.inbox.send(ask).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }

    /// Makes a request of the session and waits for its outcome. Dropping the future cancels the
    /// request; input that was typed stays typed.
    pub async fn request(
        &self,
        freshness: Freshness,
        make: impl FnOnce(&mut Session, Duration) -> std::result::Result<Ticket, TerminalError>
        + Send
        + 'static,
    ) -> Result<Outcome> {
        self.request_then(freshness, make, |_, _| {}).await
    }

    /// Makes a request of the session, does `then` at once, and waits for the outcome.
    pub async fn request_then(
        &self,
        freshness: Freshness,
        make: impl FnOnce(&mut Session, Duration) -> std::result::Result<Ticket, TerminalError>
        + Send
        + 'static,
        then: impl FnOnce(&mut Owner, u64) + Send + 'static,
    ) -> Result<Outcome> {
        let number = NEXT_REQUEST.fetch_add(1, Ordering::Relaxed);
        let (reply, answered) = oneshot::channel();
        let ask = Ask::new(freshness, move |owner: &mut Owner| {
            if owner.request(number, make, reply) {
                then(owner, number);
            }
        });
        self.inbox.send(ask).await.map_err(|_| gone())?;
        let leaving = Leaving {
            handle: self,
            number,
        };
        let outcome = answered.await;
        std::mem::forget(leaving);
        outcome.map_err(|_| gone())?
    }

    /// Runs a closure in the task without waiting for it.
    pub fn tell(&self, work: impl FnOnce(&mut Owner) + Send + 'static) {
        let ask = Ask::new(Freshness::Any, work);
        if let Err(mpsc::error::TrySendError::Full(ask)) = self.inbox.try_send(ask) {
            let inbox = self.inbox.clone();
            tokio::spawn(async move { inbox.send(ask).await });
        }
    }
}

/// Cancels a request when it is dropped.
struct Leaving<'a> {
    handle: &'a Handle,
    number: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.handle.tell(move |owner| owner.cancel(number));
    }
}

fn gone() -> Error {
    Error::unavailable("the session's task has left; ask again")
}
