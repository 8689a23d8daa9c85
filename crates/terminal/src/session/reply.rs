//! Whether anything visible was printed since a line was typed.
//!
//! Until then, what the screen asks was asked before the line: a question that `ssh` still shows
//! while the other host thinks about the password is not asked again.

/// What follows a line that was typed.
#[derive(Debug, Default)]
pub(super) struct Reply {
    awaited: bool,
    sequence: Sequence,
}

/// The position in a control sequence, which prints nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sequence {
    #[default]
    None,
    Escape,
    /// After `ESC` and an intermediate byte, such as `ESC (`.
    Short,
    Csi,
}

const ESC: u8 = 0x1b;

impl Reply {
    /// A line was typed.
    pub fn line(&mut self) {
        *self = Reply {
            awaited: true,
            sequence: Sequence::None,
        };
    }

    /// Output came; not what is shown of operating system commands, which print nothing.
    pub fn output(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if !self.awaited {
                return;
            }
            self.awaited = !self.prints(*byte);
        }
    }

    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    fn prints(&mut self, byte: u8) -> bool {
        let (next, prints) = match (self.sequence, byte) {
            (_, ESC) => (Sequence::Escape, false),
            // A control character inside a sequence is obeyed and leaves the sequence open.
            (within, 0..0x20 | 0x7f) => (within, false),
            (Sequence::None, _) => (Sequence::None, byte != b' '),
            (Sequence::Escape, b'[') => (Sequence::Csi, false),
            (Sequence::Escape, 0x20..0x30) => (Sequence::Short, false),
            (Sequence::Csi, 0x20..0x40) => (Sequence::Csi, false),
            (Sequence::Escape | Sequence::Short | Sequence::Csi, _) => (Sequence::None, false),
        };
        self.sequence = next;
        prints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited_after(pieces: &[&[u8]]) -> bool {
        let mut reply = Reply::default();
        reply.line();
        for piece in pieces {
            reply.output(piece);
        }
        reply.is_awaited()
    }

    #[test]
    fn only_what_can_be_seen_is_a_reply() {
        let nothing: [&[u8]; 5] = [
            b"",
            b"\r\n",
            b"\x1b[?2004h\x1b[0;31m\x1b(B",
            b"  \t\x07",
            b"\x1b[\r3\n1m ",
        ];
        for output in nothing {
            assert!(awaited_after(&[output]), "{output:?}");
        }
        for cut in 0..8 {
            let (before, after) = b"\x1b[?2004h".split_at(cut);
            assert!(awaited_after(&[before, after]), "{cut}");
        }
        for output in [b"\r\nPassword: ".as_slice(), b"\x1b[31mx", "é".as_bytes()] {
            assert!(!awaited_after(&[output]), "{output:?}");
        }
    }

    #[test]
    fn nothing_is_awaited_before_a_line() {
        let mut reply = Reply::default();
        assert!(!reply.is_awaited());
        reply.line();
        reply.output(b"text");
        reply.output(b"\r\n");
        assert!(!reply.is_awaited());
        reply.line();
        assert!(reply.is_awaited());
    }
}
