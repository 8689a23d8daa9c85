//! Names in patch headers, as git quotes them.

/// Quotes a name for a header, if needed.
pub fn quoted(name: &[u8]) -> Vec<u8> {
    let plain = std::str::from_utf8(name).is_ok()
        && !name
            .iter()
            .any(|byte| byte.is_ascii_control() || matches!(byte, b'"' | b'\\'));
    if plain {
        return name.to_vec();
    }
    let text = std::str::from_utf8(name).is_ok();
    let mut out = vec![b'"'];
    for byte in name {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            b'\r' => out.extend(b"\\r"),
            byte if byte.is_ascii_control() || (*byte >= 0x80 && !text) => {
                out.extend(format!("\\{byte:03o}").bytes());
            }
            byte => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}

/// Parses a quoted name at the start of `text`; returns it and the rest.
pub(super) fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                name.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => *escaped,
                    b'0'..=b'3' => {
                        let [second @ b'0'..=b'7', third @ b'0'..=b'7', after @ ..] = rest else {
                            return None;
                        };
                        rest = after;
                        (escaped - b'0') * 64 + (second - b'0') * 8 + (third - b'0')
                    }
                    _ => return None,
                });
            }
            byte => name.push(*byte),
        }
    }
}
