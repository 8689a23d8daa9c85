//! Changes of an input that are the same in every run: a small generator with a fixed seed.

/// A xorshift generator of 64 bits.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded with a name, so that each target has its own sequence.
    pub(crate) fn new(name: &str) -> Random {
        // FNV-1a; never zero for these names, and zero is the one state xorshift cannot leave.
        let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, fold) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let number = self.next() >> 16;
        usize::try_from(number).unwrap_or(0) % end.max(1)
    }
}

/// Values that parsers treat as limits.
const EDGES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'0', b' '];

/// An input with one to four changes. `other` is an input whose parts may be put in.
pub(crate) fn mutate(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let start = random.below(bytes.len());
        let end = start + random.below((bytes.len() - start).min(64) + 1);
        match random.below(7) {
            0 => bytes.truncate(start),
            1 => drop(bytes.drain(start..end)),
            // The same part twice.
            2 => {
                let part = bytes[start..end].to_vec();
                bytes.splice(start..start, part);
            }
            3 => {
                let from = random.below(other.len());
                let to = from + random.below((other.len() - from).min(64) + 1);
                bytes.splice(start..start, other[from..to].iter().copied());
            }
            4 => bytes.insert(start, EDGES[random.below(EDGES.len())]),
            5 => {
                let edge = EDGES[random.below(EDGES.len())];
                if let Some(byte) = bytes.get_mut(start) {
                    *byte = edge;
                }
            }
            _ => {
                let bit = 1 << random.below(8);
                if let Some(byte) = bytes.get_mut(start) {
                    *byte ^= bit;
                }
            }
        }
    }
    bytes
}

#[test]
fn mutations_are_the_same_in_every_run() {
    let run = || {
        let mut random = Random::new("a target");
        let mutation = |_| mutate(b"an input", b"another", &mut random);
        (0..50).map(mutation).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
    assert!(run().iter().any(|bytes| bytes != b"an input"));
    let mut random = Random::new("a target");
    for _ in 0..100 {
        mutate(b"", b"", &mut random);
    }
}
