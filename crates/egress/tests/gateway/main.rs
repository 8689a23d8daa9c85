//! A gateway of its own process between real namespaces: what gets through, and what does not.

mod world;

use motu_egress::rules::{Allow, Rules};
use std::io::{Read, Write};
use world::{GOOD, World, missing, skip};

/// Rules that allow these hosts.
fn allowing(hosts: &[&str]) -> Rules {
    Rules {
        policy: "test".to_owned(),
        allow: hosts.iter().map(|host| allow(host)).collect(),
        ..Rules::none()
    }
}

fn allow(host: &str) -> Allow {
    Allow::new(host, host.parse().unwrap())
}

/// Whatever bytes.
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

#[test]
fn bytes_go_out_and_come_back() {
    let Some(world) = world(Rules::public()) else { return };
    world.serve_echo(GOOD, 7);
    let mut stream = world.connect(GOOD, 7).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut back).unwrap(), 0);
    let end = world.decided(&[("event", "end".into()), ("port", 7.into())]);
    assert_eq!((&end["bytes_out"], &end["bytes_in"]), (&5.into(), &5.into()));
    assert_eq!(end["reason"], "closed");
}
