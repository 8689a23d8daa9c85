//! Deterministic pseudorandom bytes that are in no cache and do not compress.

/// A generator of pseudo-random words.
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    pub fn new() -> Noise {
        Noise(0x9e37_79b9_7f4a_7c15)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Fills a block with incompressible bytes.
    pub fn fill(&mut self, block: &mut [u8]) {
        for place in block.chunks_exact_mut(8) {
            place.copy_from_slice(&self.word().to_le_bytes());
        }
    }

    /// Lines of letters, like a source file.
    pub fn text(&mut self, length: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(length + 8);
        let mut line = 0;
        while text.len() < length {
            for byte in self.word().to_le_bytes() {
                line += 1;
                let end = line == 60;
                text.push(if end { b'\n' } else { b'a' + byte % 26 });
                if end {
                    line = 0;
                }
            }
        }
        text.truncate(length);
        text
    }
}
