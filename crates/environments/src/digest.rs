//! The content digest of a root filesystem.
//!
//! Owns what identifies a tree: paths, types, permissions, owners, link
//! targets, contents and kept attributes, in path order. Times never count, nor
//! does the order in which entries were seen. It never touches the disk.

use std::{collections::BTreeMap, fmt::Write as _};

use sha2::{Digest as _, Sha256};

/// First line of what is hashed; a new meaning needs a new line.
const HEADER: &[u8] = b"motu tree 1\n";

/// What one path of a tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Directory,
    /// A regular file, by the hash of its bytes.
    File([u8; 32]),
    Symlink(Vec<u8>),
}

/// One path of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub content: Content,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// Extended attributes that survive unpacking.
    pub attributes: BTreeMap<String, Vec<u8>>,
}

/// A tree by path, without leading `./`; the root itself is the empty path.
pub(crate) type Nodes = BTreeMap<Vec<u8>, Node>;

/// The digest in its public form, `sha256:<hex>`.
pub(crate) fn of_nodes(nodes: &Nodes) -> String {
    let mut hash = Sha256::new();
    hash.update(HEADER);
    for (path, node) in nodes {
        field(&mut hash, path);
        let (kind, payload): (u8, &[u8]) = match &node.content {
            Content::Directory => (b'd', &[]),
            Content::File(sum) => (b'f', sum),
            Content::Symlink(target) => (b'l', target),
        };
        hash.update([kind]);
        hash.update(node.mode.to_be_bytes());
        hash.update(node.uid.to_be_bytes());
        hash.update(node.gid.to_be_bytes());
        field(&mut hash, payload);
        hash.update((node.attributes.len() as u64).to_be_bytes());
        for (key, value) in &node.attributes {
            field(&mut hash, key.as_bytes());
            field(&mut hash, value);
        }
    }
    format!("sha256:{}", hex(&hash.finalize()))
}

/// A length before each field keeps different trees from hashing alike.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

/// Whether `digest` has the public form.
pub(crate) fn is_valid(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32, sum: u8) -> Node {
        Node {
            content: Content::File([sum; 32]),
            mode,
            uid: 0,
            gid: 0,
            attributes: BTreeMap::new(),
        }
    }

    #[test]
    fn every_kept_property_counts() {
        let base = Nodes::from([(b"a".to_vec(), file(0o644, 1))]);
        let digest = of_nodes(&base);
        assert!(is_valid(&digest), "{digest}");
        let changes: [fn(&mut Node); 5] = [
            |node| node.mode = 0o4644,
            |node| node.uid = 1,
            |node| node.gid = 1,
            |node| node.content = Content::File([2; 32]),
            |node| {
                drop(
                    node.attributes
                        .insert("security.capability".into(), vec![1]),
                )
            },
        ];
        for change in changes {
            let mut nodes = base.clone();
            change(nodes.get_mut(b"a".as_slice()).unwrap());
            assert_ne!(of_nodes(&nodes), digest);
        }
        let renamed = Nodes::from([(b"b".to_vec(), file(0o644, 1))]);
        assert_ne!(of_nodes(&renamed), digest);
    }

    #[test]
    fn the_form_is_checked() {
        assert!(!is_valid("sha256:xyz"));
        assert!(!is_valid(&format!("sha256:{}", "A".repeat(64))));
        assert!(!is_valid(&"a".repeat(64)));
    }
}
