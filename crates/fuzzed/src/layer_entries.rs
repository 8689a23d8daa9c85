//! Layers may say anything: what is left is a tree, inside its root, with a
//! directory above every path; or a refusal; never a panic.

use motu_environments::{Decision, EntryKind, decide, merge_entries};
use std::collections::BTreeMap;

const KINDS: [EntryKind; 7] = [
    EntryKind::File,
    EntryKind::Directory,
    EntryKind::Symlink,
    EntryKind::HardLink,
    EntryKind::Device,
    EntryKind::Pipe,
    EntryKind::Other,
];

pub fn layer_entries(data: &[u8]) {
    // Entries are lines, layers are separated by empty ones; the first byte of
    // a line is the kind, and a tab comes before the link.
    let mut layers = vec![Vec::new()];
    for line in data.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else {
            layers.push(Vec::new());
            continue;
        };
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        let mut parts = rest.splitn(2, |byte| *byte == b'\t');
        let path = parts.next().unwrap_or_default().to_vec();
        let link = parts.next().unwrap_or_default().to_vec();
        if let Decision::Keep(path) | Decision::Whiteout(path) | Decision::Link { path, .. } =
            decide(&path, kind, &link)
        {
            check(&path);
        }
        if let Some(layer) = layers.last_mut() {
            layer.push((path, kind, link));
        }
    }
    let Ok(left) = merge_entries(&layers) else {
        return;
    };
    let tree: BTreeMap<_, _> = left.into_iter().collect();
    for path in tree.keys() {
        check(path);
        if let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
            assert_eq!(tree.get(&path[..at]), Some(&true));
        }
    }
}

/// A path that stays where it is: relative, and made of names.
fn check(path: &[u8]) {
    assert!(!path.is_empty());
    for part in path.split(|byte| *byte == b'/') {
        assert!(!matches!(part, b"" | b"." | b".."));
        assert!(!part.contains(&0));
    }
}
