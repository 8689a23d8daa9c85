use crate::border::{Yes, place};
use motu_border::{Out, h1};

pub fn border_h1(data: &[u8]) {
    let whole = run(data, data.len().max(1));
    assert_eq!(run(data, 1), whole);
    assert_eq!(run(data, 7), whole);
}

fn run(data: &[u8], size: usize) -> Option<Vec<u8>> {
    let place = place();
    let (mut rewriter, mut out) = (h1::Rewriter::default(), Out::default());
    for part in data.chunks(size) {
        if rewriter
            .feed(part, Some(&place), &mut Yes, &mut out)
            .is_err()
        {
            return None;
        }
    }
    Some(out.forward)
}
