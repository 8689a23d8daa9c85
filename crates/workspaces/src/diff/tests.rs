use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    WorkspacePath,
    patch::{self, Action, Patch},
};

fn facts(mode: u32, size: usize) -> Facts {
    Facts {
        mode,
        size: size as u64,
        ..Facts::default()
    }
}

fn file(contents: &[u8]) -> Facts {
    facts(0o100_644, contents.len())
}

fn entry(path: &[u8], before: Option<Facts>, after: Option<Facts>) -> ChangedEntry {
    ChangedEntry {
        path: path.to_vec().into(),
        before,
        after,
    }
}

/// The report about files with these contents before and after.
fn report(files: &[(&str, Option<&str>, Option<&str>)], max: usize) -> Report {
    let mut builder = Builder::new(max);
    for (path, before, after) in files {
        let (old, new) = (before.map(str::as_bytes), after.map(str::as_bytes));
        let entry = entry(path.as_bytes(), old.map(file), new.map(file));
        let wants = builder.wants(&entry);
        builder.push(
            &entry,
            old.filter(|_| wants.before),
            new.filter(|_| wants.after),
        );
    }
    builder.finish()
}

#[test]
fn a_report_reads_like_git() {
    let report = report(
        &[
            (
                "a b",
                Some("1\n2\n3\n4\n5\n6\n7\n8\n"),
                Some("1\n2\n3\n4\nfive\n6\n7\n8"),
            ),
            ("gone", Some("x\n"), None),
            ("new", None, Some("")),
            ("same", Some("x\n"), Some("x\n")),
        ],
        MAX_REPORT_BYTES,
    );
    assert_eq!(
        report.patch(),
        "diff --git a/a b b/a b\n--- a/a b\t\n+++ b/a b\t\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n \
         6\n 7\n-8\n+8\n\\ No newline at end of file\n\
         diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
         diff --git a/new b/new\nnew file mode 100644\n"
    );
    assert_eq!(
        report.totals,
        Totals {
            added: 1,
            modified: 1,
            deleted: 1,
            added_lines: 2,
            removed_lines: 3,
            ..Totals::default()
        }
    );
    assert!(!report.truncated);
}

#[test]
fn every_kind_of_change_has_its_word() {
    let link = |target: &str| Facts {
        mode: 0o120_777,
        symlink_target: target.to_owned().into(),
        ..Facts::default()
    };
    let directory = || facts(0o040_755, 4096);
    let cases = [
        (None, Some(directory()), Some(Status::Added)),
        (Some(directory()), None, Some(Status::Deleted)),
        (Some(directory()), Some(facts(0o040_755, 8192)), None),
        (
            Some(directory()),
            Some(facts(0o040_700, 0)),
            Some(Status::ModeChanged),
        ),
        (Some(link("a")), Some(link("b")), Some(Status::Modified)),
        (Some(link("a")), Some(link("a")), None),
        (Some(file(b"")), Some(link("a")), Some(Status::TypeChanged)),
        (
            Some(file(b"")),
            Some(facts(0o100_755, 0)),
            Some(Status::ModeChanged),
        ),
    ];
    for (before, after, status) in cases {
        let mut builder = Builder::new(MAX_REPORT_BYTES);
        let entry = entry(b"p", before, after);
        let wants = builder.wants(&entry);
        builder.push(
            &entry,
            wants.before.then_some(b""),
            wants.after.then_some(b""),
        );
        let report = builder.finish();
        assert_eq!(
            report.entries.first().map(|entry| entry.status),
            status,
            "{entry:?}"
        );
    }
}

#[test]
fn binary_files_have_no_patch() {
    let mut builder = Builder::new(MAX_REPORT_BYTES);
    for contents in [&b"a\0b"[..], b"\xff\xfe"] {
        builder.push(
            &entry(b"p", None, Some(file(contents))),
            None,
            Some(contents),
        );
    }
    let report = builder.finish();
    assert!(
        report
            .entries
            .iter()
            .all(|entry| entry.binary && entry.patch.is_none())
    );
}

#[test]
fn a_full_report_says_so_and_asks_for_nothing_more() {
    let long = "line\n".repeat(1000);
    let files = [
        ("a", None, Some(long.as_str())),
        ("b", None, Some("b\n")),
        ("c", Some("c\n"), None),
    ];
    let report = report(&files, 1000);
    assert!(report.truncated);
    assert!(
        report
            .entries
            .iter()
            .all(|entry| entry.truncated && entry.patch.is_none())
    );
    assert_eq!((report.totals.added, report.totals.deleted), (2, 1));
    let huge = entry(b"h", None, Some(facts(0o100_644, 5 << 20)));
    assert_eq!(Builder::new(10).wants(&huge), Wants::default());
}

/// Texts that share lines, end with and without newlines, and mix line endings.
fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::weighted(
        0.9,
        "((a|b|c|-- d|\\+\\+\\+ e|@@ -1 \\+1 @@|\\\\ No|)(\n|\r\n)){0,12}(a|b)?",
    )
}

/// Names with every character that a header has to escape.
fn name() -> impl Strategy<Value = String> {
    "[ab /\t\"\\\\é\n.]{1,8}".prop_filter("a path", |name| {
        WorkspacePath::parse(name.as_bytes()).is_ok_and(|path| path.as_bytes() == name.as_bytes())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_report_applies_back(files in prop::collection::btree_map(name(), (text(), text(), any::<bool>()), 1..4)) {
        let mut builder = Builder::new(MAX_REPORT_BYTES);
        for (path, (old, new, executable)) in &files {
            let mode = if *executable { 0o100_755 } else { 0o100_644 };
            let old_facts = old.as_ref().map(|text| file(text.as_bytes()));
            let new_facts = new.as_ref().map(|text| facts(mode, text.len()));
            let entry = entry(path.as_bytes(), old_facts, new_facts);
            builder.push(&entry, old.as_deref().map(str::as_bytes), new.as_deref().map(str::as_bytes));
        }
        let report = builder.finish();
        let wanted: BTreeMap<_, _> = files.iter()
            .filter(|(_, (old, new, executable))| old != new || (*executable && new.is_some()))
            .map(|(path, (_, new, _))| (path.clone(), new.clone()))
            .collect();
        prop_assert_eq!(report.is_empty(), wanted.is_empty());
        if report.is_empty() {
            return Ok(());
        }
        let patch = report.patch();
        let parsed = Patch::parse(patch.as_bytes());
        let parsed = parsed.map_err(|error| TestCaseError::fail(format!("{error}\n{patch}")))?;
        let applied = patch::apply(&parsed, |path| {
            files[&path.to_string()].0.clone().map(String::into_bytes)
        });
        let applied = applied.map_err(|error| TestCaseError::fail(format!("{error}\n{patch}")))?;
        let got: BTreeMap<_, _> = applied.changes.into_iter().map(|change| {
            let text = match change.action {
                Action::Delete => None,
                Action::Write { contents, mode, created, .. } => {
                    let (_, _, executable) = files[&change.path.to_string()];
                    let asked = if executable { Some(0o755) } else { created.then_some(0o644) };
                    assert_eq!(mode, asked);
                    Some(String::from_utf8(contents).unwrap())
                }
            };
            (change.path.to_string(), text)
        }).collect();
        prop_assert_eq!(got, wanted);
    }
}
