//! Path patterns: `*`, `?`, `[a-z]`, `[^a-z]`, `\` before a character, and `**` for any number of
//! directories.
//!
//! All patterns of a file are tried together, and each byte of a name is looked at once: a state for
//! each element of each pattern is one bit, and a byte moves all of them by a shift and a mask. No
//! pattern can make that take longer than another of its length.

/// Bits of one word.
const BITS: usize = u64::BITS as usize;

/// Patterns that are tried together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    words: usize,
    /// For each byte, the states that it leads to from the one before.
    takes: Vec<u64>,
    /// Where patterns begin.
    first: Vec<u64>,
    /// States that stay while a name passes: before them stands a `*`.
    stays: Vec<u64>,
    /// States that stay when a whole name has passed: before them stands a `**`.
    crosses: Vec<u64>,
    /// Where patterns end, and which ones.
    ends: Vec<u64>,
    ended: Vec<(usize, usize)>,
}

/// How far the patterns have come at a path.
#[derive(Debug, Clone)]
struct Place {
    states: Vec<u64>,
    /// The last pattern that matches this path.
    here: Option<usize>,
    /// The last pattern that matches this path or one above it.
    above: Option<usize>,
}

impl Patterns {
    /// Patterns are relative, without `.` and `..`.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut made = Making::default();
        for (number, pattern) in patterns.into_iter().enumerate() {
            made.pattern(number, pattern);
        }
        made.finish()
    }

    /// A walk over paths, which is fastest in their order.
    pub fn walk(&self) -> Walk<'_> {
        Walk {
            patterns: self,
            root: Place {
                states: self.first.clone(),
                here: None,
                above: None,
            },
            path: Vec::new(),
            places: Vec::new(),
        }
    }

    /// One name further down.
    fn enter(&self, from: &Place, name: &[u8]) -> Place {
        let mut states = from.states.clone();
        let mut alive = true;
        for byte in name.iter().filter(|byte| **byte != b'/') {
            alive = self.step(&mut states, *byte, &self.stays);
            if !alive {
                break;
            }
        }
        if alive {
            self.step(&mut states, b'/', &[]);
        }
        for (word, state) in states.iter_mut().enumerate() {
            *state |= from.states[word] & self.crosses[word];
        }
        let here = self.last(&states);
        Place {
            states,
            here,
            above: from.above.max(here),
        }
    }

    /// Moves all states by one byte; whether any is left.
    fn step(&self, states: &mut [u64], byte: u8, stays: &[u64]) -> bool {
        let takes = &self.takes[usize::from(byte) * self.words..][..self.words];
        let (mut carried, mut alive) = (0, 0);
        for (word, state) in states.iter_mut().enumerate() {
            let before = *state;
            let stayed = before & stays.get(word).copied().unwrap_or(0);
            *state = (((before << 1) | carried) & takes[word]) | stayed;
            carried = before >> (BITS - 1);
            alive |= *state;
        }
        alive != 0
    }

    /// The last pattern that has ended.
    fn last(&self, states: &[u64]) -> Option<usize> {
        let ended = states.iter().zip(&self.ends).enumerate().rev();
        let (word, ended) = ended
            .map(|(word, (state, ends))| (word, state & ends))
            .find(|(_, ended)| *ended != 0)?;
        let state = word * BITS + (BITS - 1 - ended.leading_zeros() as usize);
        let found = self.ended.binary_search_by_key(&state, |(state, _)| *state);
        found.ok().map(|at| self.ended[at].1)
    }
}

/// Looks at paths one after the other, and remembers the directories above the last one.
#[derive(Debug)]
pub struct Walk<'a> {
    patterns: &'a Patterns,
    root: Place,
    /// The path of the last place, and where its names end.
    path: Vec<u8>,
    places: Vec<(usize, Place)>,
}

