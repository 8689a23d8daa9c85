//! Splits text into logical lines.
//!
//! Handles parser directives, comments, continuations and here-documents.

use crate::{Bounds, Heredoc, ParseError, words};

/// One instruction with all its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logical {
    pub line: usize,
    pub text: String,
    pub heredocs: Vec<Heredoc>,
}

/// The logical lines of a text, and its escape character.
pub(crate) struct Split {
    pub escape: char,
    pub lines: Vec<Logical>,
}

/// Instructions that may have here-documents.
const WITH_HEREDOCS: [&str; 3] = ["RUN", "COPY", "ADD"];
/// The maximum number of here-documents of one instruction.
const MAX_HEREDOCS: usize = 32;

pub(crate) fn split(text: &str, bounds: &Bounds) -> Result<Split, ParseError> {
    if text.len() > bounds.file_bytes {
        let message = format!(
            "the file has {} bytes; build_file_bytes is {}",
            text.len(),
            bounds.file_bytes
        );
        return Err(ParseError::new(0, message));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        lines: text.lines().collect(),
        at: 0,
    };
    let escape = directives(&mut reader)?;
    let mut lines = Vec::new();
    while let Some(logical) = reader.logical(escape, bounds)? {
        if lines.len() >= bounds.instructions {
            let message = format!(
                "there are more instructions than build_instructions, {}",
                bounds.instructions
            );
            return Err(ParseError::new(logical.line, message));
        }
        lines.push(logical);
    }
    Ok(Split { escape, lines })
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

/// Parses directives: comments of the form `# key=value` at the beginning.
fn directives(reader: &mut Reader<'_>) -> Result<char, ParseError> {
    let mut escape = '\\';
    while let Some(line) = reader.lines.get(reader.at) {
        let Some(comment) = line.trim().strip_prefix('#') else {
            break;
        };
        let Some((key, value)) = comment.split_once('=') else {
            break;
        };
        match (key.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("escape", "\\") => escape = '\\',
            ("escape", "`") => escape = '`',
            ("escape", other) => {
                let message = format!("{other:?} cannot be the escape character");
                return Err(ParseError::new(reader.at + 1, message).hint("it is \\ or `"));
            }
            // These select another parser, but there is only this one.
            ("syntax" | "check", _) => {}
            _ => break,
        }
        reader.at += 1;
    }
    Ok(escape)
}

impl Reader<'_> {
    fn logical(&mut self, escape: char, bounds: &Bounds) -> Result<Option<Logical>, ParseError> {
        let mut text = String::new();
        let mut first = None;
        while let Some(line) = self.lines.get(self.at) {
            self.at += 1;
            let trimmed = line.trim_start();
            if trimmed.starts_with('#') || trimmed.is_empty() {
                continue;
            }
            let begin = *first.get_or_insert(self.at);
            let (part, goes_on) = match line.trim_end().strip_suffix(escape) {
                Some(part) => (part, true),
                None => (*line, false),
            };
            text.push_str(if text.is_empty() {
                part.trim_start()
            } else {
                part
            });
            check_length(begin, text.len(), bounds)?;
            if !goes_on {
                break;
            }
        }
        let Some(line) = first else {
            return Ok(None);
        };
        let text = text.trim_end().to_owned();
        let heredocs = self.heredocs(line, &text, bounds)?;
        Ok(Some(Logical {
            line,
            text,
            heredocs,
        }))
    }

    fn heredocs(
        &mut self,
        line: usize,
        text: &str,
        bounds: &Bounds,
    ) -> Result<Vec<Heredoc>, ParseError> {
        let keyword = text.split_whitespace().next().unwrap_or_default();
        let keyword = keyword.to_ascii_uppercase();
        if !WITH_HEREDOCS.contains(&keyword.as_str()) || !text.contains("<<") {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for word in words::raw(text, '\\') {
            let Some(mark) = Mark::parse(&word) else {
                continue;
            };
            if found.len() >= MAX_HEREDOCS {
                return Err(ParseError::new(line, "too many here-documents"));
            }
            found.push(self.body(line, mark, bounds)?);
        }
        Ok(found)
    }

    fn body(&mut self, line: usize, mark: Mark, bounds: &Bounds) -> Result<Heredoc, ParseError> {
        let mut body = String::new();
        while let Some(next) = self.lines.get(self.at) {
            self.at += 1;
            let next = match mark.strip_tabs {
                true => next.trim_start_matches('\t'),
                false => next,
            };
            if next == mark.name {
                return Ok(Heredoc {
                    name: mark.name,
                    body,
                    expand: mark.expand,
                });
            }
            body.push_str(next);
            body.push('\n');
            check_length(line, body.len(), bounds)?;
        }
        let message = format!("the here-document {} has no end", mark.name);
        Err(ParseError::new(line, message))
    }
}

fn check_length(line: usize, length: usize, bounds: &Bounds) -> Result<(), ParseError> {
    if length <= bounds.line_bytes {
        return Ok(());
    }
    let message = format!(
        "the instruction is longer than build_line_bytes, {}",
        bounds.line_bytes
    );
    Err(ParseError::new(line, message))
}

/// `<<NAME`, `<<-NAME` or `<<"NAME"`, optionally after the number of a descriptor.
pub(crate) struct Mark {
    pub name: String,
    strip_tabs: bool,
    expand: bool,
}

impl Mark {
    pub fn parse(word: &str) -> Option<Mark> {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix("<<")?;
        let (rest, strip_tabs) = match rest.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let quoted = |quote: char| rest.strip_prefix(quote)?.strip_suffix(quote);
        let (name, expand) = match quoted('"').or_else(|| quoted('\'')) {
            Some(name) => (name, false),
            None => (rest, true),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let fits = !name.is_empty() && name.chars().all(plain);
        fits.then(|| Mark {
            name: name.to_owned(),
            strip_tabs,
            expand,
        })
    }
}
