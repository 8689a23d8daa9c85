//! A checksum of memory.

/// A checksum that finds accidents, not attacks: it must be as fast as memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum([u64; 4]);

impl Default for Sum {
    fn default() -> Sum {
        Sum([
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
            0x082e_fa98_ec4e_6c89,
        ])
    }
}

impl Sum {
    /// Adds a page and its place.
    pub fn page(&mut self, number: u64, page: &[u8]) {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0[0] = (self.0[0] ^ number).wrapping_mul(MIX);
        // Four independent chains keep the multiplier busy.
        for words in page.chunks_exact(32) {
            for (lane, word) in self.0.iter_mut().zip(words.chunks_exact(8)) {
                let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
                *lane = (*lane ^ word).wrapping_mul(MIX).rotate_left(23);
            }
        }
    }

    pub fn text(&self) -> String {
        self.0.iter().map(|lane| format!("{lane:016x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_its_place_and_their_order_matter() {
        let sum = |pages: &[(u64, [u8; 64])]| {
            let mut sum = Sum::default();
            for (number, page) in pages {
                sum.page(*number, page);
            }
            sum.text()
        };
        let (one, two) = ([1; 64], [2; 64]);
        let whole = sum(&[(0, one), (1, two)]);
        assert_eq!(whole, sum(&[(0, one), (1, two)]));
        assert_eq!(whole.len(), 64);
        assert_ne!(whole, sum(&[(1, two), (0, one)]));
        assert_ne!(whole, sum(&[(0, one), (2, two)]));
        assert_ne!(whole, sum(&[(0, one), (1, one)]));
    }
}
