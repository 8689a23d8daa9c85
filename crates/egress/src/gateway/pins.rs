//! Pins: which names resolved to which address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const ADDRESSES: usize = 4096;
const NAMES: usize = 16;
/// How long a name counts beyond its TTL: programs keep addresses longer than they should.
const GRACE: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Pins(HashMap<IpAddr, Vec<(String, Instant)>>);

impl Pins {
    pub(super) fn add(&mut self, address: IpAddr, name: &str, ttl: Duration, now: Instant) {
        let until = now + ttl + GRACE;
        if !self.0.contains_key(&address) && self.0.len() >= ADDRESSES {
            self.make_room(now);
        }
        let names = self.0.entry(address).or_default();
        names.retain(|(known, end)| known != name && *end > now);
        if names.len() >= NAMES {
            names.remove(0);
        }
        names.push((name.to_owned(), until));
    }

    /// Forgets the names of an address.
    pub(super) fn forget(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }

    pub(super) fn names(&self, address: IpAddr, now: Instant) -> Vec<String> {
        let names = self.0.get(&address).into_iter().flatten();
        let live = names.filter(|(_, end)| *end > now);
        live.map(|(name, _)| name.clone()).collect()
    }

    /// Removes expired pins; if that is not enough, the quarter that expires first.
    fn make_room(&mut self, now: Instant) {
        self.0
            .retain(|_, names| names.iter().any(|(_, end)| *end > now));
        if self.0.len() < ADDRESSES {
            return;
        }
        let end = |names: &[(String, Instant)]| names.iter().map(|(_, end)| *end).max();
        let mut ends: Vec<_> = self.0.values().map(|names| end(names)).collect();
        let (_, bar, _) = ends.select_nth_unstable(ADDRESSES / 4);
        let bar = *bar;
        self.0.retain(|_, names| end(names) > bar);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn names_are_forgotten_in_time_and_the_table_is_bounded() {
        let (mut pins, now) = (Pins::default(), Instant::now());
        let second = Duration::from_secs(1);
        let address = IpAddr::from([1, 2, 3, 4]);
        for number in 0..100 {
            pins.add(address, &format!("{number}.example"), second, now);
        }
        let names = pins.names(address, now);
        assert_eq!(names.len(), NAMES);
        assert!(names.contains(&"99.example".to_owned()));
        assert!(pins.names(address, now + GRACE + 2 * second).is_empty());
        for number in 0..10_000 {
            let later = now + Duration::from_millis(number.into());
            let address = Ipv4Addr::from_bits(number).into();
            pins.add(address, "a.example", second, later);
        }
        assert!(pins.0.len() <= ADDRESSES && pins.0.len() > ADDRESSES / 2);
        assert_eq!(pins.names(Ipv4Addr::from_bits(9999).into(), now).len(), 1);
    }
}
