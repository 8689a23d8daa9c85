//! Requests of plain HTTP against the rules on requests.

use super::{Destination, Flight, Reason, Verdict, allows, carries, sees_nothing};
use crate::address::Places;
use crate::rules::{Field, HttpRule, Rules};

pub use motu_border::http::Request;

/// Whether a request may be sent on an open connection.
pub fn request(
    rules: &Rules,
    places: &Places,
    to: &Destination,
    names: &[String],
    request: &Request,
) -> Verdict {
    let allows = match allows(rules, places, to, names) {
        Ok(allows) => allows,
        Err(reason) => return Verdict::no(reason),
    };
    let flight = Flight::Http(request.host.clone());
    let mut reason = None;
    for allow in allows {
        if sees_nothing(allow) {
            return Verdict::yes(allow);
        }
        let answer = carries(allow, to, names, &flight).and_then(|()| {
            // After an upgrade requests are no longer visible.
            if request.upgrades() {
                return Err(Reason::UpgradeNotAllowed);
            }
            asked(&allow.http, request)
        });
        match answer {
            Ok(()) => return Verdict::yes(allow),
            Err(why) => reason = reason.or(Some(why)),
        }
    }
    Verdict::no(reason.unwrap_or(Reason::HostNotAllowed))
}

fn asked(rules: &[HttpRule], request: &Request) -> Result<(), Reason> {
    if rules.is_empty() {
        return Ok(());
    }
    if !is_plain(&request.path) && rules.iter().any(|rule| !rule.path.is_empty()) {
        return Err(Reason::AmbiguousPath);
    }
    let any = rules.iter().any(|rule| holds(rule, request));
    any.then_some(()).ok_or(Reason::RequestNotAllowed)
}

fn holds(rule: &HttpRule, request: &Request) -> bool {
    let method = rule.methods.is_empty() || rule.methods.contains(&request.method);
    let queries: Vec<(String, String)> = request
        .query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    method
        && path(&rule.path, &request.path)
        && rule
            .query
            .iter()
            .all(|field| has(field, &field.name, &queries))
        && rule
            .header
            .iter()
            .all(|field| has(field, &field.name.to_ascii_lowercase(), &request.headers))
}

/// A field that occurs twice must match both times: servers differ in which one they use.
fn has(field: &Field, name: &str, given: &[(String, String)]) -> bool {
    let mut values = given.iter().filter(|(given, _)| given == name).peekable();
    values.peek().is_some() && values.all(|(_, value)| matches(&field.value, value))
}

fn path(rule: &str, path: &str) -> bool {
    if rule.is_empty() {
        return true;
    }
    if rule.contains('*') {
        return matches(rule, path);
    }
    // `/v1` is `/v1` and `/v1/…`, not `/v10`.
    path.strip_prefix(rule)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rule.ends_with('/'))
}

/// Whether all servers interpret a path alike: no dot segments, no ambiguous encodings.
fn is_plain(path: &str) -> bool {
    let escaped = path.to_ascii_lowercase();
    let hidden = ["%2e", "%2f", "%5c", "%25", "%00"];
    path.starts_with('/')
        && !path.contains("//")
        && !path.contains(['\\', ';'])
        && path.bytes().all(|byte| byte.is_ascii_graphic())
        && !hidden.iter().any(|code| escaped.contains(code))
        && !path.split('/').any(|part| part == "." || part == "..")
}

/// Matches a pattern in which `*` stands for any text. Linear in both.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_the_whole_text() {
        for (pattern, text, want) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("/v1/*/files", "/v1/x/y/files", true),
        ] {
            assert_eq!(matches(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        assert!(path("/v1", "/v1") && path("/v1", "/v1/a") && path("/v1/", "/v1/a"));
        assert!(!path("/v1", "/v10") && !path("/v1/", "/v1"));
    }

    #[test]
    fn paths_that_climb_are_not_plain() {
        for text in [
            "/a/../b",
            "/a/./b",
            "/..",
            "/a/%2e%2e/b",
            "/a%2fb",
            "/a\\..\\b",
            "/a//b",
            "/a;x/b",
            "*",
            "/a\u{e9}",
            "/a%252e",
        ] {
            assert!(!is_plain(text), "{text}");
        }
        assert!(is_plain("/a/b.c/..d/%20x"));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_a_slow_matcher(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|skip| slow(rest, &text[skip..])),
                    Some((byte, rest)) => text.first() == Some(byte) && slow(rest, &text[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
