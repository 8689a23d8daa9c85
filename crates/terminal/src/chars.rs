//! Cuts bytes at character boundaries.
//!
//! The screen's parser loses what follows a UTF-8 character that is split over two writes (it
//! counts the bytes after it as read), so it is only given whole characters.

/// Bytes at the end that are an incomplete character.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let length = match bytes[bytes.len() - back] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

/// An incomplete character.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: [u8; 3],
    len: usize,
}

impl Held {
    /// Passes on the held bytes and `bytes` up to their last whole character, in at most two parts.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8])) {
        if self.len > 0 {
            // Complete the held character only, so that the rest need not be copied.
            let mut joined = [0; 6];
            joined[..self.len].copy_from_slice(&self.bytes[..self.len]);
            let more = bytes
                .iter()
                .take(3)
                .take_while(|byte| (0x80..=0xbf).contains(*byte))
                .count();
            joined[self.len..self.len + more].copy_from_slice(&bytes[..more]);
            let joined = &joined[..self.len + more];
            bytes = &bytes[more..];
            if bytes.is_empty() && unfinished(joined) == joined.len() && joined.len() <= 3 {
                self.keep(joined);
                return;
            }
            self.len = 0;
            sink(joined);
        }
        let keep = unfinished(bytes);
        let (whole, rest) = bytes.split_at(bytes.len() - keep);
        self.keep(rest);
        if !whole.is_empty() {
            sink(whole);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.len = bytes.len();
        self.bytes[..bytes.len()].copy_from_slice(bytes);
    }
}

/// The largest character boundary at or before `at`.
pub(crate) fn floor(bytes: &[u8], at: usize) -> usize {
    if at >= bytes.len() {
        return bytes.len();
    }
    let back = unfinished(&bytes[..at]);
    if back < at { at - back } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_characters_and_nothing_is_lost() {
        let text = "aé漢😀\u{301}\tz".as_bytes();
        let broken = b"\xe6\xbcx\xf0\x9f\x98\xff\xc3";
        for stream in [text, broken, &[text, broken].concat()] {
            for chunk in 1..stream.len() {
                let mut held = Held::default();
                let mut out = Vec::new();
                for part in stream.chunks(chunk) {
                    held.push(part, &mut |bytes| {
                        // Invalid UTF-8 is passed on unchanged.
                        assert!(unfinished(bytes) == 0 || stream != text);
                        out.extend_from_slice(bytes);
                    });
                }
                out.extend_from_slice(&held.bytes[..held.len]);
                assert_eq!(out, stream, "chunks of {chunk}");
            }
        }
    }

    #[test]
    fn a_cut_is_between_characters() {
        let text = "aé漢😀".as_bytes();
        let cuts: Vec<usize> = (0..=text.len()).map(|at| floor(text, at)).collect();
        assert_eq!(cuts, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10]);
    }
}
