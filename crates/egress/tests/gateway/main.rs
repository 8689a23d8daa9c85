//! A gateway in its own process between real network namespaces.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod addresses;
mod attacks;
mod datagrams;
mod differences;
mod life;
mod passing;
mod proxies;
mod sixth;
mod world;

use motu_egress::rules::{Allow, Rules};
use world::{World, missing, skip};

/// Rules with these allows.
fn rules(allow: Vec<Allow>) -> Rules {
    Rules {
        policy: "test".to_owned(),
        allow,
        ..Rules::none()
    }
}

/// Allows TLS and HTTP to a host.
fn allow(host: &str) -> Allow {
    Allow::new(host, host.parse().unwrap())
}

/// Allows any protocol to a host.
fn opaque(host: &str) -> Allow {
    Allow {
        opaque: true,
        ..allow(host)
    }
}

fn world(rules: Rules) -> Option<World> {
    match missing() {
        None => Some(World::new(rules)),
        Some(reason) => {
            skip(reason);
            None
        }
    }
}
