//! Expands variables in words: `$name`, `${name}`, `${name:-word}`, `${name:+word}`,
//! `${name:?word}` and the same without the colon, with quotes and escapes.

use crate::ParseError;

/// The maximum depth of nested braces.
const MAX_DEPTH: usize = 16;
/// The maximum length of an expanded word.
const MAX_BYTES: usize = 1 << 20;

/// Expands a word: removes quotes and substitutes variables.
pub fn expand(
    word: &str,
    escape: char,
    line: usize,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ParseError> {
    let mut reader = Reader {
        chars: word.chars().collect(),
        at: 0,
        escape,
        line,
        lookup,
    };
    reader.until(None, 0)
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    escape: char,
    line: usize,
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.chars.get(self.at).copied();
        self.at += usize::from(c.is_some());
        c
    }

    fn fail(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.line, message)
    }

    /// Expands up to a closing brace, or to the end of the word.
    fn until(&mut self, end: Option<char>, depth: usize) -> Result<String, ParseError> {
        if depth > MAX_DEPTH {
            return Err(self.fail("variables are nested too deeply"));
        }
        let mut text = String::new();
        let mut quoted = false;
        while let Some(c) = self.next() {
            match c {
                '\'' if !quoted => self.literal(&mut text)?,
                '"' => quoted = !quoted,
                '$' => text.push_str(&self.variable(depth)?),
                c if Some(c) == end && !quoted => return Ok(text),
                c if c == self.escape => match self.next() {
                    // In double quotes only a few characters can be escaped.
                    Some(next) if quoted && !matches!(next, '"' | '$') && next != self.escape => {
                        text.push(c);
                        text.push(next);
                    }
                    Some(next) => text.push(next),
                    None => text.push(c),
                },
                c => text.push(c),
            }
            if text.len() > MAX_BYTES {
                return Err(self.fail("a word becomes too long"));
            }
        }
        if quoted {
            return Err(self.fail("a double quote is not closed"));
        }
        match end {
            None => Ok(text),
            Some(end) => Err(self.fail(format!("a {end:?} is missing"))),
        }
    }

    fn literal(&mut self, text: &mut String) -> Result<(), ParseError> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => text.push(c),
                None => return Err(self.fail("a single quote is not closed")),
            }
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.chars.get(self.at)
            && (c.is_ascii_alphanumeric() || *c == '_')
            && !(name.is_empty() && c.is_ascii_digit())
        {
            name.push(*c);
            self.at += 1;
        }
        name
    }

    /// Parses a variable after its `$`.
    fn variable(&mut self, depth: usize) -> Result<String, ParseError> {
        if self.chars.get(self.at) != Some(&'{') {
            let name = self.name();
            return Ok(match name.as_str() {
                "" => "$".to_owned(),
                name => (self.lookup)(name).unwrap_or_default(),
            });
        }
        self.at += 1;
        let name = self.name();
        if name.is_empty() {
            return Err(self.fail("${ is not followed by a name"));
        }
        let value = (self.lookup)(&name);
        let (colon, mark) = match self.next() {
            Some('}') => return Ok(value.unwrap_or_default()),
            Some(':') => (true, self.next()),
            mark => (false, mark),
        };
        let is_set = value
            .as_ref()
            .is_some_and(|value| !(colon && value.is_empty()));
        // The word is expanded even if it is not used, so that its errors are reported.
        let other = self.until(Some('}'), depth + 1)?;
        match mark {
            Some('-') => Ok(if is_set {
                value.unwrap_or_default()
            } else {
                other
            }),
            Some('+') => Ok(if is_set { other } else { String::new() }),
            Some('?') if is_set => Ok(value.unwrap_or_default()),
            Some('?') => Err(self.fail(match other.as_str() {
                "" => format!("{name} is not set"),
                reason => format!("{name}: {reason}"),
            })),
            _ => Err(self
                .fail(format!("${{{name}…}} has a modifier that is not known"))
                .hint("use ${name}, ${name:-word}, ${name:+word} or ${name:?word}")),
        }
    }
}
