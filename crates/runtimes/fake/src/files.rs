//! The in-memory file tree of a fake machine.
//!
//! Paths are normalised bytes; the whole tree is one ordered map, so listing
//! and globbing are walks over it. There are no links, owners or quotas.

use crate::answer::Failed;
use crate::pattern;
use bytes::Bytes;
use motu_link::message::{Entries, Entry, Failure, FileType, Version};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Entries in a page when the request names no number.
const PAGE: usize = 1000;

#[derive(Clone, Debug)]
struct Node {
    /// `None` for a directory.
    content: Option<Bytes>,
    mode: u32,
    modified_unix_ms: i64,
}

/// How a file is put into the tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Put {
    pub mode: u32,
    pub parents: bool,
    pub append: bool,
    pub create_new: bool,
    pub expected: Option<Version>,
}

#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<Vec<u8>, Node>,
}

impl Tree {
    /// A tree with the directories every machine has.
    pub fn new() -> Tree {
        let mut nodes = BTreeMap::new();
        for path in ["/", "/bin", "/etc", "/tmp", "/workspace"] {
            nodes.insert(path.as_bytes().to_vec(), Node::directory(0o755));
        }
        Tree { nodes }
    }

    pub fn is_directory(&self, path: &[u8]) -> bool {
        self.nodes
            .get(&normal(path))
            .is_some_and(|node| node.content.is_none())
    }

    pub fn stat(&self, path: &[u8]) -> Result<Entry, Failed> {
        let path = normal(path);
        let node = self.node(&path)?;
        Ok(entry(&path, node))
    }

    pub fn read(&self, path: &[u8]) -> Result<(Entry, Bytes), Failed> {
        let path = normal(path);
        let node = self.node(&path)?;
        let content = node.content.clone().ok_or_else(|| is_directory(&path))?;
        Ok((entry(&path, node), content))
    }

    pub fn put(&mut self, path: &[u8], content: Bytes, how: Put) -> Result<Entry, Failed> {
        let path = normal(path);
        self.make_parent(&path, how.parents)?;
        let found = self
            .nodes
            .get(&path)
            .map(|node| entry(&path, node).version());
        if how.expected.is_some() && how.expected != found {
            return Err(exists(&path));
        }
        let mut node = match self.nodes.get(&path) {
            Some(_) if how.create_new => return Err(exists(&path)),
            Some(node) => node.clone(),
            None => Node::file(how.mode),
        };
        let old = node.content.take().ok_or_else(|| is_directory(&path))?;
        node.content = Some(match how.append {
            true => Bytes::from([old, content].concat()),
            false => content,
        });
        node.modified_unix_ms = now_ms();
        let described = entry(&path, &node);
        self.nodes.insert(path, node);
        Ok(described)
    }

    pub fn mkdir(&mut self, path: &[u8], parents: bool, mode: u32) -> Result<Entry, Failed> {
        let path = normal(path);
        match self.nodes.get(&path) {
            Some(node) if node.content.is_none() && parents => return Ok(entry(&path, node)),
            Some(_) => return Err(exists(&path)),
            None => {}
        }
        self.make_parent(&path, parents)?;
        let node = Node::directory(if mode == 0 { 0o755 } else { mode });
        let described = entry(&path, &node);
        self.nodes.insert(path, node);
        Ok(described)
    }

    pub fn remove(&mut self, path: &[u8], recursive: bool) -> Result<(), Failed> {
        let path = normal(path);
        self.node(&path)?;
        if path == b"/" {
            return Err(Failed::new(Failure::Invalid, "the root stays"));
        }
        let below = self.below(&path);
        if !below.is_empty() && !recursive {
            let message = format!("{:?} is not empty", String::from_utf8_lossy(&path));
            return Err(Failed::new(Failure::Exists, message));
        }
        for gone in below.iter().chain([&path]) {
            self.nodes.remove(gone);
        }
        Ok(())
    }

    pub fn rename(&mut self, from: &[u8], to: &[u8], overwrite: bool) -> Result<Entry, Failed> {
        let (from, to) = (normal(from), normal(to));
        self.node(&from)?;
        if to.starts_with(&[&from[..], b"/"].concat()) {
            return Err(Failed::new(Failure::Invalid, "a directory into itself"));
        }
        if self.nodes.contains_key(&to) && !overwrite {
            return Err(exists(&to));
        }
        self.make_parent(&to, false)?;
        for old in self.below(&from).into_iter().chain([from.clone()]) {
            if let Some(node) = self.nodes.remove(&old) {
                self.nodes
                    .insert([&to[..], &old[from.len()..]].concat(), node);
            }
        }
        self.stat(&to)
    }

    pub fn chmod(&mut self, path: &[u8], mode: u32) -> Result<Entry, Failed> {
        let path = normal(path);
        match self.nodes.get_mut(&path) {
            None => Err(Failed::missing(&path)),
            Some(node) => {
                node.mode = mode & 0o7777;
                Ok(entry(&path, node))
            }
        }
    }

    /// One page of what is below a directory, `depth` levels deep.
    pub fn list(
        &self,
        path: &[u8],
        depth: u32,
        after: &[u8],
        limit: u32,
    ) -> Result<Entries, Failed> {
        let path = normal(path);
        if self.node(&path)?.content.is_some() {
            let message = format!("{:?} is not a directory", String::from_utf8_lossy(&path));
            return Err(Failed::new(Failure::Invalid, message));
        }
        let base = if path == b"/" { 0 } else { path.len() };
        let levels = |found: &[u8]| found[base..].iter().filter(|&&byte| byte == b'/').count();
        let found = self.below(&path).into_iter().filter(|found| {
            levels(found) <= depth.max(1) as usize && (after.is_empty() || found.as_slice() > after)
        });
        Ok(self.page(found, limit))
    }

