//! Glob patterns: `*`, `?`, `[…]`, `**` and `{a,b}` over whole paths.
//!
//! Pure. For small trees: backtracking is not bounded.

/// Whether a path matches the pattern.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match braces(pattern) {
        None => plain(pattern, path),
        Some((before, choices, after)) => choices.split(|&byte| byte == b',').any(|choice| {
            let whole: Vec<u8> = [before, choice, after].concat();
            matches(&whole, path)
        }),
    }
}

/// The first `{a,b}` of a pattern, with the text around it.
fn braces(pattern: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let open = pattern.iter().position(|&byte| byte == b'{')?;
    let close = open + pattern[open..].iter().position(|&byte| byte == b'}')?;
    Some((
        &pattern[..open],
        &pattern[open + 1..close],
        &pattern[close + 1..],
    ))
}

fn plain(pattern: &[u8], path: &[u8]) -> bool {
    if let Some(rest) = pattern.strip_prefix(b"**/") {
        // Any number of whole components, including none.
        return plain(rest, path)
            || (0..path.len()).any(|at| path[at] == b'/' && plain(rest, &path[at + 1..]));
    }
    if let Some(rest) = pattern.strip_prefix(b"**") {
        return (0..=path.len()).any(|at| plain(rest, &path[at..]));
    }
    let Some((&first, rest)) = pattern.split_first() else {
        return path.is_empty();
    };
    match first {
        b'*' => {
            let end = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
            (0..=end).any(|at| plain(rest, &path[at..]))
        }
        b'[' => class(rest, path),
        _ => path
            .split_first()
            .is_some_and(|(&byte, more)| one(first, byte) && plain(rest, more)),
    }
}

fn one(pattern: u8, byte: u8) -> bool {
    match pattern {
        b'?' => byte != b'/',
        _ => pattern == byte,
    }
}

/// A set of bytes and ranges; `rest` begins after the opening bracket.
fn class(rest: &[u8], path: &[u8]) -> bool {
    let Some(close) = rest.iter().position(|&byte| byte == b']') else {
        return false;
    };
    let Some((&byte, more)) = path.split_first() else {
        return false;
    };
    let (set, negated) = match rest[..close].split_first() {
        Some((b'!' | b'^', set)) => (set, true),
        _ => (&rest[..close], false),
    };
    let mut found = false;
    let mut at = 0;
    while at < set.len() {
        if set.get(at + 1) == Some(&b'-') && at + 2 < set.len() {
            found |= (set[at]..=set[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= set[at] == byte;
            at += 1;
        }
    }
    found != negated && byte != b'/' && plain(&rest[close + 1..], more)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn wildcards_stay_within_a_component_and_double_stars_do_not() {
        for (pattern, path, expected) in [
            ("/a/*.txt", "/a/b.txt", true),
            ("/a/*.txt", "/a/b/c.txt", false),
            ("/a/**/*.txt", "/a/b/c.txt", true),
            ("/a/**/*.txt", "/a/c.txt", true),
            ("/a/?", "/a/b", true),
            ("/a?b", "/a/b", false),
            ("/[ab]", "/b", true),
            ("/[!a-c]", "/b", false),
            ("/*.{rs,toml}", "/x.toml", true),
            ("/*.{rs,toml}", "/x.lock", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), path.as_bytes()),
                expected,
                "{pattern} {path}"
            );
        }
    }
}
