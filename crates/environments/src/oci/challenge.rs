//! Authentication challenges of a registry.
//!
//! Owns parsing of the `WWW-Authenticate` header.

use std::collections::BTreeMap;

/// How a registry wants clients to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token from this realm.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// The first supported challenge of a header.
pub(super) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut fields = fields(rest);
    Some(Challenge::Bearer {
        realm: fields.remove("realm")?,
        service: fields.remove("service"),
        scope: fields.remove("scope"),
    })
}

/// Parses `key="value", key=value`; a quoted value may contain commas.
fn fields(mut text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while let Some((key, rest)) = text.split_once('=') {
        let key = key.trim_matches([' ', ',']).to_ascii_lowercase();
        let rest = rest.trim_start();
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        fields.insert(key, value.trim().to_owned());
        text = after;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_understood() {
        let header =
            r#"Bearer realm="https://auth.example/token",service="r, s",scope="repository:a:pull""#;
        assert_eq!(
            parse(header),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".into(),
                service: Some("r, s".into()),
                scope: Some("repository:a:pull".into()),
            })
        );
        assert_eq!(parse("basic realm=x"), Some(Challenge::Basic));
        assert_eq!(parse("Basic"), Some(Challenge::Basic));
        assert_eq!(parse("Bearer service=x"), None);
        assert_eq!(parse("Negotiate"), None);
        assert_eq!(parse(""), None);
    }
}
