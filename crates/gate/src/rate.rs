//! How often one caller may change or run something.

use motu_core::limits::{Limit, QUOTA_CALLS_PER_MINUTE};
use motu_core::{Error, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: f64 = 60.0;
/// Callers that are remembered before those who have been quiet for a minute are forgotten.
const REMEMBERED: usize = 1024;

/// So many calls a minute for each caller, at once or one after the other.
#[derive(Debug, Default)]
pub struct Rate {
    callers: Mutex<HashMap<String, Bucket>>,
}

/// Whose calls are counted, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Allowance<'a> {
    pub who: &'a str,
    /// In a minute; 0: any number.
    pub most: u64,
    pub limit: Limit,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    /// Counts a call, or says when there may be one.
    pub fn admit(&self, allowance: Allowance<'_>, now: Instant) -> Result<()> {
        if allowance.most == 0 {
            return Ok(());
        }
        let (who, most) = (allowance.who, allowance.most as f64);
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= REMEMBERED && !callers.contains_key(who) {
            let quiet = Duration::from_secs_f64(MINUTE);
            callers.retain(|_, bucket| now.saturating_duration_since(bucket.at) < quiet);
        }
        let bucket = callers.entry(who.to_string()).or_insert(Bucket {
            left: most,
            at: now,
        });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * most / MINUTE).min(most);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = ((1.0 - bucket.left) * MINUTE / most).ceil() as u64;
        Err(over(&allowance, wait))
    }
}

fn over(allowance: &Allowance<'_>, wait: u64) -> Error {
    let Allowance { who, most, limit } = allowance;
    let name = limit.name;
    let raise = match name == QUOTA_CALLS_PER_MINUTE.name {
        true => format!("raise {name} ([quota] in config.toml)"),
        false => "make another key with more".to_string(),
    };
    Error::limit(format!("{who} makes too many calls; {name} is {most}"))
        .hint(format!("wait {wait} s, or ask the operator to {raise}"))
        .details(serde_json::json!({
            "code": "quota", "limit": name, "owner": who, "max": most, "retry_after_seconds": wait,
        }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(who: &str, most: u64) -> Allowance<'_> {
        Allowance {
            who,
            most,
            limit: QUOTA_CALLS_PER_MINUTE,
        }
    }

    #[test]
    fn a_minute_holds_so_many_calls_of_each() {
        let rate = Rate::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for _ in 0..3 {
            assert_eq!(rate.admit(of("a", 3), at(0)), Ok(()));
        }
        let error = rate.admit(of("a", 3), at(0)).expect_err("the fourth");
        assert_eq!(error.details["code"], "quota");
        assert_eq!(error.details["retry_after_seconds"], 20);
        // Others have their own, and time passes.
        assert_eq!(rate.admit(of("b", 3), at(0)), Ok(()));
        assert_eq!(rate.admit(of("a", 3), at(20)), Ok(()));
        assert!(rate.admit(of("a", 3), at(21)).is_err());
        assert_eq!(rate.admit(of("a", 0), at(21)), Ok(()));
    }

    #[test]
    fn those_who_ask_at_once_get_no_more() {
        let rate = Rate::default();
        let now = Instant::now();
        let admitted: usize = std::thread::scope(|scope| {
            let ask = || {
                (0..40)
                    .filter(|_| rate.admit(of("a", 50), now).is_ok())
                    .count()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a count"))
                .sum()
        });
        assert_eq!(admitted, 50);
    }

    #[test]
    fn callers_are_forgotten() {
        let rate = Rate::default();
        let begin = Instant::now();
        for number in 0..2 * REMEMBERED {
            let at = begin + Duration::from_secs(number as u64);
            assert_eq!(rate.admit(of(&number.to_string(), 1), at), Ok(()));
        }
        assert!(rate.callers.lock().expect("nobody panics").len() <= REMEMBERED);
    }
}
