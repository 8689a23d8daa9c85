//! Resource usage of one sandbox in three ring buffers of different resolution. Pure, except for
//! the clock in [`Reading::now`].

use crate::clock;
use jiff::Timestamp;
use motu_core::metrics::{MetricPoint, MetricsRange};
use motu_core::report::Metrics;
use motu_core::runtime::Usage;
use std::collections::VecDeque;

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub at: Timestamp,
    /// The same moment by `CLOCK_BOOTTIME`.
    pub boot_ms: u64,
    pub usage: Usage,
}

impl Reading {
    pub fn now(usage: Usage) -> Reading {
        Reading {
            at: Timestamp::now(),
            boot_ms: clock::boot_ms(),
            usage,
        }
    }
}

#[derive(Debug)]
pub struct Rings {
    rings: [Ring; 3],
    last: Option<Reading>,
    disk_bytes: u64,
    /// True until the guest has been asked for the first time.
    new: bool,
}

impl Default for Rings {
    fn default() -> Rings {
        Rings {
            rings: MetricsRange::KEPT.map(Ring::new),
            last: None,
            disk_bytes: 0,
            new: true,
        }
    }
}

impl Rings {
    /// The newest reading.
    pub fn last(&self) -> Option<Usage> {
        self.last.map(|reading| reading.usage)
    }

    pub fn is_new(&self) -> bool {
        self.new
    }

    pub fn asked(&mut self) {
        self.new = false;
    }

    /// Adds a guest's own metrics: only the disk's, if the host counts the rest.
    pub fn told(&mut self, metrics: &Metrics, counted: bool) {
        self.disk_bytes = metrics.disk_used_bytes;
        if !counted {
            self.add(Reading::now(Usage {
                cpu_us: metrics.cpu_us,
                mem_bytes: metrics.memory_used_bytes,
            }));
        }
    }

    /// Adds a reading. The first one only sets the start of the counter, and so does one after the
    /// counter was reset by a new machine.
    pub fn add(&mut self, reading: Reading) {
        let Some(last) = self.last.replace(reading) else {
            return;
        };
        let waited_ms = reading.boot_ms.saturating_sub(last.boot_ms);
        let Some(cpu_us) = reading.usage.cpu_us.checked_sub(last.usage.cpu_us) else {
            return;
        };
        if waited_ms == 0 {
            return;
        }
        let point = MetricPoint {
            at: reading.at,
            cpu_pct: cpu_us as f64 / (waited_ms as f64 * 10.0),
            mem_bytes: reading.usage.mem_bytes,
            disk_bytes: self.disk_bytes,
        };
        for ring in &mut self.rings {
            ring.add(point, reading.boot_ms);
        }
    }

    /// The points of a range, oldest first: the newest part of the kept range it is taken from.
    pub fn points(&self, range: MetricsRange) -> Vec<MetricPoint> {
        let Some(ring) = self.rings.iter().find(|ring| ring.range == range.kept()) else {
            return Vec::new();
        };
        let Some(newest) = ring.points.back() else {
            return Vec::new();
        };
        let reach = range.reach().0.as_millis() as i128;
        let within = |point: &&MetricPoint| newest.at.duration_since(point.at).as_millis() < reach;
        match range == range.kept() {
            true => ring.points.iter().copied().collect(),
            false => ring.points.iter().filter(within).copied().collect(),
        }
    }
}

#[derive(Debug)]
struct Ring {
    range: MetricsRange,
    points: VecDeque<MetricPoint>,
    /// Points that are averaged into the next one, and when the first was added.
    gathered: Vec<MetricPoint>,
    since_ms: Option<u64>,
}

impl Ring {
    fn new(range: MetricsRange) -> Ring {
        Ring {
            range,
            points: VecDeque::new(),
            gathered: Vec::new(),
            since_ms: None,
        }
    }

