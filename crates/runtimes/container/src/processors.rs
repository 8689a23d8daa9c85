//! Which processors a machine is shown.
//!
//! A machine's limit is time on all processors of the host, and the kernel names all of them to programs that ask how many
//! there are. A machine is shown as many as it has: programs that start a thread for each, or bind threads to
//! them, fit its limit. It is not bound to those it is shown: the kernel goes on balancing all machines over all processors.

use motu_core::runtime::MachineLimits;
use motu_local::{Hierarchies, Kind};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gives each machine the next ones, so that programs that bind their threads do not all take the first.
#[derive(Debug, Default)]
pub(crate) struct Processors {
    turn: AtomicUsize,
}

impl Processors {
    /// The ones that a machine with these limits is shown; empty where these are all.
    pub(crate) fn of(&self, cgroups: &Hierarchies, limits: &MachineLimits) -> Vec<u16> {
        // Without a controller it may have all of them.
        match cgroups.controller(Kind::Cpu) {
            Some(_) => self.next(limits.vcpu_count.value),
            None => Vec::new(),
        }
    }

    fn next(&self, count: u64) -> Vec<u16> {
        // The daemon's own: what it may not use, its machines cannot either.
        let Ok(own) = sched_getaffinity(None) else {
            return Vec::new();
        };
        let own: Vec<u16> = (0..CpuSet::MAX_CPU)
            .filter(|number| own.is_set(*number))
            .filter_map(|number| u16::try_from(number).ok())
            .collect();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let turn = self.turn.fetch_add(count.min(own.len()), Ordering::Relaxed);
        shown(&own, count, turn)
    }
}

fn shown(own: &[u16], count: usize, turn: usize) -> Vec<u16> {
    if count >= own.len() {
        return Vec::new();
    }
    let mut shown: Vec<u16> = (turn % own.len()..)
        .take(count)
        .filter_map(|at| own.get(at % own.len()).copied())
        .collect();
    shown.sort_unstable();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_is_shown_as_many_as_it_has_and_others_than_the_one_before() {
        let own = [0, 1, 4, 5];
        assert_eq!(shown(&own, 1, 0), [0]);
        assert_eq!(shown(&own, 2, 1), [1, 4]);
        assert_eq!(shown(&own, 2, 3), [0, 5]);
        assert!(shown(&own, 4, 0).is_empty());
        assert!(shown(&own, 64, 7).is_empty());
    }
}
