//! The host's own addresses: never reached, whenever they came.

use super::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::flow::Flow;
use std::io;
use std::net::IpAddr;

impl Gateway {
    /// The host may have other addresses. What is open to one of them has ended when this returns;
    /// where they cannot be known, so does the gateway.
    pub(super) fn moved(&mut self) -> io::Result<()> {
        let Some(addresses) = &self.addresses else {
            return Ok(());
        };
        if addresses.have_changed() {
            self.desk.places.host = addresses.all()?;
            self.judge_again();
        }
        Ok(())
    }

    /// Ends what is not allowed any more.
    pub(super) fn judge_again(&mut self) {
        self.cut(Flow::judged_again);
        self.end_exchanges(Exchange::judged_again);
    }

    /// Whether the host would connect to itself, by what the kernel says now.
    pub(super) fn is_here(&self, address: IpAddr) -> bool {
        if self.desk.places.stands_in(address) {
            return false;
        }
        let addresses = self.addresses.as_ref();
        addresses.is_some_and(|addresses| addresses.stays_here(address).unwrap_or(true))
    }
}
