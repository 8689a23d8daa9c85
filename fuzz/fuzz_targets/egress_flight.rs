//! However the first bytes of a connection are cut, what they are does not change, and requests are
//! read to the same end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use motu_egress::look::flight;
use motu_egress::look::http::{Reader, Step};

fuzz_target!(|data: &[u8]| {
    let whole = flight::read(data, false);
    let half = flight::read(&data[..data.len() / 2], false);
    // What is known is known for good.
    assert!(half.is_none() || half == whole);
    assert!(flight::read(data, true).is_some());
    let (mut reader, mut rest) = (Reader::default(), data);
    loop {
        let read = match reader.step(rest) {
            Ok(Step::Pass(count)) => count,
            Ok(Step::Head { length, .. }) => length,
            Ok(Step::Need) | Err(_) => break,
        };
        assert!(read > 0 && read <= rest.len());
        rest = &rest[read..];
    }
});
