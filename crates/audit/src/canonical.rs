//! Canonical JSON (RFC 8785): one text for every value, so that a hash means the same everywhere.
//!
//! Members are sorted by the UTF-16 code units of their names, numbers are written as ECMAScript
//! does, strings have the shortest escapes, and there is no white space.

use serde_json::Value;
use std::io::Write as _;

/// The canonical text of a value.
pub fn canonical(value: &Value) -> Vec<u8> {
    let mut text = Vec::with_capacity(1024);
    write(&mut text, value);
    text
}

fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(out, item);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push(b'{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                write(out, member);
            }
            out.push(b'}');
        }
    }
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => Some(b'"'),
            b'\\' => Some(b'\\'),
            0x08 => Some(b'b'),
            0x09 => Some(b't'),
            0x0a => Some(b'n'),
            0x0c => Some(b'f'),
            0x0d => Some(b'r'),
            0..0x20 => None,
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[from..at]);
        match short {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            // Writing to memory does not fail.
            None => drop(write!(out, "\\u{byte:04x}")),
        }
        from = at + 1;
    }
    out.extend_from_slice(&text.as_bytes()[from..]);
    out.push(b'"');
}

/// The largest integer whose text as a double is the integer's own.
const EXACT: u64 = 1 << 53;

fn write_number(out: &mut Vec<u8>, number: &serde_json::Number) {
    let text = match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) if whole.unsigned_abs() <= EXACT => whole.to_string(),
        (_, Some(double)) => ecmascript(double),
        // A number that is neither cannot exist without serde's arbitrary precision.
        _ => number.to_string(),
    };
    out.extend_from_slice(text.as_bytes());
}

/// `Number::toString` of ECMAScript: the shortest digits, an exponent only far from zero.
fn ecmascript(double: f64) -> String {
    if double == 0.0 {
        return "0".to_string();
    }
    let text = format!("{double:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = digits.len() as i32;
    // The decimal point stands after this many digits.
    let point = exponent + 1;
    let body = match point {
        point if (count..=21).contains(&point) => {
            format!("{digits}{}", "0".repeat((point - count) as usize))
        }
        point if (1..=21).contains(&point) => {
            let (whole, rest) = digits.split_at(point as usize);
            format!("{whole}.{rest}")
        }
        point if (-5..=0).contains(&point) => {
            format!("0.{}{digits}", "0".repeat(-point as usize))
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let plus = if exponent > 0 { "+" } else { "" };
            format!("{first}{dot}{rest}e{plus}{exponent}")
        }
    };
    format!("{sign}{body}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn text(value: &Value) -> String {
        String::from_utf8(canonical(value)).unwrap()
    }

    #[test]
    fn members_are_sorted_by_utf16() {
        // U+1F600 begins with the surrogate D83D, which is before U+FB33.
        let value =
            json!({"\u{fb33}": 1, "\u{1f600}": 2, "b": 3, "a": [1, {"d": null, "c": true}]});
        assert_eq!(
            text(&value),
            "{\"a\":[1,{\"c\":true,\"d\":null}],\"b\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }

    #[test]
    fn strings_have_the_shortest_escapes() {
        let value = json!("\u{8}\t\n\u{c}\r\"\\/\u{1}\u{7f}é\u{2028}");
        assert_eq!(
            text(&value),
            "\"\\b\\t\\n\\f\\r\\\"\\\\/\\u0001\u{7f}é\u{2028}\""
        );
    }

    #[test]
    fn numbers_are_those_of_ecmascript() {
        for (number, expected) in [
            (json!(0), "0"),
            (json!(-0.0), "0"),
            (json!(1.0), "1"),
            (json!(-1.5), "-1.5"),
            (json!(0.000001), "0.000001"),
            (json!(0.0000001), "1e-7"),
            (json!(1e21), "1e+21"),
            (json!(1e20), "100000000000000000000"),
            (json!(333333333.3333333), "333333333.3333333"),
            (json!(5e-324), "5e-324"),
            (json!(1.7976931348623157e308), "1.7976931348623157e+308"),
            (json!(9007199254740993u64), "9007199254740992"),
            (json!(u64::MAX), "18446744073709552000"),
        ] {
            assert_eq!(text(&number), expected);
        }
    }

    proptest! {
        #[test]
        fn a_canonical_text_is_its_own(number: i32, word: String, names: Vec<String>) {
            let mut value = json!({"number": number, "word": word});
            for name in names {
                value[name] = json!([number, -1]);
            }
            let once = canonical(&value);
            let again: Value = serde_json::from_slice(&once).unwrap();
            prop_assert_eq!(canonical(&again), once);
        }

        #[test]
        fn a_number_is_read_back_exactly(number: f64) {
            prop_assume!(number.is_finite());
            let back: f64 = ecmascript(number).parse().unwrap();
            prop_assert_eq!(back, number);
        }
    }
}
