//! `.dockerignore`: excludes files from a build context.

use crate::{
    ParseError,
    glob::{Patterns, Walk},
};

/// The maximum number of patterns in a file.
const MAX_PATTERNS: usize = 10_000;
/// The maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 4096;
/// The maximum length of all patterns: what is looked at for each byte of a path.
pub const MAX_IGNORE_BYTES: usize = 65_536;

/// The patterns of a `.dockerignore`, in order: the last match decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    patterns: Patterns,
    /// For each pattern, whether it includes again what others exclude.
    keeps: Vec<bool>,
}

/// Asks about paths one after the other, fastest in their order.
#[derive(Debug)]
pub struct Ignored<'a> {
    walk: Walk<'a>,
    keeps: &'a [bool],
}

impl Ignored<'_> {
    /// Whether a path of the context is excluded: the last pattern decides that matches it or a
    /// directory above it.
    pub fn excludes(&mut self, path: &[u8]) -> bool {
        let last = self.walk.covers(path);
        last.is_some_and(|number| !self.keeps[number])
    }
}

impl Ignore {
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        let (mut keeps_all, mut bytes) = (Vec::new(), 0);
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (line, keeps) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), true),
                None => (line, false),
            };
            bytes += line.len();
            if line.len() > MAX_PATTERN_BYTES
                || patterns.len() >= MAX_PATTERNS
                || bytes > MAX_IGNORE_BYTES
            {
                let message = "too many or too long patterns (build_ignore_bytes)";
                return Err(ParseError::new(number + 1, message));
            }
            match clean(line) {
                Some(pattern) => {
                    patterns.push(pattern);
                    keeps_all.push(keeps);
                }
                None => {
                    let message = format!("{line:?} names nothing in the context");
                    return Err(ParseError::new(number + 1, message));
                }
            }
        }
        Ok(Self {
            patterns: Patterns::new(patterns.iter().map(Vec::as_slice)),
            keeps: keeps_all,
        })
    }

    /// Asks about several paths.
    pub fn walk(&self) -> Ignored<'_> {
        Ignored {
            walk: self.patterns.walk(),
            keeps: &self.keeps,
        }
    }

    /// Whether a path of the context is excluded.
    pub fn excludes(&self, path: &[u8]) -> bool {
        self.walk().excludes(path)
    }

    /// Whether no pattern can include files below an excluded directory again.
    pub fn is_final(&self) -> bool {
        !self.keeps.contains(&true)
    }
}

/// Removes `.`, empty parts and slashes at both ends; `None` if the pattern is empty or leaves the
/// context.
fn clean(pattern: &str) -> Option<Vec<u8>> {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/").into_bytes())
}
