//! Names of environments.
//!
//! Owns the syntax of names, their encoding as file names, and suggestions for mistyped ones. It
//! knows nothing about what is installed.

use sha2::{Digest as _, Sha256};

use crate::{digest::hex, error::EnvironmentError, reference::Origin};

/// Longest accepted name, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// Longest file name made from a name; longer ones are hashed.
const MAX_ENCODED_BYTES: usize = 200;
/// First byte of hashed file names. No name starts with it.
const HASHED: char = '~';

/// A similar name is offered when at most this many edits away.
const MAX_SUGGESTED_DISTANCE: usize = 3;

/// A name is a short word, as in the catalog, or states the image's origin.
pub(crate) fn validate(name: &str) -> Result<(), EnvironmentError> {
    let fits = name.len() <= MAX_NAME_BYTES;
    if fits && (is_word(name) || Origin::parse(name).is_some()) {
        return Ok(());
    }
    Err(EnvironmentError::InvalidName {
        name: name.to_owned(),
    })
}

fn is_word(name: &str) -> bool {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    starts_well
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._:/-".contains(&b))
}

/// The name as one path component. Two names never share a file.
pub(crate) fn encode(name: &str) -> String {
    let mut file = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            file.push(char::from(byte));
        } else {
            file.push('%');
            file.push_str(&hex(&[byte]).to_ascii_uppercase());
        }
    }
    if file.len() > MAX_ENCODED_BYTES {
        return format!("{HASHED}{}", hex(&Sha256::digest(name.as_bytes())));
    }
    file
}

/// The result of decoding a file name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Name(String),
    /// The name is stored inside the file.
    Hashed,
    Foreign,
}

pub(crate) fn decode(file_stem: &str) -> Decoded {
    if file_stem.starts_with(HASHED) {
        return Decoded::Hashed;
    }
    let mut bytes = Vec::new();
    let mut rest = file_stem;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let code = after
            .get(..2)
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        let Some(code) = code else {
            return Decoded::Foreign;
        };
        bytes.push(code);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    match String::from_utf8(bytes) {
        Ok(name) if validate(&name).is_ok() && encode(&name) == file_stem => Decoded::Name(name),
        _ => Decoded::Foreign,
    }
}

/// Known names that resemble `name`, nearest first, at most three.
pub fn suggest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
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
        let pinned = format!("ghcr.io/a/b@sha256:{}", "0".repeat(64));
        for good in [
            "busybox",
            "debian:12",
            "a",
            "team/py-3.12_x",
            "0",
            "python:3.12-Slim_X",
            "localhost:5000/a:b",
            "tar:/some dir/Ünï.tar",
            &pinned,
        ] {
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
            prop_assert_eq!(decode(&file), Decoded::Name(name));
        }

        #[test]
        fn host_paths_are_file_names_of_bounded_length(path in "/[^\\p{Cc}/.]{1,120}") {
            let name = format!("tar:{path}");
            prop_assume!(name.len() <= MAX_NAME_BYTES);
            let file = encode(&name);
            prop_assert!(!file.contains('/') && file.len() <= MAX_ENCODED_BYTES);
            match decode(&file) {
                Decoded::Name(decoded) => prop_assert_eq!(decoded, name),
                other => prop_assert_eq!(other, Decoded::Hashed),
            }
        }
    }
}
