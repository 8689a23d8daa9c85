//! Chooses the route of a connection: directly, or through the host's proxy.

use crate::judge::Destination;
use crate::proxy::{Dialogue, Proxy, Target};
use std::net::SocketAddr;

/// The proxy of this host, if it has one, and its address.
#[derive(Debug)]
pub(super) struct Upstream(pub(super) Option<(Proxy, SocketAddr)>);

impl Upstream {
    /// Whether only the proxy can resolve a name.
    pub(super) fn resolves(&self, name: &str) -> bool {
        let proxy = self.0.as_ref();
        proxy.is_some_and(|(proxy, _)| !proxy.leaves_name(name))
    }

    /// The address to connect to, and the proxy dialogue. `names` resolved to the destination.
    pub(super) fn way(&self, to: &Destination, names: &[String]) -> (SocketAddr, Option<Dialogue>) {
        let straight = (SocketAddr::new(to.address, to.port), None);
        let Some((proxy, place)) = &self.0 else {
            return straight;
        };
        let target = match names.iter().find(|name| self.resolves(name)) {
            // A synthetic address stands for exactly this name.
            Some(name) => Target::Name(name.clone()),
            // Resolved by this host, because the proxy does not apply to it.
            None if !names.is_empty() || proxy.leaves_address(to.address) => return straight,
            None => Target::Address(to.address),
        };
        (*place, Some(Dialogue::new(proxy, target, to.port)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Protocol;

    #[test]
    fn names_and_addresses_take_the_way_that_is_for_them() {
        let mut proxy = Proxy::parse("http://p:3128").unwrap();
        proxy.without("corp.example,10.0.0.0/8");
        let place: SocketAddr = "11.0.0.9:3128".parse().unwrap();
        let upstream = Upstream(Some((proxy, place)));
        let way = |address: &str, names: &[&str]| {
            let to = Destination {
                address: address.parse().unwrap(),
                port: 443,
                protocol: Protocol::Tcp,
            };
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let (to, dialogue) = upstream.way(&to, &names);
            let said = dialogue.map(|dialogue| String::from_utf8(dialogue.first()).unwrap());
            let asked = said.map(|said| said.split(' ').nth(1).unwrap().to_owned());
            (to.to_string(), asked.unwrap_or_default())
        };
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let by_proxy = |asked: &str| pair("11.0.0.9:3128", asked);
        assert_eq!(way("198.18.0.1", &["a.example"]), by_proxy("a.example:443"));
        assert_eq!(way("1.1.1.1", &[]), by_proxy("1.1.1.1:443"));
        assert_eq!(way("10.1.1.1", &[]), pair("10.1.1.1:443", ""));
        assert_eq!(
            way("11.1.1.1", &["x.corp.example"]),
            pair("11.1.1.1:443", "")
        );
        assert!(!Upstream(None).resolves("a.example"));
    }
}
