//! Requests of HTTP/1.1 that a sandbox sends to the border: however they are cut, the same leaves, or
//! nothing more does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use motu_border::http::Request;
use motu_border::{Gate, Out, Place, Secret, Value, h1};
use std::sync::Arc;

struct Yes;

impl Gate for Yes {
    fn ask(&mut self, _: &Request, _: &[String]) -> bool {
        true
    }
}

fn run(data: &[u8], size: usize) -> Option<Vec<u8>> {
    let place = Place {
        name: "a.example".to_owned(),
        port: 443,
        secrets: Arc::new(vec![Secret {
            name: "key".to_owned(),
            placeholder: "motu_placeholder_0".to_owned(),
            value: Value::new("value"),
            body: true,
            aws: false,
        }]),
    };
    let (mut rewriter, mut out) = (h1::Rewriter::default(), Out::default());
    for part in data.chunks(size) {
        if rewriter.feed(part, &place, &mut Yes, &mut out).is_err() {
            return None;
        }
    }
    Some(out.forward)
}

fuzz_target!(|data: &[u8]| {
    let whole = run(data, data.len().max(1));
    assert_eq!(run(data, 1), whole);
    assert_eq!(run(data, 7), whole);
});
