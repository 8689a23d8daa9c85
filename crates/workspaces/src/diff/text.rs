//! The unified diff of two texts.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

use crate::patch::{lines, quoted};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;
/// Time limit of the diff of one file; after it the diff is still correct, but not minimal.
const MAX_DIFF_TIME: Duration = Duration::from_millis(500);
/// Bytes searched for a NUL, as in git.
const SNIFFED_BYTES: usize = 8000;

/// Two texts compared.
#[derive(Debug, Default)]
pub(super) struct TextDiff {
    pub hunks: String,
    pub added: usize,
    pub removed: usize,
}

/// Whether contents are not text: a NUL near the start, or invalid UTF-8.
pub fn is_binary(contents: &[u8]) -> bool {
    contents[..contents.len().min(SNIFFED_BYTES)].contains(&0)
        || std::str::from_utf8(contents).is_err()
}

/// Hunks that turn `old` into `new`. Both must be text.
pub(super) fn compare(old: &str, new: &str) -> TextDiff {
    let (old, new) = (lines(old.as_bytes()), lines(new.as_bytes()));
    let deadline = Instant::now() + MAX_DIFF_TIME;
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline));
    let mut diff = TextDiff::default();
    for group in group_diff_ops(ops, CONTEXT_LINES) {
        diff.hunk(&group, &old, &new);
    }
    diff
}

impl TextDiff {
    fn hunk(&mut self, group: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return;
        };
        if group.iter().all(|op| matches!(op, DiffOp::Equal { .. })) {
            return;
        }
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let header = format!("@@ -{} +{} @@\n", range(&old_range), range(&new_range));
        self.hunks.push_str(&header);
        for op in group {
            if let DiffOp::Equal { .. } = op {
                for line in &old[op.old_range()] {
                    self.line(' ', line);
                }
                continue;
            }
            for line in &old[op.old_range()] {
                self.line('-', line);
                self.removed += 1;
            }
            for line in &new[op.new_range()] {
                self.line('+', line);
                self.added += 1;
            }
        }
    }

    fn line(&mut self, sign: char, line: &[u8]) {
        self.hunks.push(sign);
        self.hunks.push_str(&String::from_utf8_lossy(line));
        if !line.ends_with(b"\n") {
            self.hunks.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// A range in a hunk header: an empty one names the line before it.
fn range(range: &std::ops::Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    }
}

/// The headers of a file before its hunks. Modes are those of `stat`; `None` on the side without a
/// file.
pub(super) fn headers(
    path: &[u8],
    old_mode: Option<u32>,
    new_mode: Option<u32>,
    has_hunks: bool,
) -> String {
    let name = |prefix: &str| quoted(&[prefix.as_bytes(), path].concat());
    let name = |prefix| String::from_utf8_lossy(&name(prefix)).into_owned();
    let (a, b) = (name("a/"), name("b/"));
    let mut out = format!("diff --git {a} {b}\n");
    match (old_mode, new_mode) {
        (None, Some(mode)) => out += &format!("new file mode 100{:03o}\n", mode & 0o777),
        (Some(mode), None) => out += &format!("deleted file mode 100{:03o}\n", mode & 0o777),
        (Some(old), Some(new)) if (old ^ new) & 0o777 != 0 => {
            out += &format!("old mode 100{:03o}\n", old & 0o777);
            out += &format!("new mode 100{:03o}\n", new & 0o777);
        }
        _ => {}
    }
    if has_hunks {
        // A tab ends a name with spaces; without it, readers would take the rest for a timestamp.
        let end = |name: &str| if name.contains(' ') { "\t\n" } else { "\n" };
        let side = |mode: Option<u32>, name: &str| match mode {
            Some(_) => format!("{name}{}", end(name)),
            None => "/dev/null\n".to_owned(),
        };
        out += &format!("--- {}+++ {}", side(old_mode, &a), side(new_mode, &b));
    }
    out
}
