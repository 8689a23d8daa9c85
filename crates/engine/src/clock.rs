//! Deadlines that survive changes of the wall clock.
//!
//! Callers are told by the wall clock when a sandbox expires; the decision uses `CLOCK_BOOTTIME`,
//! which counts while the host is suspended and cannot be set. A deadline is stored in both; the
//! wall clock's counts only after a reboot of the host.

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::Duration;

/// The end of a time to live, by `CLOCK_BOOTTIME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    pub boot_id: String,
    pub at_ms: u64,
    /// The same moment by the wall clock; if the row's differs, the deadline is another one.
    pub expires_at: Timestamp,
}

/// Now, by both clocks.
#[derive(Clone, Debug)]
pub struct Now {
    pub boot_id: String,
    pub boot_ms: u64,
    pub wall: Timestamp,
}

impl Now {
    pub fn get() -> Now {
        Now {
            boot_id: boot_id().to_string(),
            boot_ms: boot_ms(),
            wall: Timestamp::now(),
        }
    }

    /// The deadline for this expiry. One that was stored during this boot stays, even if the wall
    /// clock has changed; no deadline is further away than the time to live.
    pub fn deadline(
        &self,
        expires_at: Timestamp,
        ttl_seconds: u64,
        written: Option<&Deadline>,
    ) -> Deadline {
        let written =
            written.filter(|old| old.boot_id == self.boot_id && old.expires_at == expires_at);
        let left = expires_at.duration_since(self.wall).as_millis();
        let left = left.clamp(0, i128::from(ttl_seconds.saturating_mul(1000)));
        Deadline {
            boot_id: self.boot_id.clone(),
            at_ms: written.map_or(self.boot_ms.saturating_add(left as u64), |old| old.at_ms),
            expires_at,
        }
    }
}

/// Milliseconds since the host was started, suspended time included.
pub fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::try_from(now).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The kernel's id of this boot, different after every reboot.
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.unwrap_or_default().trim().to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(boot_id: &str, boot_ms: u64, wall: i64) -> Now {
        Now {
            boot_id: boot_id.to_string(),
            boot_ms,
            wall: Timestamp::from_second(wall).unwrap(),
        }
    }

    #[test]
    fn a_jump_of_the_wall_clock_moves_no_deadline() {
        let expires = Timestamp::from_second(1_000_060).unwrap();
        let first = now("a", 5_000, 1_000_000).deadline(expires, 60, None);
        assert_eq!(first.at_ms, 65_000);
        for wall in [0, 1_000_010, 9_000_000] {
            let later = now("a", 15_000, wall).deadline(expires, 60, Some(&first));
            assert_eq!(later, first);
        }
    }

    #[test]
    fn after_a_boot_the_wall_clock_says_what_is_left() {
        let expires = Timestamp::from_second(1_000_060).unwrap();
        let first = now("a", 5_000, 1_000_000).deadline(expires, 60, None);
        let left = |wall| {
            now("b", 1_000, wall)
                .deadline(expires, 60, Some(&first))
                .at_ms
        };
        assert_eq!(left(1_000_020), 41_000);
        assert_eq!(left(2_000_000), 1_000);
        // A wall clock that is years behind does not extend the time to live by years.
        assert_eq!(left(0), 61_000);
    }

    #[test]
    fn another_end_is_another_deadline() {
        let first = now("a", 5_000, 100).deadline(Timestamp::from_second(160).unwrap(), 60, None);
        let expires = Timestamp::from_second(400).unwrap();
        let renewed = now("a", 6_000, 101).deadline(expires, 300, Some(&first));
        assert_eq!(renewed.at_ms, 305_000);
    }
}
