//! Telling a client that waits how far a call is.

use crate::call::Call;
use rmcp::model::ProgressNotificationParam;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often a waiting client hears of its call.
pub const EVERY: Duration = Duration::from_secs(1);

/// What is known of work under way.
#[derive(Debug, Default)]
pub struct Seen {
    bytes: AtomicU64,
    step: Mutex<String>,
}

impl Seen {
    /// More output has come.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So much output has come in all.
    pub fn total(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// What is being done now.
    pub fn step(&self, step: String) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    fn message(&self, since: Instant) -> String {
        let mut message = format!("{} s", since.elapsed().as_secs());
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        if !step.is_empty() {
            message.push_str(&format!(", {step}"));
        }
        match self.bytes.load(Ordering::Relaxed) {
            0 => {}
            bytes => message.push_str(&format!(", {bytes} bytes of output")),
        }
        message
    }
}

impl Call {
    /// Whether the client asked to hear how far a call is.
    pub fn is_followed(&self) -> bool {
        self.context.meta.get_progress_token().is_some()
    }

    /// Does the work, and says every second how far it is to a client that asked to hear it.
    pub async fn told<T>(&self, seen: &Seen, work: impl Future<Output = T>) -> T {
        let Some(token) = self.context.meta.get_progress_token() else {
            return work.await;
        };
        let begin = Instant::now();
        let mut ticks = tokio::time::interval_at(begin + EVERY, EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        tokio::pin!(work);
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                _ = ticks.tick() => {
                    let progress = begin.elapsed().as_secs_f64();
                    let note = ProgressNotificationParam::new(token.clone(), progress)
                        .with_message(seen.message(begin));
                    // A client that does not read must not block the work.
                    let telling = self.context.peer.notify_progress(note);
                    let _ = tokio::time::timeout(EVERY / 2, telling).await;
                }
            }
        }
    }
}
