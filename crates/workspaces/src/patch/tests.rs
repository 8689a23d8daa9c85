use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Applies `patch` to files given as pairs; a deleted file is `None` in the result.
fn run(
    files: &[(&str, &str)],
    patch: &str,
) -> Result<BTreeMap<String, Option<String>>, PatchError> {
    let files: BTreeMap<_, _> = files.iter().copied().collect();
    let patch = Patch::parse(patch.as_bytes())?;
    let read = |path: &WorkspacePath| {
        let text = files.get(path.to_string().as_str());
        text.map(|text| text.as_bytes().to_vec())
    };
    let applied = apply(&patch, read)?;
    let changes = applied.changes.into_iter().map(|change| {
        let contents = match change.action {
            Action::Delete => None,
            Action::Write { contents, .. } => Some(String::from_utf8(contents).unwrap()),
        };
        (change.path.to_string(), contents)
    });
    Ok(changes.collect())
}

/// The single file written.
fn one(old: &str, patch: &str) -> String {
    let changed = run(&[("f", old)], patch).unwrap();
    assert_eq!(changed.len(), 1, "{changed:?}");
    changed.into_values().next().flatten().unwrap()
}

#[test]
fn git_and_plain_headers_name_the_same_file() {
    let hunk = "@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    for names in [
        "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n",
        "--- a/f\n+++ b/f\n",
        "--- f\t2026-01-01 00:00:00 +0000\n+++ f\t2026-01-02 00:00:00 +0000\n",
        "--- old/f\n+++ new/f\n",
        "--- f.orig\n+++ f\n",
        "--- /workspace/f\n+++ /workspace/f\n",
        "--- a//workspace/f\n+++ b//workspace/f\n",
        "--- \"a/\\146\"\n+++ \"b/f\"\n",
        "diff --git i/f w/f\n--- i/f\n+++ w/f\n",
        "Some prose.\n\n--- a/f\r\n+++ b/f\r\n",
    ] {
        assert_eq!(
            one("a\nb\n", &format!("{names}{hunk}")),
            "a\nc\n",
            "{names}"
        );
    }
}

#[test]
fn files_are_added_deleted_renamed_and_copied() {
    let patch = "\
diff --git a/new.txt b/new.txt
new file mode 100755
--- /dev/null
+++ b/new.txt
@@ -0,0 +1,2 @@
+one
+two
\\ No newline at end of file
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/from here b/to there
similarity index 90%
rename from from here
rename to to there
--- a/from here\t
+++ b/to there\t
@@ -1,2 +1,2 @@
 k
-l
+m
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
diff --git a/c b/d
copy from c
copy to d
";
    let changed = run(
        &[("gone", "x\n"), ("from here", "k\nl\n"), ("c", "c\n")],
        patch,
    )
    .unwrap();
    let text = |name: &str| changed[name].as_deref();
    assert_eq!(text("new.txt"), Some("one\ntwo"));
    assert_eq!(text("gone"), None);
    assert_eq!(text("from here"), None);
    assert_eq!(text("to there"), Some("k\nm\n"));
    assert_eq!(text("empty"), Some(""));
    assert_eq!(text("d"), Some("c\n"));
    assert_eq!(changed.len(), 6);
}

