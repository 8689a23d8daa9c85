//! Synthetic addresses that stand for names: used where a proxy resolves names.

use crate::address::Network;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

/// The benchmarking network (RFC 2544), which is not routed anywhere.
pub(super) const NETWORK: Network = Network::v4(198, 18, 0, 0, 15);
const FIRST: u32 = Ipv4Addr::new(198, 18, 0, 0).to_bits();
const COUNT: u32 = 1 << 17;
/// Names that have an address at the same time.
const NAMES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct StandIns {
    next: u32,
    names: HashMap<String, Ipv4Addr>,
    order: VecDeque<String>,
}

impl StandIns {
    /// The address of a name, and whether it is new. An address is reused for another name only
    /// after all others have been used.
    pub(super) fn of(&mut self, name: &str) -> (Ipv4Addr, bool) {
        if let Some(address) = self.names.get(name) {
            return (*address, false);
        }
        if self.order.len() >= NAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
        // Not the first address, which some programs take for a network address.
        let address = Ipv4Addr::from_bits(FIRST + 1 + self.next % (COUNT - 2));
        self.next = self.next.wrapping_add(1) % (COUNT - 2);
        self.names.insert(name.to_owned(), address);
        self.order.push_back(name.to_owned());
        (address, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_the_table_is_bounded() {
        let mut stand_ins = StandIns::default();
        let (first, new) = stand_ins.of("a.example");
        assert!(new && NETWORK.contains(first.into()));
        assert_eq!(stand_ins.of("a.example"), (first, false));
        for number in 0..2 * COUNT {
            let (address, new) = stand_ins.of(&format!("{number}.example"));
            assert!(new && NETWORK.contains(address.into()));
        }
        assert_eq!(stand_ins.names.len(), NAMES);
        assert_eq!(stand_ins.order.len(), NAMES);
    }
}
