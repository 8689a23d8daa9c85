//! One-shots whose command has ended. Their callers have their answers and do not wait for the
//! machines to be taken down; whoever counts machines or lists them does.
//!
//! Taking a machine down costs as much of the processors as making one. So it waits while other
//! calls wait for machines of theirs: a hundred one-shots at once have their results sooner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How many machines are taken down with nobody waiting. The callers of further ones wait, so that
/// machines do not come faster than they go.
const MOST: usize = 64;

/// How long a machine is left alone at most while calls wait for others.
const REST: Duration = Duration::from_secs(1);

/// How long whoever lists machines waits for those that are leaving.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Leaving {
    left: watch::Sender<Left>,
    rush: watch::Sender<Rush>,
}

/// Those that are still there, numbered in the order of their commands' ends.
#[derive(Debug, Default)]
struct Left {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// Whether machines may rest before they are taken down.
#[derive(Debug, Default)]
struct Rush {
    /// Calls that wait for a machine.
    waiting: usize,
    /// Machines with lower numbers may not: somebody waits for their end.
    called: u64,
}

impl Rush {
    fn is_over_for(&self, number: u64) -> bool {
        self.waiting == 0 || number < self.called
    }
}

/// A call that waits for a machine, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Leaving>);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Those at rest are woken by the last one only.
        self.0.rush.send_if_modified(|rush| {
            rush.waiting -= 1;
            rush.waiting == 0
        });
    }
}

impl Leaving {
    /// Lets machines rest that are left meanwhile.
    pub(crate) fn wait_for_machine(self: &Arc<Self>) -> Waiting {
        self.rush.send_if_modified(|rush| {
            rush.waiting += 1;
            false
        });
        Waiting(self.clone())
    }

    /// Takes a machine down in the background, when its caller has been answered; false if too many
    /// are leaving already.
    pub(crate) fn see_off(
        self: &Arc<Self>,
        answered: oneshot::Receiver<()>,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let mut number = None;
        self.left.send_if_modified(|left| {
            if left.numbers.len() < MOST {
                number = Some(left.next);
                left.numbers.insert(left.next);
                left.next += 1;
            }
            false
        });
        let Some(number) = number else {
            return false;
        };
        let leaving = self.clone();
        tokio::spawn(async move {
            // Nothing is sent: the sender is dropped.
            let _ = answered.await;
            leaving.rest(number).await;
            end.await;
            leaving.left.send_modify(|left| {
                left.numbers.remove(&number);
            });
        });
        true
    }

    async fn rest(&self, number: u64) {
        let mut rush = self.rush.subscribe();
        let over = rush.wait_for(|rush| rush.is_over_for(number));
        let _ = tokio::time::timeout(REST, over).await;
    }

    pub(crate) fn any(&self) -> bool {
        !self.left.borrow().numbers.is_empty()
    }

    /// Waits until those that are leaving now are gone, but not for one that does not go. Later
    /// ones do not prolong it.
    pub(crate) async fn gone(&self) {
        let mut left = self.left.subscribe();
        let later = left.borrow().next;
        let gone = |left: &Left| left.numbers.first().is_none_or(|first| *first >= later);
        if gone(&left.borrow()) {
            return;
        }
        self.rush
            .send_modify(|rush| rush.called = rush.called.max(later));
        let _ = tokio::time::timeout(PATIENCE, left.wait_for(gone)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// A caller that has been answered.
    fn answered() -> oneshot::Receiver<()> {
        oneshot::channel().1
    }

    /// One that leaves until what this returns is dropped; `None` if there is no room for it.
    fn leave(leaving: &Arc<Leaving>) -> Option<oneshot::Sender<()>> {
        let (ended, end) = oneshot::channel();
        leaving.see_off(answered(), end.map(drop)).then_some(ended)
    }

    #[tokio::test]
    async fn nobody_waits_for_an_end_but_who_asks() {
        let leaving = Arc::new(Leaving::default());
        assert!(!leaving.any());
        leaving.gone().await;
        let first = leave(&leaving);
        assert!(leaving.any());
        let gone = tokio::spawn({
            let leaving = leaving.clone();
            async move { leaving.gone().await }
        });
        tokio::task::yield_now().await;
        let later = leave(&leaving);
        assert!(!gone.is_finished());
        drop(first);
        gone.await.unwrap();
        assert!(leaving.any(), "the later one is still there");
        drop(later);
        leaving.gone().await;
        assert!(!leaving.any());
    }

    #[tokio::test]
    async fn there_is_no_room_for_too_many() {
        let leaving = Arc::new(Leaving::default());
        let mut ends: Vec<_> = (0..MOST).map(|_| leave(&leaving).unwrap()).collect();
        assert!(leave(&leaving).is_none());
        drop(ends.pop());
        leaving.gone().now_or_never();
        // Room comes when an end was seen.
        while leaving.left.borrow().numbers.len() == MOST {
            tokio::task::yield_now().await;
        }
        assert!(leave(&leaving).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn machines_rest_while_calls_wait_for_others() {
        let leaving = Arc::new(Leaving::default());
        let first = leaving.wait_for_machine();
        let second = leaving.wait_for_machine();
        let (taken_down, mut end) = oneshot::channel();
        leaving.see_off(answered(), async move { taken_down.send(()).unwrap() });
        drop(first);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(end.try_recv().is_err(), "a call waits for its machine");
        drop(second);
        end.await.unwrap();
        leaving.gone().await;
    }

    #[tokio::test(start_paused = true)]
    async fn no_machine_rests_for_ever() {
        let leaving = Arc::new(Leaving::default());
        let _waiting = leaving.wait_for_machine();
        let begun = tokio::time::Instant::now();
        let (taken_down, end) = oneshot::channel();
        leaving.see_off(answered(), async move { taken_down.send(()).unwrap() });
        end.await.unwrap();
        assert!(begun.elapsed() >= REST && begun.elapsed() < 2 * REST);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_counts_machines_ends_their_rest() {
        let leaving = Arc::new(Leaving::default());
        let _waiting = leaving.wait_for_machine();
        let begun = tokio::time::Instant::now();
        leaving.see_off(answered(), async {});
        leaving.gone().await;
        assert!(!leaving.any());
        assert!(begun.elapsed() < REST);
    }

    #[tokio::test]
    async fn no_machine_ends_before_its_caller_has_been_answered() {
        let leaving = Arc::new(Leaving::default());
        let (unanswered, answered) = oneshot::channel();
        let (taken_down, mut end) = oneshot::channel();
        leaving.see_off(answered, async move { taken_down.send(()).unwrap() });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(end.try_recv().is_err());
        assert!(leaving.any(), "but it is known to leave");
        drop(unanswered);
        end.await.unwrap();
    }
}
