//! Wrong keys, as they are told of: one entry for each address and minute, however often it tries.
//!
//! Whoever guesses must not fill the log, and must not go unseen. Whoever has many addresses shares
//! one more entry for all that have no place here.

use motu_core::limits::AUDIT_STRANGERS;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// When each address was told of last.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    by_address: HashMap<IpAddr, Instant>,
    others: Option<Instant>,
}

impl Strangers {
    /// The name under which a wrong key from this address is told of, if it is to be told of now.
    pub fn name(&self, from: IpAddr, now: Instant) -> Option<String> {
        let recent = |at: &Instant| now.saturating_duration_since(*at) < MINUTE;
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = usize::try_from(AUDIT_STRANGERS.max).unwrap_or(usize::MAX);
        if told.by_address.len() >= most {
            told.by_address.retain(|_, at| recent(at));
        }
        let one = network(from);
        if told.by_address.get(&one).is_some_and(recent) {
            return None;
        }
        if told.by_address.len() < most {
            told.by_address.insert(one, now);
            return Some(format!("address:{}", from.to_canonical()));
        }
        match &told.others {
            Some(at) if recent(at) => None,
            _ => {
                told.others = Some(now);
                Some("address:others".to_string())
            }
        }
    }
}

/// What is one caller as far as anybody can tell: of IPv6, whoever has one address has its network.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_of_once_a_minute() {
        let strangers = Strangers::default();
        let begin = Instant::now();
        let told = |from: &str, seconds| {
            let from = from.parse().expect("an address");
            strangers.name(from, begin + Duration::from_secs(seconds))
        };
        assert_eq!(told("192.0.2.1", 0).as_deref(), Some("address:192.0.2.1"));
        assert_eq!(told("192.0.2.1", 59), None);
        assert_eq!(told("::ffff:192.0.2.1", 59), None);
        assert!(told("192.0.2.2", 59).is_some());
        assert!(told("192.0.2.1", 60).is_some());
        assert!(told("2001:db8::1", 60).is_some());
        assert_eq!(told("2001:db8::2", 61), None);
    }

    #[test]
    fn those_who_have_many_addresses_fill_nothing() {
        let strangers = Strangers::default();
        let begin = Instant::now();
        let told = |number: u64, seconds| {
            let from = IpAddr::from((number as u32).to_be_bytes());
            strangers.name(from, begin + Duration::from_secs(seconds))
        };
        let most = AUDIT_STRANGERS.max;
        let all = (0..2 * most).filter_map(|number| told(number, 0));
        assert_eq!(all.count() as u64, most + 1);
        assert_eq!(told(2 * most, 59), None);
        let later = (0..2 * most).filter_map(|number| told(number, 60));
        assert_eq!(later.count() as u64, most + 1);
        let kept = strangers.0.lock().expect("nobody panics");
        assert_eq!(kept.by_address.len() as u64, most);
    }
}
