//! The encodings in which a value may appear in output.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use zeroize::Zeroizing;

/// Shorter values are not searched for.
pub const MIN_REDACTED_BYTES: usize = 4;
/// Values up to this size are also searched for in encoded forms.
const MAX_ENCODED_BYTES: usize = 1 << 10;
/// Shorter encoded forms would match too much.
const MIN_ENCODED_BYTES: usize = 8;
/// Lines of a multi-line value (a private key) are searched for separately from this size on.
const MIN_LINE_BYTES: usize = 12;

/// All distinct forms of a value. Values that are too short have none.
pub fn forms(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    let mut add = |form: &[u8], least: usize| {
        if form.len() >= least && !forms.iter().any(|known| known.as_slice() == form) {
            forms.push(Zeroizing::new(form.to_vec()));
        }
    };
    add(value, MIN_REDACTED_BYTES);
    // Without trailing newlines, as after `$(cat file)`.
    let ends = value.iter().rev().take_while(|byte| b"\r\n".contains(byte));
    let trimmed = &value[..value.len() - ends.count()];
    add(trimmed, MIN_REDACTED_BYTES);
    if trimmed.contains(&b'\n') {
        // With the line ends of a terminal.
        add(&crlf(trimmed), MIN_REDACTED_BYTES);
        for line in trimmed.split(|byte| *byte == b'\n') {
            add(line.trim_ascii(), MIN_LINE_BYTES);
        }
    }
    if value.len() > MAX_ENCODED_BYTES {
        return forms;
    }
    for text in [value, trimmed] {
        for before in 0..3 {
            let padded = Zeroizing::new([&[0; 2][..before], text].concat());
            add(
                inner(&STANDARD_NO_PAD.encode(&*padded), before, text.len()),
                MIN_ENCODED_BYTES,
            );
            add(
                inner(&URL_SAFE_NO_PAD.encode(&*padded), before, text.len()),
                MIN_ENCODED_BYTES,
            );
        }
    }
    for (upper, plus) in [(true, false), (false, false), (true, true)] {
        add(percent(trimmed, upper, plus).as_bytes(), MIN_REDACTED_BYTES);
    }
    for upper in [false, true] {
        add(hex(trimmed, upper).as_bytes(), MIN_ENCODED_BYTES);
    }
    let reversed = Zeroizing::new(trimmed.iter().rev().copied().collect::<Vec<u8>>());
    add(&reversed, MIN_ENCODED_BYTES);
    let text = std::str::from_utf8(trimmed).ok();
    if let Some(json) = text.and_then(|text| serde_json::to_string(text).ok()) {
        let json = Zeroizing::new(json);
        add(&json.as_bytes()[1..json.len() - 1], MIN_REDACTED_BYTES);
    }
    forms
}

fn crlf(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() * 2));
    for (at, byte) in text.iter().enumerate() {
        if *byte == b'\n' && (at == 0 || text[at - 1] != b'\r') {
            out.push(b'\r');
        }
        out.push(*byte);
    }
    out
}

fn hex(bytes: &[u8], upper: bool) -> Zeroizing<String> {
    let digits: &[u8; 16] = match upper {
        true => b"0123456789ABCDEF",
        false => b"0123456789abcdef",
    };
    let mut out = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        out.push(char::from(digits[usize::from(byte >> 4)]));
        out.push(char::from(digits[usize::from(byte & 15)]));
    }
    out
}

/// The characters of a base64 encoding that depend only on the value, when `before` bytes precede
/// it.
fn inner(encoded: &str, before: usize, length: usize) -> &[u8] {
    let first = (before * 8).div_ceil(6);
    let last = (before + length) * 8 / 6;
    encoded.as_bytes().get(first..last).unwrap_or_default()
}

fn percent(text: &[u8], upper: bool, plus: bool) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(text.len() * 3));
    for byte in text {
        match *byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(*byte));
            }
            b' ' if plus => out.push('+'),
            byte if upper => out.push_str(&format!("%{byte:02X}")),
            byte => out.push_str(&format!("%{byte:02x}")),
        }
    }
    out
}
