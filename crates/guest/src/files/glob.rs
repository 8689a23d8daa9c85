//! Finding files by pattern.
//!
//! `*` and `?` match within a name (names that begin with a dot included),
//! `[a-z]` and `[!a-z]` one byte, `**` any number of directories, `{a,b}`
//! alternatives. Symlinked directories are not entered below the first part with
//! a wildcard. The walk visits each directory once, however many ways lead to it.

use super::entry;
use crate::answer::{Failed, Quoted};
use crate::blocking::Cancel;
use crate::place::{Place, Root};
use crate::users::Names;
use motu_link::message::{Entry, Failure, FileType as Kind};
use rustix::fs::{Dir, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

/// Alternatives that braces may expand to.
const MAX_ALTERNATIVES: usize = 256;
/// Entries looked at by one request.
const MAX_VISITED: usize = 2_000_000;
/// The deepest directory entered.
const MAX_DEPTH: usize = 128;

/// One part of a pattern between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `**`.
    Deep,
    Name(Vec<u8>),
}

/// Where a walk stands: an alternative and the part of it that comes next.
type Position = (usize, usize);

struct Level {
    fd: OwnedFd,
    names: Dir,
    place: Place,
    positions: BTreeSet<Position>,
}

/// A search.
#[derive(Debug)]
pub struct Glob<'a> {
    pub root: &'a Root,
    pub names: &'a Names,
    pub limit: usize,
    pub cancel: Cancel,
}

impl Glob<'_> {
    /// The first matches in the order of their paths, and whether there are more.
    pub fn run(&self, pattern: &[u8]) -> Result<(Vec<Entry>, bool), Failed> {
        let (base, patterns) = parse(pattern)?;
        let mut found: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        let mut more = false;
        if patterns.iter().any(Vec::is_empty) {
            return self.plain(&base);
        }
        let start = (0..patterns.len())
            .map(|alternative| (alternative, 0))
            .collect();
        let mut stack: Vec<Level> = self
            .enter_base(&base, close(&patterns, start))
            .into_iter()
            .collect();
        let mut visited = 0;
        while let Some(level) = stack.last_mut() {
            let Some(Ok(item)) = level.names.next() else {
                stack.pop();
                continue;
            };
            visited += 1;
            if self.cancel.is_set() {
                return Err(Failed::cancelled());
            }
            if visited > MAX_VISITED {
                let message = format!("{} looks at more than {MAX_VISITED} files", Quoted(pattern));
                return Err(Failed::new(Failure::Limit, message));
            }
            let name = item.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let (matched, next) = step(&patterns, &level.positions, name);
            if !matched && next.is_empty() {
                continue;
            }
            let place = level.place.join(name);
            let Ok(entry) = entry::describe_at(self.names, &level.fd, name, &place) else {
                continue;
            };
            let descend =
                entry.kind == Kind::Directory as i32 && !next.is_empty() && stack.len() < MAX_DEPTH;
            if matched {
                found.insert(place.as_bytes().to_vec(), entry);
                if found.len() > self.limit {
                    found.pop_last();
                    more = true;
                }
            }
            if descend {
                let below = self.enter(&stack, &place, next);
                stack.extend(below);
            }
        }
        Ok((found.into_values().collect(), more))
    }

    /// No wildcard at all: the place itself.
    fn plain(&self, place: &Place) -> Result<(Vec<Entry>, bool), Failed> {
        match entry::stat(self.names, self.root, place, false) {
            Ok(entry) => Ok((vec![entry], false)),
            Err(failed) if failed.kind == Failure::NotFound => Ok((Vec::new(), false)),
            Err(failed) => Err(failed),
        }
    }

    fn enter_base(&self, base: &Place, positions: BTreeSet<Position>) -> Option<Level> {
        let fd = self
            .root
            .open_at(base, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .ok()?;
        let names = Dir::read_from(&fd).ok()?;
        Some(Level {
            fd,
            names,
            place: base.clone(),
            positions,
        })
    }

    /// A directory that cannot be read has no matches.
    fn enter(
        &self,
        stack: &[Level],
        place: &Place,
        positions: BTreeSet<Position>,
    ) -> Option<Level> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (_, name) = place.split().ok()?;
        let fd = rustix::fs::openat(&stack.last()?.fd, name, flags, Mode::empty()).ok()?;
        let names = Dir::read_from(&fd).ok()?;
        Some(Level {
            fd,
            names,
            place: place.clone(),
            positions,
        })
    }
}