#[test]
fn modes_are_passed_on() {
    let patch = Patch::parse(b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n").unwrap();
    let applied = apply(&patch, |_| Some(b"x".to_vec())).unwrap();
    assert!(matches!(
        &applied.changes[0].action,
        Action::Write { mode: Some(0o755), contents, created: false, .. } if contents == b"x"
    ));
}

#[test]
fn hunks_are_found_nearby_and_in_order() {
    let old: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    let patch = "--- a/f\n+++ b/f\n@@ -5,3 +5,3 @@\n line 15\n-line 16\n+LINE 16\n line 17\n\
                 @@ -20,2 +20,1 @@\n line 30\n-line 31\n";
    let new = one(&old, patch);
    assert!(new.contains("LINE 16\n") && !new.contains("line 31\n"));
    // The second hunk may not match before the first.
    let patch = "--- a/f\n+++ b/f\n@@ -15,2 +15,1 @@\n line 15\n-line 16\n\
                 @@ -20,2 +20,1 @@\n line 3\n-line 4\n";
    assert!(matches!(
        run(&[("f", &old)], patch),
        Err(PatchError::Mismatch(_))
    ));
}

#[test]
fn a_mismatch_says_what_stands_where() {
    let old = "fn a() {\n    one();\n    two();\n}\n";
    let patch =
        "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n fn a() {\n-    uno();\n+    eins();\n     two();\n";
    let Err(PatchError::Mismatch(mismatch)) = run(&[("f", old)], patch) else {
        panic!("it applied");
    };
    assert_eq!(
        mismatch.to_string(),
        "f: hunk 1 (line 3 of the patch) does not match at line 1: expected \"    uno();\", \
         found \"    one();\" at line 2; closest is line 1, where 2 of 3 lines agree"
    );
    let error = motu_core::Error::from(PatchError::Mismatch(mismatch));
    assert_eq!(error.kind, motu_core::ErrorKind::Conflict);
    assert_eq!(error.details["found"][1], "    one();");
}

#[test]
fn one_bad_file_stops_all() {
    let patch = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(
        run(&[("f", "a\n")], patch),
        Err(PatchError::Missing {
            path: WorkspacePath::parse(b"g").unwrap()
        })
    );
}

#[test]
fn wrong_counts_are_put_right_but_lost_lines_are_not() {
    let body = " a\n-b\n+c\n+d\n";
    for header in ["@@ -1,9 +1,9 @@", "@@ -1 +1 @@", "@@ -1,2 +1,2 @@ fn x()"] {
        let patch = format!("--- a/f\n+++ b/f\n{header}\n{body}");
        assert_eq!(one("a\nb\n", &patch), "a\nc\nd\n", "{header}");
    }
    let slip = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+c\ncontext without a space\n";
    assert!(matches!(
        Patch::parse(slip.as_bytes()),
        Err(PatchError::Malformed { line: 7, .. })
    ));
}

#[test]
fn a_mail_has_a_signature_and_a_hunk_has_dashes() {
    let mail = "From 1\nSubject: x\n\n---\n f | 2 +-\n\n--- a/f\n+++ b/f\n@@ -1,2 +1,1 @@\n a\n-b\n-- \n2.39.2\n\n";
    assert_eq!(one("a\nb\n", mail), "a\n");
    let dashes = "--- a/f\n+++ b/f\n@@ -1,3 +1,1 @@\n a\n--- b\n--\n";
    assert_eq!(one("a\n-- b\n-\n", dashes), "a\n");
}

#[test]
fn line_endings_are_kept() {
    let patch = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    assert_eq!(one("a\r\nb\r\n", patch), "a\r\nc\r\n");
    let crlf = patch.replace('\n', "\r\n");
    assert_eq!(one("a\nb\n", &crlf), "a\nc\n");
    assert_eq!(one("a\r\nb\r\n", &crlf), "a\r\nc\r\n");
    let mixed = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\r\n-b\n+c\n";
    assert_eq!(one("a\r\nb\n", mixed), "a\r\nc\n");
}

#[test]
fn an_end_without_newline_counts() {
    let patch = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
    assert_eq!(one("a", patch), "a\n");
    assert!(run(&[("f", "a\n")], patch).is_err());
    // A missing newline at the end of the patch is added.
    assert_eq!(one("a\n", "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b"), "b\n");
}

#[test]
fn what_is_no_text_or_leaves_is_refused() {
    let hunk = "@@ -1 +1 @@\n-a\n+b\n";
    for (patch, wanted) in [
        ("", "no file in it"),
        ("hello\n", "no file in it"),
        ("@@ -1 +1 @@\n-a\n+b\n", "before any file header"),
        (
            &format!("--- /etc/passwd\n+++ /etc/passwd\n{hunk}"),
            "absolute",
        ),
        (&format!("--- a/../x\n+++ b/../x\n{hunk}"), "`..`"),
        (
            "diff --git a/i b/i\nGIT binary patch\nliteral 3\n",
            "binary",
        ),
        (
            "diff --git a/i b/i\nBinary files a/i and b/i differ\n",
            "binary",
        ),
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n",
            "symbolic link",
        ),
        ("--- a/f\n+++ b/f\n", "no hunk follows"),
        (
            "--- a/f\n+++ b/f\n@@ nonsense @@\n-a\n",
            "a hunk begins with",
        ),
        (
            "--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+a\n",
            "neither side",
        ),
    ] {
        let error = Patch::parse(patch.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{patch:?}: {error}");
    }
    let long = vec![b'x'; MAX_PATCH_BYTES + 1];
    assert!(matches!(Patch::parse(&long), Err(PatchError::Limit { .. })));
}

#[test]
fn existing_files_are_not_created_and_deletes_are_whole() {
    let create = "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n";
    assert!(matches!(
        run(&[("f", "")], create),
        Err(PatchError::Exists { .. })
    ));
    let delete = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n";
    assert!(matches!(
        run(&[("f", "a\nb\n")], delete),
        Err(PatchError::NotEmptied { lines: 1, .. })
    ));
    // `diff -N` marks a missing file by its time.
    let epoch = "--- f\t1970-01-01 00:00:00.000000000 +0000\n+++ f\t2026-01-01 00:00:00 +0000\n@@ -0,0 +1 @@\n+a\n";
    assert_eq!(run(&[], epoch).unwrap()["f"].as_deref(), Some("a\n"));
}

#[test]
fn a_hostile_search_ends() {
    let same = "x\n".repeat(200_000);
    let mut patch = "--- a/f\n+++ b/f\n".to_owned();
    patch.push_str("@@ -1,100001 +1,100000 @@\n");
    patch.push_str(&" x\n".repeat(100_000));
    patch.push_str("-y\n");
    assert!(matches!(
        run(&[("f", &same)], &patch),
        Err(PatchError::Limit { .. })
    ));
}

proptest! {
    #[test]
    fn nothing_panics(text in "([-+ @ab\n\\\\]|--- |\\+\\+\\+ |@@ -1 \\+1 @@\n|diff --git a b\n|rename to ){0,60}") {
        if let Ok(patch) = Patch::parse(text.as_bytes()) {
            let _ = apply(&patch, |_| Some(b"a\nb\n".to_vec()));
        }
    }

    #[test]
    fn names_survive_quoting(name in prop::collection::vec(1u8..=255, 1..30)) {
        let name: Vec<u8> = name.into_iter().filter(|byte| *byte != b'/').collect();
        prop_assume!(!name.is_empty() && name != b"." && name != b"..");
        let header = [b"--- ".as_slice(), &quoted(&[b"a/", name.as_slice()].concat()),
            b"\t\n+++ ", &quoted(&[b"b/", name.as_slice()].concat()),
            b"\t\n@@ -1 +1 @@\n-a\n+b\n"].concat();
        let patch = Patch::parse(&header).unwrap();
        prop_assert_eq!(patch.files[0].operation.path().as_bytes(), name.as_slice());
    }
}
