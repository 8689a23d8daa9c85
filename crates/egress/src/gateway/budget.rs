//! Traffic budget of a sandbox: total bytes, bytes per second, connections and questions per second.

use crate::rules::Limits;
use std::time::{Duration, Instant};

/// Queries of a sandbox in one second; more are refused. What leaves in the names of an allowed
/// family is bounded by it, and so is the work of the gateway and of the host's resolver.
pub const QUESTIONS_PER_SECOND: u32 = 200;

/// A token bucket that holds at most one second's worth.
#[derive(Debug)]
struct Bucket {
    rate: u64,
    have: f64,
    at: Instant,
}

impl Bucket {
    fn new(rate: u64, now: Instant) -> Self {
        Self {
            rate,
            have: rate as f64,
            at: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.have = (self.have + passed * self.rate as f64).min(self.rate as f64);
        self.at = now;
    }

    /// Takes one, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let may = self.have >= 1.0;
        if may {
            self.have -= 1.0;
        }
        may
    }
}

#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    connects: Bucket,
    bytes: Bucket,
    questions: Bucket,
    /// Bytes in both directions since the gateway began.
    used: u64,
}

impl Budget {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            connects: Bucket::new(limits.connects_per_second.into(), now),
            bytes: Bucket::new(limits.bytes_per_second, now),
            questions: Bucket::new(QUESTIONS_PER_SECOND.into(), now),
            used: 0,
        }
    }

    /// Applies new limits; used bytes stay used, and so do questions.
    pub(super) fn replace(&mut self, limits: Limits, now: Instant) {
        self.limits = limits;
        self.connects = Bucket::new(limits.connects_per_second.into(), now);
        self.bytes = Bucket::new(limits.bytes_per_second, now);
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn most_connections(&self) -> usize {
        self.limits.connections as usize
    }

    /// Whether the total of bytes is used up.
    pub(super) fn is_used_up(&self) -> bool {
        self.limits.bytes != 0 && self.used >= self.limits.bytes
    }

    /// Whether one more connection may begin now.
    pub(super) fn connect(&mut self, now: Instant) -> bool {
        if self.limits.connects_per_second == 0 {
            return true;
        }
        self.connects.take(now)
    }

    /// Whether one more name may be asked for now.
    pub(super) fn question(&mut self, now: Instant) -> bool {
        self.questions.take(now)
    }

    /// How many of `want` bytes may pass now.
    pub(super) fn room(&mut self, want: usize, now: Instant) -> usize {
        let mut room = want as u64;
        if self.limits.bytes != 0 {
            room = room.min(self.limits.bytes.saturating_sub(self.used));
        }
        if self.limits.bytes_per_second != 0 {
            self.bytes.fill(now);
            room = room.min(self.bytes.have as u64);
        }
        room as usize
    }

    /// Records bytes that have passed.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.used += bytes as u64;
        self.bytes.have -= bytes as f64;
    }

    /// How long a throttled connection waits before it tries again.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_gives_what_the_limit_says() {
        let begin = Instant::now();
        let limits = Limits {
            connects_per_second: 2,
            bytes_per_second: 100,
            bytes: 250,
            ..Limits::default()
        };
        let mut budget = Budget::new(limits, begin);
        assert!(budget.connect(begin) && budget.connect(begin) && !budget.connect(begin));
        assert!(budget.connect(begin + Duration::from_millis(600)));
        assert_eq!(budget.room(1000, begin), 100);
        budget.spend(100);
        assert_eq!(budget.room(1000, begin), 0);
        let later = begin + Duration::from_secs(10);
        assert_eq!(budget.room(1000, later), 100);
        budget.spend(100);
        let much_later = begin + Duration::from_secs(20);
        assert_eq!(budget.room(1000, much_later), 50);
        budget.spend(50);
        assert!(budget.is_used_up());
        budget.replace(Limits::default(), much_later);
        assert_eq!((budget.used(), budget.is_used_up()), (250, false));
        let asked = (0..1000).filter(|_| budget.question(begin)).count();
        assert_eq!(asked, QUESTIONS_PER_SECOND as usize);
        budget.replace(Limits::default(), begin);
        assert!(!budget.question(begin));
        assert!(budget.question(begin + Duration::from_millis(6)));
    }
}
