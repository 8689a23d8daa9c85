//! Names of environments.
//!
//! Owns what a name may look like, how it becomes a file name, and which known
//! names resemble a mistyped one. It knows nothing about what is installed.

use crate::error::EnvironmentError;

/// Longest accepted name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// A similar name is offered when at most this many edits away.
const MAX_SUGGESTED_DISTANCE: usize = 3;

pub(crate) fn validate(name: &str) -> Result<(), EnvironmentError> {
    let first_is_fine = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest_is_fine = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._:/-".contains(&b));
    if first_is_fine && rest_is_fine && name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(EnvironmentError::InvalidName {
        name: name.to_owned(),
    })
}

/// The name as one path component. `%` is not valid in names, so this is
/// reversible and two names never share a file.
pub(crate) fn encode(name: &str) -> String {
    name.replace(':', "%3A").replace('/', "%2F")
}

pub(crate) fn decode(file_stem: &str) -> Option<String> {
    let name = file_stem.replace("%3A", ":").replace("%2F", "/");
    validate(&name).ok()?;
    (encode(&name) == file_stem).then_some(name)
}

/// Known names that resemble `name`, nearest first, at most three.
pub(crate) fn suggest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut near: Vec<(usize, &str)> = known
        .filter_map(|candidate| {
            let distance = distance(name, candidate);
            let related =
                !name.is_empty() && (candidate.starts_with(name) || name.starts_with(candidate));
            (distance <= MAX_SUGGESTED_DISTANCE || related).then_some((distance, candidate))
        })
        .collect();
    near.sort_unstable();
    near.into_iter()
        .take(3)
        .map(|(_, candidate)| candidate.to_owned())
        .collect()
}

/// Levenshtein distance in bytes; names are ASCII.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_follow_the_rule() {
        for good in ["busybox", "debian:12", "a", "team/py-3.12_x", "0"] {
            assert!(validate(good).is_ok(), "{good}");
        }
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        for bad in ["", "-a", ".a", "/a", "A", "a b", "a%2F", "ä", "../x", &long] {
            assert!(validate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn near_names_are_suggested() {
        let known = ["busybox", "debian:12", "debian:12-base"];
        let near = |name| suggest(name, known.into_iter());
        assert_eq!(near("bussybox"), ["busybox"]);
        assert_eq!(near("debian"), ["debian:12", "debian:12-base"]);
        assert_eq!(near("debian:13"), ["debian:12"]);
        assert!(near("windows").is_empty());
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    proptest! {
        #[test]
        fn encoding_is_reversible_and_one_component(name in "[a-z0-9][a-z0-9._:/-]{0,60}") {
            let file = encode(&name);
            prop_assert!(!file.contains('/') && !file.contains(':'));
            prop_assert_eq!(decode(&file), Some(name));
        }
    }
}
