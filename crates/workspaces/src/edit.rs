//! Exact search-and-replace edits.
//!
//! Replaces text by text: `old` must occur exactly as often as expected, byte for byte. If it does
//! not, the error tells how often it occurs, and where similar text is.

use memchr::memmem;
use motu_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Most edits of one file at once.
pub const MAX_EDITS: usize = 256;
/// Longest `old` and `new` of one edit.
pub const MAX_EDIT_BYTES: usize = motu_core::limits::PATCH_BYTES.max as usize;
/// Largest file that is edited, and largest that an edit may make.
pub const MAX_EDITED_BYTES: usize = 64 << 20;
/// Places named in an error.
const MAX_PLACES: usize = 5;
/// Bytes shown of a line in an error.
const MAX_SHOWN_BYTES: usize = 200;

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    pub old: String,
    pub new: String,
    /// How often `old` occurs; all of them are replaced.
    #[serde(default = "once")]
    pub count: usize,
}

fn once() -> usize {
    1
}

/// A line that is similar to the searched one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    /// Its first line, from 1.
    pub line: usize,
    pub text: String,
    /// What differs: `whitespace`, `line_endings`, `case` or `later_lines`.
    pub differs_in: &'static str,
}

/// Why an edit was refused. `edit` counts from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("edit {edit}: `old` is empty")]
    EmptyOld { edit: usize },
    #[error("edit {edit}: `old` and `new` are the same")]
    Same { edit: usize },
    #[error("edit {edit}: the expected count is 0")]
    NoCount { edit: usize },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: usize },
    #[error("edit {edit}: `old` does not occur{}", nearest(.near))]
    NotFound { edit: usize, near: Vec<NearMiss> },
    #[error("edit {edit}: `old` occurs {found} times, not {expected} (at lines {})", listed(.lines))]
    Count {
        edit: usize,
        expected: usize,
        found: usize,
        /// The first places, as line numbers from 1.
        lines: Vec<usize>,
    },
}

fn nearest(near: &[NearMiss]) -> String {
    match near {
        [] => String::new(),
        [miss, ..] => format!(
            "; line {} differs only in {}: {:?}",
            miss.line,
            miss.differs_in.replace('_', " "),
            miss.text
        ),
    }
}

fn listed(lines: &[usize]) -> String {
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    lines.join(", ")
}

impl From<EditError> for Error {
    fn from(error: EditError) -> Error {
        let kind = match &error {
            EditError::EmptyOld { .. } | EditError::Same { .. } | EditError::NoCount { .. } => {
                ErrorKind::Invalid
            }
            EditError::Limit { .. } => ErrorKind::Limit,
            EditError::NotFound { .. } | EditError::Count { .. } => ErrorKind::Conflict,
        };
        let border = Error::new(kind, error.to_string());
        match &error {
            EditError::NotFound { edit, near } => border
                .hint("nothing was changed; `old` must be what the file has, byte for byte")
                .details(json!({ "edit": edit, "found": 0, "near": near })),
            EditError::Count {
                edit,
                expected,
                found,
                lines,
            } => border
                .hint("nothing was changed; add lines around `old`, or expect this count")
                .details(json!({
                    "edit": edit, "expected": expected, "found": found, "lines": lines,
                })),
            _ => border,
        }
    }
}

/// Applies edits one after the other; all or none. Gives the new text.
pub fn apply(text: &[u8], edits: &[Edit]) -> Result<Vec<u8>, EditError> {
    if edits.len() > MAX_EDITS {
        return Err(EditError::Limit {
            what: "the number of edits",
            limit: MAX_EDITS,
        });
    }
    let mut text = text.to_vec();
    for (index, edit) in edits.iter().enumerate() {
        check_size(&text)?;
        text = apply_one(&text, edit, index + 1)?;
    }
    check_size(&text)?;
    Ok(text)
}

fn check_size(text: &[u8]) -> Result<(), EditError> {
    if text.len() > MAX_EDITED_BYTES {
        return Err(EditError::Limit {
            what: "an edited file in bytes",
            limit: MAX_EDITED_BYTES,
        });
    }
    Ok(())
}

fn apply_one(text: &[u8], edit: &Edit, number: usize) -> Result<Vec<u8>, EditError> {
    let (old, new) = (edit.old.as_bytes(), edit.new.as_bytes());
    if old.len().max(new.len()) > MAX_EDIT_BYTES {
        return Err(EditError::Limit {
            what: "`old` or `new` in bytes",
            limit: MAX_EDIT_BYTES,
        });
    }
    if old.is_empty() {
        return Err(EditError::EmptyOld { edit: number });
    }
    if edit.count == 0 {
        return Err(EditError::NoCount { edit: number });
    }
    if old == new {
        return Err(EditError::Same { edit: number });
    }
    let places: Vec<usize> = memmem::find_iter(text, old).collect();
    if places.is_empty() {
        return Err(EditError::NotFound {
            edit: number,
            near: near_misses(text, &edit.old),
        });
    }
    if places.len() != edit.count {
        let shown = places.iter().take(MAX_PLACES);
        return Err(EditError::Count {
            edit: number,
            expected: edit.count,
            found: places.len(),
            lines: shown.map(|place| line_of(text, *place)).collect(),
        });
    }
    let size = text.len() - places.len() * old.len();
    let size = size.saturating_add(places.len().saturating_mul(new.len()));
    if size > MAX_EDITED_BYTES {
        return Err(EditError::Limit {
            what: "an edited file in bytes",
            limit: MAX_EDITED_BYTES,
        });
    }
    let mut out = Vec::with_capacity(size);
    let mut done = 0;
    for place in places {
        out.extend_from_slice(&text[done..place]);
        out.extend_from_slice(new);
        done = place + old.len();
    }
    out.extend_from_slice(&text[done..]);
    Ok(out)
}

