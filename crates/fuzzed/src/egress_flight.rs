//! However the first bytes of a connection are cut, what they are does not change, and requests are
//! read to the same end.

use motu_egress::judge::Flight;
use motu_egress::look::flight::{self, Next, Records};
use motu_egress::look::http::{Reader, Step};

pub fn egress_flight(data: &[u8]) {
    let whole = flight::read(data, false);
    let half = flight::read(&data[..data.len() / 2], false);
    // What is known is known for good.
    assert!(half.is_none() || half == whole);
    assert!(flight::read(data, true).is_some());
    assert_eq!(hellos(data, 1), hellos(data, data.len().max(1)));
    let (mut reader, mut rest) = (Reader::default(), data);
    loop {
        let read = match reader.step(rest) {
            Ok(Step::Body(count)) => count,
            Ok(Step::Head { length, .. } | Step::Framing { length, .. }) => length,
            Ok(Step::Need) | Err(_) => break,
        };
        assert!(read > 0 && read <= rest.len());
        rest = &rest[read..];
    }
}

/// The ClientHellos behind the first one, and where the search for them ended.
fn hellos(data: &[u8], size: usize) -> (Vec<Flight>, Option<usize>) {
    let (mut records, mut found, mut at) = (Records::after(data), Vec::new(), 0);
    for end in (0..data.len()).step_by(size).skip(1).chain([data.len()]) {
        loop {
            match records.step(&data[at..end]) {
                Next::Need => break,
                Next::Pass(count) => at += count,
                Next::Hello { length, flight } => {
                    found.push(flight);
                    at += length;
                }
                Next::Done => return (found, Some(at)),
            }
        }
    }
    (found, None)
}
