//! A patch and the file it is for may say anything: the result is new contents
//! within the limits or a refusal; every path stays where it is; never a panic.

use motu_workspaces::{
    edit::{self, Edit},
    patch::{self, Action, Patch},
};

pub fn text_patch(data: &[u8]) {
    // The file comes first, and a zero byte ends it.
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let text = parts.next().unwrap_or_default();
    if let Ok(parsed) = Patch::parse(text) {
        for path in parsed.paths() {
            for part in path.as_bytes().split(|byte| *byte == b'/') {
                assert!(!matches!(part, b"" | b"." | b".."));
                assert!(!part.contains(&0));
            }
        }
        if let Ok(applied) = patch::apply(&parsed, |_| Some(file.to_vec())) {
            for change in applied.changes {
                if let Action::Write { contents, .. } = change.action {
                    assert!(contents.len() <= patch::MAX_PATCHED_BYTES);
                }
            }
        }
        let _ = patch::apply(&parsed, |_| None);
    }
    let mut words = text.splitn(2, |byte| *byte == b'\n');
    let mut word = || String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
    let (old, new) = (word(), word());
    let _ = edit::apply(file, &[Edit { old, new, count: 1 }]);
}
