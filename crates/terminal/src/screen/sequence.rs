//! Recognizes sequences that are handled before the grid's parser.

/// A longer sequence is left to the grid.
const LONGEST: usize = 256;

/// A sequence handled here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ours {
    Csi(Csi),
    SaveCursor,
    RestoreCursor,
    Align,
    Reset,
    /// IND: a line feed without carriage return in any mode.
    Index,
    /// DECBI and DECFI.
    BackIndex,
    ForwardIndex,
    /// SPA and EPA.
    Guard,
    Unguard,
    /// DECRQSS: the requested setting.
    Setting(Vec<u8>),
    /// XTGETTCAP: the names of the requested capabilities.
    Capabilities(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Csi {
    /// The prefix (`?`, `>` or the like), or 0.
    pub prefix: u8,
    pub params: Vec<u16>,
    /// The intermediate byte (`$`, `!` or the like), or 0.
    pub mid: u8,
    pub end: u8,
}

impl Csi {
    /// A parameter, if it was given and is not zero.
    pub fn param(&self, at: usize) -> Option<u16> {
        self.params.get(at).copied().filter(|param| *param > 0)
    }

    /// The repeat count.
    pub fn count(&self) -> usize {
        usize::from(self.param(0).unwrap_or(1))
    }

    /// The level (DECSCL) that it came with, if that is above 2.
    pub fn level(&self) -> u8 {
        match (self.prefix, self.mid, self.end) {
            (_, b'$', b'p') => 3,
            (_, b'$' | b'*' | b'\'', _) => 4,
            _ => 0,
        }
    }

    /// Parameters from an index on.
    pub fn rest(&self, from: usize) -> &[u16] {
        self.params.get(from..).unwrap_or_default()
    }
}

pub(super) enum Sequence {
    Ours(usize, Ours),
    Other(usize),
    Unfinished,
}

/// Parses the sequence that begins with this escape.
pub(super) fn sequence(bytes: &[u8]) -> Sequence {
    match bytes.get(1) {
        None => Sequence::Unfinished,
        Some(b'[') => csi(bytes),
        Some(b'7') => Sequence::Ours(2, Ours::SaveCursor),
        Some(b'8') => Sequence::Ours(2, Ours::RestoreCursor),
        Some(b'c') => Sequence::Ours(2, Ours::Reset),
        Some(b'D') => Sequence::Ours(2, Ours::Index),
        Some(b'6') => Sequence::Ours(2, Ours::BackIndex),
        Some(b'9') => Sequence::Ours(2, Ours::ForwardIndex),
        Some(b'V') => Sequence::Ours(2, Ours::Guard),
        Some(b'W') => Sequence::Ours(2, Ours::Unguard),
        Some(b'#') => match bytes.get(2) {
            None => Sequence::Unfinished,
            Some(b'8') => Sequence::Ours(3, Ours::Align),
            Some(_) => Sequence::Other(2),
        },
        Some(b'P') => question(bytes),
        Some(_) => Sequence::Other(1),
    }
}

/// Parses `DCS $ q … ST` and `DCS + q … ST` only.
fn question(bytes: &[u8]) -> Sequence {
    let start = match bytes.get(2) {
        Some(b'+') => b"\x1bP+q",
        _ => b"\x1bP$q",
    };
    if bytes.len() < start.len() && start.starts_with(bytes) {
        return Sequence::Unfinished;
    }
    let Some(rest) = bytes.strip_prefix(start.as_slice()) else {
        return Sequence::Other(2);
    };
    match memchr::memchr(0x1b, rest) {
        Some(end) if rest.get(end + 1) == Some(&b'\\') => {
            let len = start.len() + end + 2;
            let what = rest[..end].to_vec();
            Sequence::Ours(
                len,
                match start[2] {
                    b'+' => Ours::Capabilities(what),
                    _ => Ours::Setting(what),
                },
            )
        }
        Some(end) if end + 1 < rest.len() => Sequence::Other(2),
        _ if bytes.len() < LONGEST => Sequence::Unfinished,
        _ => Sequence::Other(2),
    }
}

fn csi(bytes: &[u8]) -> Sequence {
    let rest = &bytes[2..];
    let params = rest
        .iter()
        .take_while(|byte| matches!(byte, 0x30..=0x3f))
        .count();
    let mids = rest[params..]
        .iter()
        .take_while(|byte| matches!(byte, 0x20..=0x2f))
        .count();
    let Some(&end) = rest.get(params + mids) else {
        return match bytes.len() < LONGEST {
            true => Sequence::Unfinished,
            false => Sequence::Other(2),
        };
    };
    let len = 2 + params + mids + 1;
    // A control character inside, or too many bytes: the grid's parser handles it.
    if !matches!(end, 0x40..=0x7e) || mids > 1 {
        return Sequence::Other(2);
    }
    let text = &rest[..params];
    let (prefix, text) = match text.first() {
        Some(first @ 0x3c..=0x3f) => (*first, &text[1..]),
        _ => (0, text),
    };
    let mid = rest.get(params).copied().filter(|_| mids == 1).unwrap_or(0);
    if !is_ours(prefix, mid, end) || text.iter().any(|byte| !matches!(byte, b'0'..=b'9' | b';')) {
        return Sequence::Other(len);
    }
    let number = |text: &[u8]| {
        let digits = std::str::from_utf8(text).unwrap_or_default();
        digits.parse::<u32>().unwrap_or(0).min(9999) as u16
    };
    let params: Vec<u16> = text.split(|byte| *byte == b';').map(number).collect();
    Sequence::Ours(
        len,
        Ours::Csi(Csi {
            prefix,
            params,
            mid,
            end,
        }),
    )
}

fn is_ours(prefix: u8, mid: u8, end: u8) -> bool {
    matches!(
        (prefix, mid, end),
        (0, 0, b'a' | b'e' | b'r' | b's' | b't' | b'u' | b'c' | b'n')
            | (0, b' ', b'@' | b'A')
            | (0, b'!', b'p')
            | (0, b'\'', b'}' | b'~')
            | (0, b'"', b'p' | b'q')
            | (0, b'*', b'x' | b'y')
            | (0, b'$', b'p' | b'r' | b't' | b'v' | b'x' | b'z' | b'{')
            | (b'?', 0, b'h' | b'l' | b'n' | b'r' | b's' | b'J' | b'K')
            | (b'?', b'$', b'p')
            | (b'=', 0, b'c')
            | (b'>', 0, b'c' | b'q')
    )
}