/// Splits a pattern into the directory it surely starts in and its alternatives below that.
fn parse(pattern: &[u8]) -> Result<(Place, Vec<Vec<Part>>), Failed> {
    // Checks length, zero bytes and that it is absolute.
    Place::parse(pattern)?;
    let mut base: Vec<u8> = b"/".to_vec();
    let mut rest = pattern;
    while let Some(after) = rest.strip_prefix(b"/") {
        let end = after
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(after.len());
        let part = after.get(..end).unwrap_or_default();
        if part.iter().any(|byte| b"*?[{\\".contains(byte)) {
            break;
        }
        base.extend_from_slice(part);
        base.push(b'/');
        rest = after.get(end..).unwrap_or_default();
    }
    let mut alternatives = Vec::new();
    for alternative in expand(rest)? {
        let parts = alternative
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty());
        let parts = parts.map(|part| match part {
            b"**" => Part::Deep,
            part => Part::Name(part.to_vec()),
        });
        alternatives.push(parts.collect());
    }
    Ok((Place::parse(&base)?, alternatives))
}

/// Expands the braces of a pattern; one without a partner stands for itself.
fn expand(pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failed> {
    let mut todo = vec![pattern.to_vec()];
    let mut done = Vec::new();
    while let Some(pattern) = todo.pop() {
        if todo.len() + done.len() >= MAX_ALTERNATIVES {
            return Err(Failed::new(
                Failure::Limit,
                format!("more than {MAX_ALTERNATIVES} alternatives"),
            ));
        }
        match first_braces(&pattern) {
            None => done.push(pattern),
            Some((open, commas, close)) => {
                let head = pattern.get(..open).unwrap_or_default();
                let tail = pattern.get(close + 1..).unwrap_or_default();
                let mut from = open + 1;
                for end in commas.into_iter().chain([close]) {
                    todo.push([head, pattern.get(from..end).unwrap_or_default(), tail].concat());
                    from = end + 1;
                }
            }
        }
    }
    Ok(done)
}

/// The first pair of braces with a comma in it: where it opens, its own commas, where it closes.
fn first_braces(pattern: &[u8]) -> Option<(usize, Vec<usize>, usize)> {
    let opens = pattern
        .iter()
        .enumerate()
        .filter(|(at, byte)| **byte == b'{' && !escaped(pattern, *at));
    for (open, _) in opens {
        let mut depth = 0;
        let mut commas = Vec::new();
        for (at, byte) in pattern.iter().enumerate().skip(open + 1) {
            match byte {
                _ if escaped(pattern, at) => {}
                b'{' => depth += 1,
                b',' if depth == 0 => commas.push(at),
                b'}' if depth > 0 => depth -= 1,
                b'}' if commas.is_empty() => break,
                b'}' => return Some((open, commas, at)),
                _ => {}
            }
        }
    }
    None
}

fn escaped(pattern: &[u8], at: usize) -> bool {
    let before = pattern.get(..at).unwrap_or_default();
    before
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count()
        % 2
        == 1
}

/// Adds the positions that `**` reaches by matching nothing.
fn close(patterns: &[Vec<Part>], mut positions: BTreeSet<Position>) -> BTreeSet<Position> {
    let mut todo: Vec<Position> = positions.iter().copied().collect();
    while let Some((alternative, at)) = todo.pop() {
        let part = patterns.get(alternative).and_then(|parts| parts.get(at));
        if part == Some(&Part::Deep) && positions.insert((alternative, at + 1)) {
            todo.push((alternative, at + 1));
        }
    }
    positions
}

/// What a name leads to: whether it is a match, and the positions inside it.
fn step(
    patterns: &[Vec<Part>],
    positions: &BTreeSet<Position>,
    name: &[u8],
) -> (bool, BTreeSet<Position>) {
    let mut next = BTreeSet::new();
    for (alternative, at) in positions {
        match patterns.get(*alternative).and_then(|parts| parts.get(*at)) {
            Some(Part::Deep) => {
                next.insert((*alternative, *at));
            }
            Some(Part::Name(part)) if matches(part, name) => {
                next.insert((*alternative, at + 1));
            }
            _ => {}
        }
    }
    let mut next = close(patterns, next);
    let ended = |position: &Position| {
        patterns
            .get(position.0)
            .is_some_and(|parts| position.1 >= parts.len())
    };
    let matched = next.iter().any(ended);
    next.retain(|position| !ended(position));
    (matched, next)
}

/// Whether a name matches one part of a pattern. Linear: only the last `*` is ever retried.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p, n));
            p += 1;
            continue;
        }
        match one(
            pattern.get(p..).unwrap_or_default(),
            name.get(n).copied().unwrap_or_default(),
        ) {
            Some(length) => {
                p += length;
                n += 1;
            }
            None => match retry {
                Some((star, from)) => {
                    p = star + 1;
                    n = from + 1;
                    retry = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .unwrap_or_default()
        .iter()
        .all(|byte| *byte == b'*')
}

/// Matches one byte; returns how much of the pattern that took.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => match class(rest) {
            Some((length, negated, members)) => {
                (contains(members, byte) != negated).then_some(length + 1)
            }
            // A bracket without a partner stands for itself.
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// The inside of `[…]`: its length with the closing bracket, whether it is negated, its members.
fn class(rest: &[u8]) -> Option<(usize, bool, &[u8])> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    // A bracket right at the beginning is a member.
    let end = rest.iter().skip(start + 1).position(|byte| *byte == b']')? + start + 1;
    Some((end + 1, negated, rest.get(start..end)?))
}

fn contains(members: &[u8], byte: u8) -> bool {
    let mut rest = members;
    loop {
        rest = match rest {
            [low, b'-', high, more @ ..] => {
                if (*low..=*high).contains(&byte) {
                    return true;
                }
                more
            }
            [member, more @ ..] => {
                if *member == byte {
                    return true;
                }
                more
            }
            [] => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The obvious exponential matcher.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                slow(rest, name) || (!name.is_empty() && slow(pattern, &name[1..]))
            }
            ([], _) | (_, []) => false,
            (_, [byte, after @ ..]) => {
                one(pattern, *byte).is_some_and(|length| slow(&pattern[length..], after))
            }
        }
    }

    #[test]
    fn names_match() {
        for (pattern, name, expected) in [
            ("*.rs", "main.rs", true),
            ("*.rs", ".rs", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*", "", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn braces_expand() {
        let mut all = expand(b"a{b,c{d,e}}f{x").unwrap();
        all.sort();
        assert_eq!(all, [&b"abf{x"[..], b"acdf{x", b"acef{x"]);
        assert_eq!(expand(b"{a}").unwrap(), [b"{a}"]);
        assert!(expand(&b"{a,b}".repeat(20)).is_err());
    }

    #[test]
    fn deep_parts_match_any_depth() {
        let (base, patterns) = parse(b"/src/**/x/*.c").unwrap();
        assert_eq!(base.as_bytes(), b"/src");
        let walk = |path: &str| {
            let mut positions = close(&patterns, [(0, 0)].into());
            let mut matched = false;
            for name in path.split('/') {
                (matched, positions) = step(&patterns, &positions, name.as_bytes());
            }
            matched
        };
        assert!(walk("x/a.c"));
        assert!(walk("a/b/x/a.c"));
        assert!(walk("x/x/a.c"));
        assert!(!walk("a.c"));
        assert!(!walk("x/a/a.c"));
    }

    proptest! {
        #[test]
        fn the_fast_matcher_agrees_with_the_obvious_one(pattern in "[ab*?\\[\\]!-]{0,8}", name in "[ab-]{0,8}") {
            prop_assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), slow(pattern.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn no_pattern_panics(pattern in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&[b"/", &pattern[..]].concat());
        }
    }
}
