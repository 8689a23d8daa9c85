//! How a credential goes on once it is recognised: byte by byte, so that the end of a stream's
//! piece does not matter.

/// The most that is covered after the part of a credential by which it was recognised.
const EAT_BYTES: u32 = 16 * 1024;
/// Dashes on either side of the lines around a private key.
const DASHES: u8 = 5;

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Token,
    /// The same and `.`.
    Dotted,
    /// Of an access key of AWS.
    Base32,
    /// Letters, digits and `/`.
    Path,
    /// What may stand after the scheme in a header.
    Header,
    /// The lines of a private key: base64, headers of old formats, line ends as they are or escaped.
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

    /// How many of the first bytes are in it.
    pub fn run(self, text: &[u8]) -> usize {
        let other = text.iter().position(|byte| !self.has(*byte));
        other.unwrap_or(text.len())
    }
}

/// What follows, as long as it belongs to the credential.
#[derive(Clone, Copy, Debug)]
pub struct Eat {
    left: u32,
    class: Class,
    /// Of a private key: dashes seen in a row, and whether its last line has begun.
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

    /// Whether this byte still belongs to it.
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
                    // The last line is over.
                    true => self.left = 0,
                }
            }
        }
        true
    }
}