impl Walk<'_> {
    /// The last of the patterns that matches a path.
    pub fn matches(&mut self, path: &[u8]) -> Option<usize> {
        self.go(path).here
    }

    /// The last of the patterns that matches a path or one of the directories above it.
    pub fn covers(&mut self, path: &[u8]) -> Option<usize> {
        self.go(path).above
    }

    fn go(&mut self, path: &[u8]) -> &Place {
        let stays = |end: usize| {
            path.get(..end) == self.path.get(..end)
                && (end == path.len() || path.get(end) == Some(&b'/'))
        };
        let kept = self.places.iter().take_while(|(end, _)| stays(*end));
        let kept = kept.count();
        self.places.truncate(kept);
        let mut at = self.places.last().map_or(0, |(end, _)| *end);
        while at < path.len() {
            let begin = at + usize::from(!self.places.is_empty());
            let rest = &path[begin..];
            let end = rest.iter().position(|byte| *byte == b'/');
            let end = end.map_or(path.len(), |end| begin + end);
            let from = self.places.last().map_or(&self.root, |(_, place)| place);
            let place = self.patterns.enter(from, &path[begin..end]);
            self.places.push((end, place));
            at = end;
        }
        self.path.clear();
        self.path.extend_from_slice(path);
        self.places.last().map_or(&self.root, |(_, place)| place)
    }
}

/// Whether a path matches a pattern. Both are relative and have no `.` or `..` parts.
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    Patterns::new([pattern]).walk().matches(path).is_some()
}

/// Whether a pattern contains special characters.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// Patterns as states, one after the other.
#[derive(Debug, Default)]
struct Making {
    /// What leads to each state; nothing where a pattern begins.
    elements: Vec<Option<Element>>,
    stays: Vec<usize>,
    crosses: Vec<usize>,
    ended: Vec<(usize, usize)>,
}

/// What one element of a pattern matches.
#[derive(Debug)]
enum Element {
    Byte(u8),
    Any,
    Class(Vec<(u8, u8)>, bool),
}

impl Element {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Element::Byte(own) => *own == byte,
            // A name has no slash.
            _ if byte == b'/' => false,
            Element::Any => true,
            Element::Class(ranges, negated) => {
                let within = ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&byte));
                within != *negated
            }
        }
    }
}

impl Making {
    fn state(&self) -> usize {
        self.elements.len() - 1
    }

    fn pattern(&mut self, number: usize, pattern: &[u8]) {
        self.elements.push(None);
        for part in pattern.split(|byte| *byte == b'/') {
            if part == b"**" {
                self.crosses.push(self.state());
                continue;
            }
            let mut at = 0;
            while at < part.len() {
                at = self.element(part, at);
            }
            self.elements.push(Some(Element::Byte(b'/')));
        }
        self.ended.push((self.state(), number));
    }

    /// Adds the next element of a part; where the one after it begins.
    fn element(&mut self, part: &[u8], at: usize) -> usize {
        let (element, next) = match part[at] {
            b'*' => {
                self.stays.push(self.state());
                return at + 1;
            }
            b'?' => (Element::Any, at + 1),
            b'\\' => match part.get(at + 1) {
                Some(byte) => (Element::Byte(*byte), at + 2),
                None => (Element::Byte(b'\\'), at + 1),
            },
            b'[' => match class(part, at + 1) {
                Some((end, ranges, negated)) => (Element::Class(ranges, negated), end),
                // An unclosed bracket is a literal bracket.
                None => (Element::Byte(b'['), at + 1),
            },
            plain => (Element::Byte(plain), at + 1),
        };
        self.elements.push(Some(element));
        next
    }

