//! Path patterns: `*`, `?`, `[a-z]`, `[^a-z]`, `\` before a character, and `**` for any number of
//! directories.

/// Whether a path matches a pattern. Both are relative and have no `.` or `..` parts.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let pattern: Vec<&[u8]> = pattern.split(|byte| *byte == b'/').collect();
    let path: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    // `reached[i]`: the parts of the pattern so far match the first `i` parts of the path.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if part == b"**" {
            let mut any = false;
            for (at, before) in reached.iter().enumerate() {
                any |= before;
                next[at] = any;
            }
        } else {
            for (at, name) in path.iter().enumerate() {
                next[at + 1] = reached[at] && fits(part, name);
            }
        }
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

/// Whether a pattern contains special characters.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// Whether one name matches one part of a pattern.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where to continue when the last `*` has to match one more byte.
    let mut again: Option<(usize, usize)> = None;
    while seen < name.len() {
        if pattern.get(at) == Some(&b'*') {
            again = Some((at, seen));
            at += 1;
            continue;
        }
        if let Some(next) = one(pattern, at, name[seen]) {
            (at, seen) = (next, seen + 1);
            continue;
        }
        match again {
            Some((star, from)) => {
                again = Some((star, from + 1));
                (at, seen) = (star + 1, from + 1);
            }
            None => return false,
        }
    }
    pattern[at.min(pattern.len())..]
        .iter()
        .all(|byte| *byte == b'*')
}

/// The position after the next element of the pattern, if that element matches a byte.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'\\' => match pattern.get(at + 1) {
            Some(next) => (*next == byte).then_some(at + 2),
            None => (byte == b'\\').then_some(at + 1),
        },
        b'[' => match class(pattern, at + 1) {
            Some((end, ranges, negated)) => {
                let within = ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&byte));
                (within != negated).then_some(end)
            }
            // An unclosed bracket is a literal bracket.
            None => (byte == b'[').then_some(at + 1),
        },
        plain => (plain == byte).then_some(at + 1),
    }
}

type Class = (usize, Vec<(u8, u8)>, bool);

/// Parses a character class: its end, its ranges, and whether it is negated.
fn class(pattern: &[u8], mut at: usize) -> Option<Class> {
    let negated = matches!(pattern.get(at), Some(b'^' | b'!'));
    at += usize::from(negated);
    let mut ranges = Vec::new();
    loop {
        let low = match *pattern.get(at)? {
            b']' if !ranges.is_empty() => return Some((at + 1, ranges, negated)),
            b'\\' => {
                at += 1;
                *pattern.get(at)?
            }
            byte => byte,
        };
        at += 1;
        let high = match (pattern.get(at), pattern.get(at + 1)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                at += 2;
                *high
            }
            _ => low,
        };
        ranges.push((low, high));
    }
}
