//! A recording somebody hands over to be played: read or refused, in bounds.

use motu_terminal::record::Cast;
use std::time::Duration;

pub fn recording(data: &[u8]) {
    let Ok(cast) = Cast::read(data) else {
        return;
    };
    for step in cast.replay(2.0, Some(Duration::from_secs(1))) {
        std::hint::black_box(step);
    }
}
