//! Calls that wait for the collector: so many and no more, and the oldest goes for a new one.

use futures_util::future::BoxFuture;
use motu_core::Result;
use motu_core::audit::{AuditCall, Stage};
use motu_core::verb::Effect;
use motu_gate::Witness;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub struct Queue {
    waiting: Mutex<VecDeque<AuditCall>>,
    most: usize,
    dropped: AtomicU64,
    more: Notify,
}

impl Queue {
    pub fn new(most: usize) -> Queue {
        Queue {
            waiting: Mutex::default(),
            most,
            dropped: AtomicU64::new(0),
            more: Notify::new(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<AuditCall>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, call: AuditCall) {
        let mut waiting = self.waiting();
        if waiting.len() >= self.most {
            waiting.pop_front();
            self.lost(1);
        }
        waiting.push_back(call);
        drop(waiting);
        self.more.notify_one();
    }

    /// The oldest, up to so many.
    pub(crate) fn take(&self, most: usize) -> Option<Vec<AuditCall>> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(most);
        (count > 0).then(|| waiting.drain(..count).collect())
    }

    /// Takes back what was not sent, before what came meanwhile, as far as there is room.
    pub(crate) fn put_back(&self, calls: Vec<AuditCall>) {
        let mut waiting = self.waiting();
        for call in calls.into_iter().rev() {
            if waiting.len() >= self.most {
                self.lost(1);
            } else {
                waiting.push_front(call);
            }
        }
    }

    /// Counts calls that the collector does not hear of.
    pub(crate) fn lost(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until there are so many, or some for this long.
    pub(crate) async fn gathered(&self, enough: usize, patience: Duration) {
        while self.waiting().is_empty() {
            self.more.notified().await;
        }
        let filled = async {
            while self.waiting().len() < enough.min(self.most) {
                self.more.notified().await;
            }
        };
        let _ = tokio::time::timeout(patience, filled).await;
    }
}

/// A witness that also puts every call that has ended into the queue.
pub struct Spans {
    witness: Arc<dyn Witness>,
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spans")
    }
}

impl Spans {
    pub fn new(witness: Arc<dyn Witness>, queue: Arc<Queue>) -> Spans {
        Spans { witness, queue }
    }
}

impl Witness for Spans {
    fn keeps(&self) -> bool {
        self.witness.keeps()
    }

    fn admit(&self, effect: Effect) -> BoxFuture<'_, Result<()>> {
        self.witness.admit(effect)
    }

    fn hide(&self, request: &Value) -> Option<String> {
        self.witness.hide(request)
    }

    fn saw(&self, call: &AuditCall, durable: bool) -> BoxFuture<'static, Result<()>> {
        if call.stage != Stage::Begin {
            self.queue.push(call.clone());
        }
        self.witness.saw(call, durable)
    }

    fn unsent(&self) -> u64 {
        self.queue.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::tests::call;

    fn ids(calls: &[AuditCall]) -> Vec<&str> {
        calls.iter().map(|call| call.id.as_str()).collect()
    }

    #[test]
    fn the_oldest_goes_for_a_new_one_and_is_counted() {
        let queue = Queue::new(3);
        let calls: Vec<AuditCall> = (0..5).map(|_| call("ok")).collect();
        for call in &calls {
            queue.push(call.clone());
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 2);
        let first = queue.take(2).unwrap();
        assert_eq!(ids(&first), ids(&calls[2..4]));
        // Two come while these are on their way: one of them has room again.
        for call in &calls[..2] {
            queue.push(call.clone());
        }
        queue.put_back(first);
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 4);
        let rest = queue.take(10).unwrap();
        assert_eq!(
            ids(&rest),
            [
                calls[4].id.as_str(),
                calls[0].id.as_str(),
                calls[1].id.as_str()
            ]
        );
        assert!(queue.take(10).is_none());
    }

    #[tokio::test]
    async fn a_full_batch_does_not_wait() {
        let queue = Queue::new(10);
        for _ in 0..3 {
            queue.push(call("ok"));
        }
        let long = Duration::from_secs(3600);
        let gathered = queue.gathered(3, long);
        tokio::time::timeout(Duration::from_secs(10), gathered)
            .await
            .unwrap();
    }
}
