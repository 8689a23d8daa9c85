//! Splits a line into unexpanded words.

use crate::ParseError;

/// Splits at white space outside quotes; quotes and escapes are kept.
pub(crate) fn raw(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match quote {
            None if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ if c == escape && quote != Some('\'') => {
                word.push(c);
                word.extend(chars.next());
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Parses a JSON array of strings; `None` if it is not one.
pub(crate) fn json(text: &str) -> Option<Vec<String>> {
    if !text.starts_with('[') {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Parses `KEY=VALUE KEY=VALUE …`, or the old form `KEY VALUE WITH SPACES`.
pub(crate) fn pairs(
    line: usize,
    keyword: &str,
    text: &str,
    escape: char,
) -> Result<Vec<(String, String)>, ParseError> {
    let words = raw(text, escape);
    let Some(first) = words.first() else {
        return Err(ParseError::new(line, format!("{keyword} says nothing")));
    };
    if !first.contains('=') {
        let rest = text.trim_start().get(first.len()..).unwrap_or_default();
        if rest.trim().is_empty() {
            let message = format!("{keyword} {first} has no value");
            return Err(ParseError::new(line, message).hint(format!("{keyword} {first}=value")));
        }
        return Ok(vec![(first.clone(), rest.trim().to_owned())]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(ParseError::new(
            line,
            format!("{word:?} is not KEY=VALUE; quote values with spaces"),
        )),
    };
    words.iter().map(pair).collect()
}