    pub fn glob(&self, wanted: &[u8], limit: u32) -> Entries {
        let found = self
            .nodes
            .keys()
            .filter(|path| pattern::matches(wanted, path));
        self.page(found.cloned(), limit)
    }

    fn page(&self, paths: impl Iterator<Item = Vec<u8>>, limit: u32) -> Entries {
        let limit = if limit == 0 { PAGE } else { limit as usize };
        let mut page = Entries::default();
        for path in paths {
            if page.entries.len() == limit {
                page.next = page.entries[limit - 1].path.clone();
                break;
            }
            if let Some(node) = self.nodes.get(&path) {
                page.entries.push(entry(&path, node));
            }
        }
        page
    }

    fn node(&self, path: &[u8]) -> Result<&Node, Failed> {
        self.nodes.get(path).ok_or_else(|| Failed::missing(path))
    }

    /// Everything below a path, in order.
    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let prefix = if path == b"/" {
            path.to_vec()
        } else {
            [path, b"/"].concat()
        };
        self.nodes
            .range(prefix.clone()..)
            .map(|(found, _)| found)
            .take_while(|found| found.starts_with(&prefix))
            .filter(|found| found.as_slice() != path)
            .cloned()
            .collect()
    }

    fn make_parent(&mut self, path: &[u8], create: bool) -> Result<(), Failed> {
        let parent = parent(path);
        match self.nodes.get(&parent) {
            Some(node) if node.content.is_none() => Ok(()),
            Some(_) => {
                let message = format!("{:?} is not a directory", String::from_utf8_lossy(&parent));
                Err(Failed::new(Failure::Invalid, message))
            }
            None if create => self.mkdir(&parent, true, 0).map(drop),
            None => Err(Failed::missing(&parent)),
        }
    }
}

impl Node {
    fn directory(mode: u32) -> Node {
        Node {
            content: None,
            mode,
            modified_unix_ms: now_ms(),
        }
    }

    fn file(mode: u32) -> Node {
        Node {
            content: Some(Bytes::new()),
            mode: if mode == 0 { 0o644 } else { mode & 0o7777 },
            modified_unix_ms: now_ms(),
        }
    }
}

/// An absolute path without `.`, `..`, doubled or trailing slashes.
pub fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    [b"/", &parts.join(&b'/')[..]].concat()
}

fn parent(path: &[u8]) -> Vec<u8> {
    match path.iter().rposition(|&byte| byte == b'/') {
        None | Some(0) => b"/".to_vec(),
        Some(at) => path[..at].to_vec(),
    }
}

fn entry(path: &[u8], node: &Node) -> Entry {
    let kind = match node.content {
        None => FileType::Directory,
        Some(_) => FileType::File,
    };
    Entry {
        path: Bytes::copy_from_slice(path),
        kind: kind as i32,
        size: node
            .content
            .as_ref()
            .map_or(0, |content| content.len() as u64),
        mode: node.mode,
        uid: 0,
        gid: 0,
        owner: "root".to_string(),
        group: "root".to_string(),
        modified_unix_ms: node.modified_unix_ms,
        symlink_target: Bytes::new(),
        revision: 0,
    }
}

fn exists(path: &[u8]) -> Failed {
    let message = format!("{:?} exists already", String::from_utf8_lossy(path));
    Failed::new(Failure::Exists, message)
}

fn is_directory(path: &[u8]) -> Failed {
    let message = format!("{:?} is a directory", String::from_utf8_lossy(path));
    Failed::new(Failure::Invalid, message)
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(page: &Entries) -> Vec<String> {
        let text = |entry: &Entry| String::from_utf8_lossy(&entry.path).into_owned();
        page.entries.iter().map(text).collect()
    }

    #[test]
    fn parents_are_made_and_pages_continue() {
        let mut tree = Tree::new();
        let how = Put {
            parents: true,
            ..Put::default()
        };
        for name in ["/a/b/1", "/a/b/2", "/a/b/3"] {
            tree.put(name.as_bytes(), Bytes::from_static(b"x"), how)
                .unwrap();
        }
        let first = tree.list(b"/a/b/", 1, b"", 2).unwrap();
        assert_eq!(paths(&first), ["/a/b/1", "/a/b/2"]);
        let second = tree.list(b"/a/b", 1, &first.next, 2).unwrap();
        assert_eq!(paths(&second), ["/a/b/3"]);
        assert!(second.next.is_empty());
        assert_eq!(paths(&tree.list(b"/a", 1, b"", 0).unwrap()), ["/a/b"]);
        assert_eq!(tree.list(b"/a", 2, b"", 0).unwrap().entries.len(), 4);
    }

    #[test]
    fn a_directory_moves_with_what_is_in_it() {
        let mut tree = Tree::new();
        let how = Put {
            parents: true,
            ..Put::default()
        };
        tree.put(b"/a/b", Bytes::from_static(b"x"), how).unwrap();
        tree.rename(b"/a", b"/c", false).unwrap();
        assert_eq!(&tree.read(b"/c/b").unwrap().1[..], b"x");
        assert_eq!(tree.stat(b"/a").unwrap_err().kind, Failure::NotFound);
        assert!(tree.remove(b"/c", false).is_err());
        tree.remove(b"/c", true).unwrap();
    }

    #[test]
    fn dots_do_not_leave_the_root() {
        assert_eq!(normal(b"/../a/./b/../c//"), b"/a/c");
        assert_eq!(normal(b"/.."), b"/");
    }
}
