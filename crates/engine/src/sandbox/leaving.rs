//! One-shots whose command has ended. Their callers have their answers and do not wait for the
//! machines to be taken down; whoever counts machines or lists them does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How many machines are taken down with nobody waiting. The callers of further ones wait, so that
/// machines do not come faster than they go.
const MOST: usize = 8;

/// How long whoever lists machines waits for those that are leaving.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Leaving(watch::Sender<Left>);

/// Those that are still there, numbered in the order of their commands' ends.
#[derive(Debug, Default)]
struct Left {
    next: u64,
    numbers: BTreeSet<u64>,
}

impl Leaving {
    /// Waits for an end: in the background, or here if many are waited for already.
    pub(crate) async fn see_off(self: &Arc<Self>, end: impl Future<Output = ()> + Send + 'static) {
        let mut number = None;
        self.0.send_modify(|left| {
            if left.numbers.len() < MOST {
                number = Some(left.next);
                left.numbers.insert(left.next);
                left.next += 1;
            }
        });
        let Some(number) = number else {
            return end.await;
        };
        let leaving = self.clone();
        tokio::spawn(async move {
            end.await;
            leaving.0.send_modify(|left| {
                left.numbers.remove(&number);
            });
        });
    }

    pub(crate) fn any(&self) -> bool {
        !self.0.borrow().numbers.is_empty()
    }

    /// Waits until those that are leaving now are gone, but not for one that does not go. Later
    /// ones do not prolong it.
    pub(crate) async fn gone(&self) {
        let mut left = self.0.subscribe();
        let later = left.borrow().next;
        let gone = |left: &Left| left.numbers.first().is_none_or(|first| *first >= later);
        let _ = tokio::time::timeout(PATIENCE, left.wait_for(gone)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    async fn leave(leaving: &Arc<Leaving>) -> oneshot::Sender<()> {
        let (ended, end) = oneshot::channel();
        leaving.see_off(end.map(drop)).await;
        ended
    }

    #[tokio::test]
    async fn nobody_waits_for_an_end_but_who_asks() {
        let leaving = Arc::new(Leaving::default());
        assert!(!leaving.any());
        leaving.gone().await;
        let first = leave(&leaving).await;
        assert!(leaving.any());
        let gone = tokio::spawn({
            let leaving = leaving.clone();
            async move { leaving.gone().await }
        });
        tokio::task::yield_now().await;
        let later = leave(&leaving).await;
        assert!(!gone.is_finished());
        first.send(()).unwrap();
        gone.await.unwrap();
        assert!(leaving.any(), "the later one is still there");
        later.send(()).unwrap();
        leaving.gone().await;
        assert!(!leaving.any());
    }

    #[tokio::test]
    async fn the_callers_of_too_many_wait() {
        let leaving = Arc::new(Leaving::default());
        let mut ends = Vec::new();
        for _ in 0..MOST {
            ends.push(leave(&leaving).await);
        }
        assert!(leave(&leaving).now_or_never().is_none());
        drop(ends.pop());
        leaving.gone().now_or_never();
        // Room comes when an end was seen.
        while leaving.0.borrow().numbers.len() == MOST {
            tokio::task::yield_now().await;
        }
        assert!(leave(&leaving).now_or_never().is_some());
    }
}