fn line_of(text: &[u8], place: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text[..place]).count()
}

/// Lines that match `old` if one kind of difference is ignored.
fn near_misses(text: &[u8], old: &str) -> Vec<NearMiss> {
    let text = String::from_utf8_lossy(text);
    let file: Vec<&str> = text.lines().collect();
    let wanted: Vec<&str> = old.trim_matches(['\n', '\r']).lines().collect();
    let Some(first) = wanted.iter().position(|line| !line.trim().is_empty()) else {
        return Vec::new();
    };
    let forgiving: [(&str, Forgive); 4] = [
        ("line_endings", |a, b| {
            a.trim_end_matches('\r') == b.trim_end_matches('\r')
        }),
        ("whitespace", |a, b| {
            a.split_whitespace().eq(b.split_whitespace())
        }),
        ("case", |a, b| {
            a.trim().to_lowercase() == b.trim().to_lowercase()
        }),
        ("later_lines", |a, b| a.trim() == b.trim()),
    ];
    for (differs_in, same) in forgiving {
        let needed = match differs_in {
            "later_lines" => &wanted[first..=first],
            _ => &wanted[..],
        };
        // A fragment of one line is searched inside lines.
        let inside = needed.len() == 1 && differs_in != "later_lines";
        let near: Vec<NearMiss> = file
            .windows(needed.len())
            .enumerate()
            .filter(|(_, lines)| {
                let all = lines.iter().zip(needed).all(|(a, b)| same(a, b));
                all || (inside && contains(lines[0], needed[0], differs_in))
            })
            .take(MAX_PLACES)
            .map(|(at, lines)| NearMiss {
                line: at + 1,
                text: shown(lines[0]),
                differs_in,
            })
            .collect();
        if !near.is_empty() {
            return near;
        }
    }
    Vec::new()
}

type Forgive = fn(&str, &str) -> bool;

fn contains(line: &str, piece: &str, differs_in: &str) -> bool {
    match differs_in {
        "case" => line.to_lowercase().contains(&piece.to_lowercase()),
        "whitespace" => {
            let squeeze = |text: &str| text.split_whitespace().collect::<String>();
            squeeze(line).contains(&squeeze(piece))
        }
        _ => false,
    }
}

fn shown(line: &str) -> String {
    match line.char_indices().find(|(at, _)| *at >= MAX_SHOWN_BYTES) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit {
            old: old.into(),
            new: new.into(),
            count: 1,
        }
    }

    #[test]
    fn edits_follow_each_other() {
        let edits = [edit("one", "two"), edit("two\nthree", "3")];
        assert_eq!(apply(b"one\nthree\n", &edits).unwrap(), b"3\n");
        let twice = Edit {
            count: 2,
            ..edit("a", "bb")
        };
        assert_eq!(apply(b"a-a", &[twice]).unwrap(), b"bb-bb");
    }

    #[test]
    fn a_wrong_count_says_where() {
        let error = apply(b"x\ny\nx\n", &[edit("x", "z")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "edit 1: `old` occurs 2 times, not 1 (at lines 1, 3)"
        );
        let error = Error::from(error);
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert_eq!(error.details["found"], 2);
    }

    #[test]
    fn near_misses_are_named() {
        let near = |text: &str, old: &str| match apply(text.as_bytes(), &[edit(old, "new")]) {
            Err(EditError::NotFound { near, .. }) => {
                near.first().map(|miss| (miss.line, miss.differs_in))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(near("a\n  if x {\n", "\tif x {"), Some((2, "whitespace")));
        assert_eq!(near("a\r\nb\r\n", "a\nb\n"), Some((1, "line_endings")));
        assert_eq!(near("let Foo = 1;\n", "foo = 1"), Some((1, "case")));
        assert_eq!(
            near("q\nfn a() {\n  1\n}\n", "fn a() {\n  2\n}"),
            Some((2, "later_lines"))
        );
        assert_eq!(near("q\n", "fn"), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(
            apply(b"a", &[edit("", "b")]),
            Err(EditError::EmptyOld { edit: 1 })
        );
        assert_eq!(
            apply(b"a", &[edit("a", "a")]),
            Err(EditError::Same { edit: 1 })
        );
        let many = vec![edit("a", "b"); MAX_EDITS + 1];
        assert!(matches!(apply(b"a", &many), Err(EditError::Limit { .. })));
    }

    proptest! {
        #[test]
        fn all_or_nothing_and_no_panic(text in "[ab\n\r ]{0,40}", old in "[ab\n ]{1,4}", new in "[xy]{0,3}") {
            let count = text.matches(&old).count();
            let edits = [Edit { old: old.clone(), new: new.clone(), count }];
            match apply(text.as_bytes(), &edits) {
                Ok(out) => prop_assert_eq!(out, text.replace(&old, &new).into_bytes()),
                Err(_) => prop_assert!(count == 0),
            }
        }
    }
}
