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
            // A server that goes by the port it is asked for would be another one.
            if request.port.is_some_and(|port| port != to.port) {
                return Err(Reason::NameMismatch);
            }
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
    let any = rules
        .iter()
        .any(|rule| holds(rule, request) && !overrides(rule, request));
    any.then_some(()).ok_or(Reason::RequestNotAllowed)
}

/// Headers by which some servers take a request for one of another method, path or host.
const OVERRIDES: [&str; 12] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-server",
    "x-forwarded-uri",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];

/// Whether a request may be taken for another one than the rule is about. A rule that names such a
/// header has looked at it.
fn overrides(rule: &HttpRule, request: &Request) -> bool {
    let named = |name: &str| rule.header.iter().any(|field| joined(&field.name) == name);
    let mut names = request.headers.iter().map(|(name, _)| joined(name));
    names.any(|name| OVERRIDES.contains(&name.as_str()) && !named(&name))
}

fn holds(rule: &HttpRule, request: &Request) -> bool {
    let method = rule.methods.is_empty() || rule.methods.contains(&request.method);
    let headers = request.headers.iter();
    let headers: Vec<(String, String)> = headers
        .map(|(name, value)| (joined(name), value.clone()))
        .collect();
    // Some servers end a field at `;` too. Both readings must match.
    let queries = [
        fields(&request.query, &['&']),
        fields(&request.query, &['&', ';']),
    ];
    method
        && path(&rule.path, &request.path)
        && rule.query.iter().all(|field| {
            let mut readings = queries.iter();
            readings.all(|given| has(field, &field.name, given))
        })
        && rule
            .header
            .iter()
            .all(|field| has(field, &joined(&field.name), &headers))
}

/// A header's name as servers see it that make variables of headers: `X_Team` is `x-team`.
fn joined(name: &str) -> String {
    let joined = |byte: char| match byte {
        _ if byte.is_ascii_alphanumeric() => byte.to_ascii_lowercase(),
        _ => '-',
    };
    name.chars().map(joined).collect()
}

/// The fields of a query, their names as a server decodes them.
fn fields(query: &str, ends: &[char]) -> Vec<(String, String)> {
    let pairs = query.split(ends).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| {
            let name = decoded(&name.replace('+', " "));
            let name = String::from_utf8_lossy(&name).into_owned();
            // `kind[]` and ` kind` are `kind` to some.
            let name = name
                .trim_start()
                .split(['[', '\0'])
                .next()
                .unwrap_or_default();
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// The bytes of a text in which `%` and two digits stand for one.
fn decoded(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let byte = match (first, tail) {
            (b'%', [a, b, ..]) => digit(*a).zip(digit(*b)).map(|(a, b)| a << 4 | b),
            _ => None,
        };
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
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

/// Whether all servers interpret a path alike: no dot segments, nothing encoded that some decode
/// later or otherwise.
fn is_plain(path: &str) -> bool {
    let decoded = decoded(path);
    // What is no `%` and two digits is left as it is, and found below. Overlong forms of `.` and
    // `/` are no UTF-8.
    let Ok(text) = str::from_utf8(&decoded) else {
        return false;
    };
    let hidden =
        decoded.len() < path.len() && text.matches('/').count() != path.matches('/').count();
    // Some servers drop dots and spaces at the end of a name.
    let climbs = |part: &str| !part.is_empty() && part.chars().all(|one| ". ".contains(one));
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic())
        && !hidden
        && !path.contains("//")
        && !text.contains(['\\', ';', '%', '#', '?'])
        && !text.chars().any(char::is_control)
        && !text.split('/').any(climbs)
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
            "/a/%c0%ae%c0%ae/b",
            "/a/%u002e%u002e/b",
            "/a/%",
            "/a%3b/b",
            "/a%23b",
            "/a%3fb",
            "/a%0d%0ab",
            "/a%00",
            "/a/%2e./b",
            "/a/..%20/b",
            "/a/.../b",
            "/a%5cb",
        ] {
            assert!(!is_plain(text), "{text}");
        }
        assert!(is_plain("/a/b.c/..d/%20x/%C3%A9/d.../"));
    }

    fn asks(query: &str, headers: &[(&str, &str)]) -> Request {
        let headers = headers.iter();
        Request {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            query: query.to_owned(),
            headers: headers
                .map(|&(n, v)| (n.to_owned(), v.to_owned()))
                .collect(),
            ..Request::default()
        }
    }

    #[test]
    fn a_field_is_found_in_every_spelling() {
        let rule = HttpRule {
            query: vec![Field {
                name: "kind".to_owned(),
                value: "pub*".to_owned(),
            }],
            header: vec![Field {
                name: "X-Team".to_owned(),
                value: "red".to_owned(),
            }],
            ..HttpRule::default()
        };
        let red = [("x-team", "red")];
        assert!(holds(&rule, &asks("kind=public&a=b;c", &red)));
        for query in [
            "",
            "kind=public&kind=x",
            "kind=public&%6bind=x",
            "kind=public;kind=x",
            "kind=public&kind[]=x",
            "kind=public&kind%5B%5D=x",
            "kind=public&+kind=x",
            "kind=public&kind%00=x",
        ] {
            assert!(!holds(&rule, &asks(query, &red)), "{query}");
        }
        for headers in [
            &[("x-team", "red"), ("x_team", "blue")][..],
            &[("x-team", "red"), ("x.team", "blue")],
            &[("x-team", "blue")],
            &[],
        ] {
            assert!(!holds(&rule, &asks("kind=public", headers)), "{headers:?}");
        }
    }

    #[test]
    fn headers_that_make_another_request_of_it_are_named_by_the_rule_or_refused() {
        let mut rule = HttpRule {
            methods: vec!["GET".to_owned()],
            ..HttpRule::default()
        };
        let request = asks("", &[("x_http_method_override", "DELETE")]);
        let rules = |rule: &HttpRule| asked(std::slice::from_ref(rule), &request);
        assert_eq!(rules(&rule), Err(Reason::RequestNotAllowed));
        rule.header.push(Field {
            name: "X-HTTP-Method-Override".to_owned(),
            value: "*".to_owned(),
        });
        assert_eq!(rules(&rule), Ok(()));
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