    fn finish(self) -> Patterns {
        let words = self.elements.len().div_ceil(BITS);
        let set = |states: &mut [u64], state: usize| states[state / BITS] |= 1 << (state % BITS);
        let all = |chosen: &mut dyn Iterator<Item = usize>| {
            let mut states = vec![0; words];
            chosen.for_each(|state| set(&mut states, state));
            states
        };
        let mut takes = vec![0; words * 256];
        for (state, element) in self.elements.iter().enumerate() {
            let Some(element) = element else { continue };
            for byte in (0..=u8::MAX).filter(|byte| element.takes(*byte)) {
                set(&mut takes[usize::from(byte) * words..][..words], state);
            }
        }
        let elements = self.elements.iter().enumerate();
        let first = elements.filter(|(_, element)| element.is_none());
        Patterns {
            words,
            takes,
            first: all(&mut first.map(|(state, _)| state)),
            stays: all(&mut self.stays.into_iter()),
            crosses: all(&mut self.crosses.into_iter()),
            ends: all(&mut self.ended.iter().map(|(state, _)| *state)),
            ended: self.ended,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a pattern means, said slowly: a part for a name, `**` for any number of them.
    fn slowly(pattern: &[&[u8]], path: &[&[u8]]) -> bool {
        match (pattern, path) {
            ([], path) => path.is_empty(),
            ([b"**", rest @ ..], path) => {
                (0..=path.len()).any(|skipped| slowly(rest, &path[skipped..]))
            }
            ([part, rest @ ..], [name, names @ ..]) => fits(part, name) && slowly(rest, names),
            (_, []) => false,
        }
    }

    fn fits(part: &[u8], name: &[u8]) -> bool {
        match (part, name) {
            ([], name) => name.is_empty(),
            ([b'*', rest @ ..], name) => (0..=name.len()).any(|at| fits(rest, &name[at..])),
            ([b'?', rest @ ..], [_, names @ ..]) => fits(rest, names),
            ([byte, rest @ ..], [first, names @ ..]) => byte == first && fits(rest, names),
            (_, []) => false,
        }
    }

    fn parts(path: &str) -> Vec<&[u8]> {
        path.split('/').map(str::as_bytes).collect()
    }

    proptest! {
        #[test]
        fn patterns_together_are_the_patterns_one_by_one(
            patterns in prop::collection::vec("(\\*\\*/)?[ab*?]{1,5}(/\\*\\*|/[ab*?]{1,4}){0,3}", 1..6),
            mut paths in prop::collection::vec("[ab]{1,4}(/[ab]{1,3}){0,3}", 1..20),
        ) {
            let made = Patterns::new(patterns.iter().map(|pattern| pattern.as_bytes()));
            paths.sort();
            let mut walk = made.walk();
            for path in &paths {
                let fitting = |path: &str| {
                    let fit = |pattern: &String| slowly(&parts(pattern), &parts(path));
                    patterns.iter().rposition(fit)
                };
                let ends = path.match_indices('/').map(|(at, _)| at);
                let above = ends.chain([path.len()]).filter_map(|end| fitting(&path[..end])).max();
                prop_assert_eq!(walk.matches(path.as_bytes()), fitting(path), "{}", path);
                prop_assert_eq!(walk.covers(path.as_bytes()), above, "{}", path);
            }
        }
    }

    #[test]
    fn slashes_at_the_ends_are_empty_names() {
        let patterns = Patterns::new([b"a".as_slice(), b"**/b"]);
        let mut walk = patterns.walk();
        for (path, last) in [
            ("", None),
            ("/", None),
            ("/a", None),
            ("a", Some(0)),
            ("a/", None),
            ("//b", Some(1)),
        ] {
            assert_eq!(walk.matches(path.as_bytes()), last, "{path:?}");
        }
    }

    #[test]
    fn hostile_patterns_take_no_longer_than_others() {
        // What took eight seconds when each pattern was tried at each place of each path.
        let text = "*a*a*a*a*a*a*a*a*b/**/*a*a*a*a*a*a*a*b\n".repeat(440);
        let patterns = Patterns::new(text.lines().map(str::as_bytes));
        let began = std::time::Instant::now();
        let mut walk = patterns.walk();
        for number in 0..2000 {
            let path = format!("{}/{}", "a".repeat(40), "a".repeat(number % 60 + 1));
            assert_eq!(walk.matches(path.as_bytes()), None);
        }
        let took = began.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
    }
}