    fn add(&mut self, point: MetricPoint, boot_ms: u64) {
        let (reach, apart) = self.range.reach();
        if self.range == MetricsRange::TenMinutes {
            return self.push(point, (reach.as_millis() / apart.as_millis()) as usize);
        }
        let since = *self.since_ms.get_or_insert(boot_ms);
        self.gathered.push(point);
        if u128::from(boot_ms.saturating_sub(since)) >= apart.as_millis()
            && let Some(mean) = mean(&self.gathered)
        {
            self.gathered.clear();
            self.since_ms = Some(boot_ms);
            self.push(mean, (reach.as_millis() / apart.as_millis()) as usize);
        }
    }

    fn push(&mut self, point: MetricPoint, most: usize) {
        while self.points.len() >= most {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

/// The mean of some points, at the time of the last.
fn mean(points: &[MetricPoint]) -> Option<MetricPoint> {
    let last = points.last()?;
    let count = points.len();
    let bytes = |of: fn(&MetricPoint) -> u64| {
        let sum: u128 = points.iter().map(|point| u128::from(of(point))).sum();
        (sum / count as u128) as u64
    };
    Some(MetricPoint {
        at: last.at,
        cpu_pct: points.iter().map(|point| point.cpu_pct).sum::<f64>() / count as f64,
        mem_bytes: bytes(|point| point.mem_bytes),
        disk_bytes: bytes(|point| point.disk_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading after so many half seconds, of a machine that uses half a processor.
    fn reading(step: u64) -> Reading {
        Reading {
            at: Timestamp::from_millisecond(step as i64 * 500).unwrap(),
            boot_ms: 1_000_000 + step * 500,
            usage: Usage {
                cpu_us: step * 250_000,
                mem_bytes: step,
            },
        }
    }

    fn after(steps: u64) -> Rings {
        let mut rings = Rings::default();
        (0..=steps).for_each(|step| rings.add(reading(step)));
        rings
    }

    #[test]
    fn ranges_are_as_long_and_as_dense_as_they_say() {
        let day = 2 * 86_400 + 1200;
        let rings = after(day);
        let counts = [600, 1200, 120, 240, 72, 144, 288];
        for (range, count) in MetricsRange::ALL.into_iter().zip(counts) {
            let points = rings.points(range);
            assert_eq!(points.len(), count, "{range:?}");
            let apart = range.reach().1.as_millis() as i128;
            for pair in points.windows(2) {
                let between = pair[1].at.duration_since(pair[0].at).as_millis();
                assert_eq!(between, apart, "{range:?}");
            }
            assert!(points.iter().all(|p| (p.cpu_pct - 50.0).abs() < 1e-9));
        }
        let newest = rings.points(MetricsRange::TenMinutes)[1199];
        assert_eq!(newest.mem_bytes, day);
    }

    #[test]
    fn a_point_of_a_long_range_is_the_mean_of_those_it_stands_for() {
        let rings = after(61);
        let long = rings.points(MetricsRange::TwoHours);
        // 61 points of memory 1, 2, … 61.
        assert_eq!(long.len(), 1);
        assert_eq!((long[0].mem_bytes, long[0].at), (31, reading(61).at));
    }

    #[test]
    fn a_counter_that_begins_again_is_no_point() {
        let mut rings = after(10);
        rings.add(Reading {
            usage: Usage {
                cpu_us: 0,
                mem_bytes: 0,
            },
            ..reading(11)
        });
        assert_eq!(rings.points(MetricsRange::TenMinutes).len(), 10);
    }

    #[test]
    fn what_a_guest_says_is_its_disk_and_only_without_counters_the_rest() {
        let metrics = Metrics {
            cpu_us: 7,
            cpus: 1,
            memory_used_bytes: 5,
            memory_total_bytes: 10,
            disk_used_bytes: 99,
            disk_total_bytes: 100,
            processes: 1,
            uptime_ms: 1,
            guest_rss_bytes: 1,
        };
        let mut rings = after(1);
        rings.told(&metrics, true);
        rings.add(reading(2));
        let points = rings.points(MetricsRange::TenMinutes);
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].disk_bytes, points[1].disk_bytes), (0, 99));
        let mut alone = Rings::default();
        alone.told(&metrics, false);
        assert_eq!(alone.last.map(|last| last.usage.mem_bytes), Some(5));
    }
}
