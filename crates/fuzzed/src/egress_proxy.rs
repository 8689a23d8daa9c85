//! A proxy may say anything, cut anywhere: more to say, a connection, a refusal, or a wait for
//! more; never a panic, and never more taken than was there.

use motu_egress::proxy::{Dialogue, Heard, Proxy, Target};

pub fn egress_proxy(data: &[u8]) {
    if let Ok(text) = str::from_utf8(data) {
        let _ = Proxy::parse(text);
    }
    for text in ["http://user:word@proxy:1", "socks5://user:word@proxy:1"] {
        let Ok(proxy) = Proxy::parse(text) else {
            return;
        };
        let target = Target::Name("a.example".to_owned());
        let mut dialogue = Dialogue::new(&proxy, target, 443);
        let _ = dialogue.first();
        let mut rest = data;
        while let Ok(heard) = dialogue.read(rest) {
            match heard {
                Heard::Say(taken, _) => {
                    assert!(0 < taken && taken <= rest.len());
                    rest = &rest[taken..];
                }
                Heard::Done(taken) => {
                    assert!(taken <= rest.len());
                    break;
                }
                Heard::Part => break,
            }
        }
    }
}
