//! The content digest of a root filesystem.
//!
//! Defines the identity of a tree: paths, types, permissions, owners, link targets, contents and
//! kept attributes, sorted by path. Times and the order of entries do not count. It never touches
//! the disk.

use std::{collections::BTreeMap, fmt::Write as _};

use sha2::{Digest as _, Sha256};

/// First line of the hashed text; a new meaning needs a new line.
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
    describe(nodes, &mut |bytes| hash.update(bytes));
    format!("sha256:{}", hex(&hash.finalize()))
}

/// The text that is hashed.
pub(crate) fn encode(nodes: &Nodes) -> Vec<u8> {
    let mut text = Vec::new();
    describe(nodes, &mut |bytes| text.extend_from_slice(bytes));
    text
}

fn describe(nodes: &Nodes, put: &mut dyn FnMut(&[u8])) {
    put(HEADER);
    for (path, node) in nodes {
        field(put, path);
        let (kind, payload): (u8, &[u8]) = match &node.content {
            Content::Directory => (b'd', &[]),
            Content::File(sum) => (b'f', sum),
            Content::Symlink(target) => (b'l', target),
        };
        put(&[kind]);
        put(&node.mode.to_be_bytes());
        put(&node.uid.to_be_bytes());
        put(&node.gid.to_be_bytes());
        field(put, payload);
        put(&(node.attributes.len() as u64).to_be_bytes());
        for (key, value) in &node.attributes {
            field(put, key.as_bytes());
            field(put, value);
        }
    }
}

/// Each field is preceded by its length, so that different trees cannot encode alike.
fn field(put: &mut dyn FnMut(&[u8]), bytes: &[u8]) {
    put(&(bytes.len() as u64).to_be_bytes());
    put(bytes);
}

/// Parses the result of [`encode`]; `None` if it is invalid.
pub(crate) fn decode(text: &[u8]) -> Option<Nodes> {
    let mut rest = Rest(text.strip_prefix(HEADER)?);
    let mut nodes = Nodes::new();
    while !rest.0.is_empty() {
        let path = rest.field()?.to_vec();
        let kind = rest.take(1)?[0];
        let mode = u32::from_be_bytes(rest.take(4)?.try_into().ok()?);
        let (uid, gid) = (rest.number()?, rest.number()?);
        let payload = rest.field()?;
        let content = match kind {
            b'd' => Content::Directory,
            b'f' => Content::File(payload.try_into().ok()?),
            b'l' => Content::Symlink(payload.to_vec()),
            _ => return None,
        };
        let mut attributes = BTreeMap::new();
        for _ in 0..rest.number()? {
            let key = std::str::from_utf8(rest.field()?).ok()?.to_owned();
            attributes.insert(key, rest.field()?.to_vec());
        }
        let node = Node {
            content,
            mode,
            uid,
            gid,
            attributes,
        };
        nodes.insert(path, node);
    }
    Some(nodes)
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn field(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }
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
    fn a_tree_is_read_back_from_what_is_hashed() {
        let mut nodes = Nodes::from([(b"a".to_vec(), file(0o644, 1))]);
        nodes.insert(
            b"l".to_vec(),
            Node {
                content: Content::Symlink(b"a".to_vec()),
                attributes: BTreeMap::from([("user.x".to_owned(), vec![1, 2])]),
                ..file(0o777, 0)
            },
        );
        let text = encode(&nodes);
        assert_eq!(decode(&text).as_ref(), Some(&nodes));
        assert_eq!(
            format!("sha256:{}", hex(&Sha256::digest(&text))),
            of_nodes(&nodes)
        );
        for end in HEADER.len() + 1..text.len() {
            let part = decode(&text[..end]);
            assert!(part.is_none_or(|part| part.len() < nodes.len()), "{end}");
        }
    }

    #[test]
    fn the_form_is_checked() {
        assert!(!is_valid("sha256:xyz"));
        assert!(!is_valid(&format!("sha256:{}", "A".repeat(64))));
        assert!(!is_valid(&"a".repeat(64)));
    }
}
