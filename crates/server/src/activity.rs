//! Whether anybody is being served, and since when nobody is.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Who is being served right now.
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<watch::Sender<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    /// Those of them that have no end of their own.
    open_ended: usize,
    ever: u64,
}

impl Activity {
    /// Counts as somebody until the guard is dropped.
    pub fn enter(&self) -> Guard {
        self.0.send_modify(|counts| {
            counts.open += 1;
            counts.ever += 1;
        });
        Guard {
            activity: self.clone(),
            open_ended: false,
        }
    }

    /// The same for a connection of plain bytes to a program in a machine: nobody here knows when it
    /// has done its work, so a server that leaves does not wait for it.
    pub fn enter_open_ended(&self) -> Guard {
        let mut guard = self.enter();
        guard.open_ended = true;
        self.0.send_modify(|counts| counts.open_ended += 1);
        guard
    }

    /// Who is there now.
    pub fn open(&self) -> usize {
        self.0.borrow().open
    }

    /// Who has ever been there: when it is the same as before, nobody came in between.
    pub fn ever(&self) -> u64 {
        self.0.borrow().ever
    }

    /// Waits until more have been there than `seen`.
    pub async fn more_than(&self, seen: u64) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self
            .0
            .subscribe()
            .wait_for(|counts| counts.ever > seen)
            .await;
    }

    /// Waits until only those are left who have no end of their own.
    pub async fn calls_ended(&self) {
        let mut counts = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = counts
            .wait_for(|counts| counts.open == counts.open_ended)
            .await;
    }

    /// Waits until nobody has been there for this long, without a break.
    pub async fn idle_for(&self, length: Duration) {
        let mut counts = self.0.subscribe();
        loop {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = counts.wait_for(|counts| counts.open == 0).await;
            counts.mark_unchanged();
            tokio::select! {
                () = tokio::time::sleep(length) => return,
                _ = counts.changed() => {}
            }
        }
    }
}

/// Somebody is being served while this lives.
#[derive(Debug)]
pub struct Guard {
    activity: Activity,
    open_ended: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.activity.0.send_modify(|counts| {
            counts.open -= 1;
            counts.open_ended -= usize::from(self.open_ended);
        });
    }
}
