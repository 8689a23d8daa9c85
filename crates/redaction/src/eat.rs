//! How a recognized credential continues: matched byte by byte, so that chunk boundaries do not
//! matter.

/// Most bytes covered after the part by which a credential was recognized.
const EAT_BYTES: u32 = 16 * 1024;
/// Dashes on either side of a PEM header or footer.
const DASHES: u8 = 5;

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Token,
    /// Like `Token`, plus `.`.
    Dotted,
    /// The alphabet of an AWS access key.
    Base32,
    /// Letters, digits and `/`.
    Path,
    /// Characters of a credential after the scheme in a header.
    Header,
    /// The lines of a private key: base64, headers of old formats, line ends, plain or escaped.
    Key,
}

impl Class {
    pub fn has(self, byte: u8) -> bool {
        match self {
            Class::Alnum => byte.is_ascii_alphanumeric(),
            Class::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Class::Token => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
            Class::Dotted => Class::Token.has(byte) || byte == b'.',
            Class::Base32 => matches!(byte, b'A'..=b'Z' | b'2'..=b'7'),
            Class::Path => byte.is_ascii_alphanumeric() || byte == b'/',
            Class::Header => Class::Dotted.has(byte) || matches!(byte, b'~' | b'+' | b'/' | b'='),
            Class::Key => {
                byte.is_ascii_alphanumeric()
                    || byte.is_ascii_whitespace()
                    || matches!(byte, b'+' | b'/' | b'=' | b'-' | b':' | b',' | b'\\')
            }
        }
    }

    /// The length of the prefix in this class.
    pub fn run(self, text: &[u8]) -> usize {
        let other = text.iter().position(|byte| !self.has(*byte));
        other.unwrap_or(text.len())
    }
}

/// The state of covering a credential's continuation.
#[derive(Clone, Copy, Debug)]
pub struct Eat {
    left: u32,
    class: Class,
    /// For a private key: consecutive dashes, and whether its footer has begun.
    dashes: u8,
    ending: bool,
}

impl Eat {
    pub fn all(class: Class) -> Eat {
        Eat {
            left: EAT_BYTES,
            class,
            dashes: 0,
            ending: false,
        }
    }

    /// Whether this byte still belongs to the credential.
    pub fn takes(&mut self, byte: u8) -> bool {
        if self.left == 0 || !self.class.has(byte) {
            return false;
        }
        self.left -= 1;
        if self.class == Class::Key {
            self.dashes = if byte == b'-' { self.dashes + 1 } else { 0 };
            if self.dashes == DASHES {
                self.dashes = 0;
                match self.ending {
                    false => self.ending = true,
                    // The footer is complete.
                    true => self.left = 0,
                }
            }
        }
        true
    }
}
