//! Timings and their quantiles.

use std::time::{Duration, Instant};

/// Sorted timings.
#[derive(Debug)]
pub struct Timings(Vec<Duration>);

impl Timings {
    /// Runs some work to warm up, and then `count` times.
    pub fn of<E>(count: usize, mut work: impl FnMut() -> Result<(), E>) -> Result<Timings, E> {
        for _ in 0..count.div_ceil(10) {
            work()?;
        }
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            work()?;
            all.push(begun.elapsed());
        }
        Ok(Timings::from(all))
    }

    pub fn from(mut all: Vec<Duration>) -> Timings {
        all.sort_unstable();
        Timings(all)
    }

    /// The value below which that share of the timings lies, in milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = ((last as f64) * share).round() as usize;
        self.0.get(at).map_or(f64::NAN, |d| d.as_secs_f64() * 1e3)
    }

    /// The throughput in MB/s if each run moved this many bytes.
    pub fn speed(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / (self.p50() / 1e3)
    }

    pub fn p50(&self) -> f64 {
        self.quantile(0.5)
    }
}
