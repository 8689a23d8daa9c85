//! Headers for the collector, from their file.

use crate::wrong;
use http::{HeaderMap, HeaderName, HeaderValue};
use motu_core::{Result, limits};
use std::io::Read as _;
use std::path::Path;

/// Reads the headers, if there is a file of them.
pub fn read(path: Option<&Path>) -> Result<HeaderMap> {
    let Some(path) = path else {
        return Ok(HeaderMap::new());
    };
    let failed = |why: String| {
        wrong(format!("headers_file {}: {why}", path.display()))
            .hint("a file with one `Name: value` on each line that this daemon may read")
    };
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let limit = limits::OTLP_HEADERS_BYTES;
    let mut text = String::new();
    file.take(limit.max + 1)
        .read_to_string(&mut text)
        .map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > limit.max {
        return Err(failed(format!("longer than {}", limit.name)));
    }
    parse(&text).map_err(|line| failed(format!("line {line} is no header")))
}

/// The headers of a text, or the number of the line that is none. What it says is told to nobody.
fn parse(text: &str) -> std::result::Result<HeaderMap, usize> {
    let mut headers = HeaderMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let header = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::try_from(name.trim()).ok()?;
            let mut value = HeaderValue::try_from(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let (name, value) = header.ok_or(number + 1)?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines() {
        let headers = parse("# ours\nAuthorization: Bearer a:b\n\nX-Scope: one\n").unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-scope"], "one");
        assert!(!format!("{headers:?}").contains("Bearer"));
        assert_eq!(parse("A: b\nno header"), Err(2));
        assert_eq!(parse("two words: b"), Err(1));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_and_not_quoted() {
        let error = read(Some(Path::new("/nowhere/headers"))).unwrap_err();
        assert!(error.message.contains("/nowhere/headers"), "{error}");
        assert!(read(None).unwrap().is_empty());
    }
}
