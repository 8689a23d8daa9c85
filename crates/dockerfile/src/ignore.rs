//! `.dockerignore`: excludes files from a build context.

use crate::{ParseError, glob};

/// The maximum number of patterns in a file.
const MAX_PATTERNS: usize = 10_000;
/// The maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 4096;

/// The patterns of a `.dockerignore`, in order: the last match decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignore {
    patterns: Vec<(Vec<u8>, bool)>,
}

impl Ignore {
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut patterns = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (line, keeps) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), true),
                None => (line, false),
            };
            if line.len() > MAX_PATTERN_BYTES || patterns.len() >= MAX_PATTERNS {
                return Err(ParseError::new(number + 1, "too many or too long patterns"));
            }
            match clean(line) {
                Some(pattern) => patterns.push((pattern, keeps)),
                None => {
                    let message = format!("{line:?} names nothing in the context");
                    return Err(ParseError::new(number + 1, message));
                }
            }
        }
        Ok(Self { patterns })
    }

    /// Whether a path of the context is excluded.
    pub fn excludes(&self, path: &[u8]) -> bool {
        let mut excluded = false;
        for (pattern, keeps) in &self.patterns {
            if *keeps == excluded && covers(pattern, path) {
                excluded = !keeps;
            }
        }
        excluded
    }

    /// Whether no pattern can include files below an excluded directory again.
    pub fn is_final(&self) -> bool {
        !self.patterns.iter().any(|(_, keeps)| *keeps)
    }
}

/// Whether a pattern matches a path or one of its parent directories.
fn covers(pattern: &[u8], path: &[u8]) -> bool {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let above = ends.map(|(at, _)| &path[..at]);
    above.chain([path]).any(|part| glob::matches(pattern, part))
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
