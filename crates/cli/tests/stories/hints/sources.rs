//! The sources of the workspace, parsed just enough to find hints.

use std::path::{Path, PathBuf};

/// One source file without its tests.
pub struct Source {
    /// Relative to `crates/`.
    pub path: String,
    pub text: String,
}

/// A string literal, and the name of the function it is the first argument of, if any.
pub struct Literal {
    pub before: String,
    pub text: String,
}

/// Every source file of the crates, without tests.
pub fn all() -> Vec<Source> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut waiting = vec![crates.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).expect("sources can be read") {
            let path = entry.expect("sources can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let tests = ["tests", "testkit", "examples", "benches"].contains(&name.as_ref());
            if path.is_dir() && !tests {
                waiting.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                found.push(source(&crates, path));
            }
        }
    }
    assert!(found.len() > 300, "{} files", found.len());
    found
}

fn source(crates: &Path, path: PathBuf) -> Source {
    let text = std::fs::read_to_string(&path).expect("sources are text");
    let own = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    Source {
        path: path
            .strip_prefix(crates)
            .expect("it is below")
            .display()
            .to_string(),
        text: own.to_string(),
    }
}

/// The string literals of a source, without those in comments.
pub fn literals(source: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut before = String::new();
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, next)| next);
        } else if let Some((text, next)) = raw(rest).or_else(|| quoted(rest)) {
            let name = before.trim_end_matches('(').rsplit(|c: char| !is_word(c));
            found.push(Literal {
                before: name.take(1).filter(|_| before.ends_with('(')).collect(),
                text,
            });
            rest = next;
            before.clear();
        } else if let Some(next) = character(rest) {
            rest = next;
        } else {
            before.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `"text"`, with line continuations resolved.
fn quoted(rest: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = rest.strip_prefix('"')?.chars();
    loop {
        match rest.next()? {
            '"' => return Some((text, rest.as_str())),
            '\\' => match rest.next()? {
                '\n' => rest = rest.as_str().trim_start().chars(),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

fn raw(rest: &str) -> Option<(String, &str)> {
    let inner = rest.strip_prefix('r')?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let inner = inner[hashes..].strip_prefix('"')?;
    let (text, next) = inner.split_once(&format!("\"{}", "#".repeat(hashes)))?;
    Some((text.to_string(), next))
}

/// `'"'`: a quote in a character literal begins no string.
fn character(rest: &str) -> Option<&str> {
    let inner = rest.strip_prefix('\'')?;
    let inner = inner.strip_prefix('\\').unwrap_or(inner);
    let mut chars = inner.chars();
    chars.next()?;
    chars.as_str().strip_prefix('\'')
}

/// A step of a hint in the source: `verb("stop_service").with("id", …)`.
#[derive(Debug)]
pub struct Step {
    pub name: String,
    /// The method calls that follow: name, and first argument if it is a string literal.
    pub then: Vec<(String, Option<String>)>,
}

/// Every call of a function that creates a step.
pub fn steps(source: &str, function: &str) -> Vec<Step> {
    let call = format!("{function}(\"");
    let mut found = Vec::new();
    for (at, _) in source.match_indices(&call) {
        let before = source[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == '.') {
            continue;
        }
        let Some((name, rest)) = quoted(&source[at + function.len() + 1..]) else {
            continue;
        };
        let mut rest = after(rest);
        let mut then = Vec::new();
        while let Some(chained) = rest.trim_start().strip_prefix('.') {
            let Some((method, arguments)) = chained.split_once('(') else {
                break;
            };
            if !["with", "is", "of"].contains(&method) {
                break;
            }
            let first = quoted(arguments.trim_start()).map(|(text, _)| text);
            then.push((method.to_string(), first));
            rest = after(arguments);
        }
        found.push(Step { name, then });
    }
    found
}

/// The text after the closing bracket of a call.
fn after(mut rest: &str) -> &str {
    let mut depth = 0;
    while let Some(first) = rest.chars().next() {
        if let Some((_, next)) = quoted(rest) {
            rest = next;
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '(' => depth += 1,
            ')' if depth == 0 => return rest,
            ')' => depth -= 1,
            _ => {}
        }
    }
    rest
}

#[test]
fn texts_are_told_from_what_is_around_them() {
    let source = r###"
        // "a comment"
        let one = host("motu serve"); let quote = '"'; let two = r#"a "b""#;
        let three = "long \
                     line";
    "###;
    let found = literals(source);
    let texts: Vec<_> = found.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, ["motu serve", "a \"b\"", "long line"]);
    assert_eq!(found[0].before, "host");
    assert_eq!(found[1].before, "");
}

#[test]
fn steps_are_found_with_their_arguments() {
    let source = r#"hint![verb("stop").with("id", id.as_str()).with("name", f("x)")), " y",
        field("keep").is(true).of("create")]; self.verb("other"); my_verb("none")"#;
    let verbs = steps(source, "verb");
    assert_eq!(verbs.len(), 1, "{verbs:?}");
    assert_eq!(verbs[0].name, "stop");
    let names: Vec<_> = verbs[0]
        .then
        .iter()
        .filter_map(|(_, one)| one.as_deref())
        .collect();
    assert_eq!(names, ["id", "name"]);
    let fields = steps(source, "field");
    assert_eq!(
        fields[0].then[1],
        ("of".to_string(), Some("create".to_string()))
    );
}
