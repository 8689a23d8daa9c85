//! All layers as one tree, in memory.
//!
//! Owns what a later layer does to an earlier one: replacing, hiding, linking,
//! and following symbolic links that lead to where an entry belongs. Links are
//! followed inside the tree only, so no path can mean anything outside of it.
//! The result names, for each path, the layer and entry its contents are in.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
};

use super::{
    entry::{join, split},
    index::{Change, Item, LayerIndex},
};
use crate::{
    digest::{Content, Node, Nodes},
    error::EnvironmentError,
    tree::{MAX_ROOT_ENTRIES, Meta},
};

/// Most symbolic links followed for one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Most names looked up for one path, and for all paths of an image: what long
/// chains of links can cost.
const MAX_STEPS: u64 = 8192;
const MAX_ALL_STEPS: u64 = 50_000_000;

/// One path of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub what: What,
    pub meta: Meta,
    /// The last layer that touched it or anything below it.
    layer: u32,
}

impl Spot {
    fn file(&self) -> Option<usize> {
        match self.what {
            What::File(number) => Some(number),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Directory,
    Symlink(Vec<u8>),
    /// Contents, by number: names of one file share it.
    File(usize),
    /// Contents that motu writes itself.
    Own(&'static str),
    /// A file of the tree that the layers are laid over.
    Base,
}

/// The contents of a file.
#[derive(Debug)]
pub(crate) struct Contents {
    pub layer: u32,
    pub place: u32,
    pub size: u64,
    pub meta: Meta,
    pub attributes: BTreeMap<String, Vec<u8>>,
    text: Option<Vec<u8>>,
}

/// The tree of the layers merged so far.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    spots: BTreeMap<Vec<u8>, Spot>,
    contents: Vec<Contents>,
    layer: u32,
    /// Paths whose lower layers are hidden already by the current layer.
    hidden: HashSet<Vec<u8>>,
    /// The last parent that was looked up, and where it is: entries of one
    /// directory follow each other.
    recent: Option<(Vec<u8>, Vec<u8>)>,
    steps: u64,
}

impl Merged {
    /// A tree that layers are to be laid over.
    pub fn over(nodes: &Nodes) -> Self {
        let spot = |node: &Node| Spot {
            what: match &node.content {
                Content::Directory => What::Directory,
                Content::Symlink(target) => What::Symlink(target.clone()),
                Content::File(_) => What::Base,
            },
            meta: Meta {
                mode: node.mode,
                uid: node.uid,
                gid: node.gid,
                ..Meta::root(0)
            },
            layer: 0,
        };
        // The root itself is no spot.
        let spots = nodes.iter().filter(|(path, _)| !path.is_empty());
        Self {
            spots: spots
                .map(|(path, node)| (path.clone(), spot(node)))
                .collect(),
            ..Self::default()
        }
    }

    /// Puts the next layer on top.
    pub fn add(&mut self, layer: LayerIndex) -> Result<(), EnvironmentError> {
        self.layer += 1;
        self.hidden.clear();
        self.recent = None;
        for item in layer.items {
            self.apply(item)?;
        }
        Ok(())
    }

    /// Paths in order: a directory comes before what is in it.
    pub fn spots(&self) -> impl Iterator<Item = (&[u8], &Spot)> {
        self.spots
            .iter()
            .map(|(path, spot)| (path.as_slice(), spot))
    }

    pub fn contents(&self, number: usize) -> &Contents {
        &self.contents[number]
    }

    /// What is at a path, without following links.
    pub fn get(&self, path: &str) -> Option<&Spot> {
        self.spots.get(path.as_bytes())
    }

    /// Where `path` leads inside the tree, links followed to the end.
    pub fn follow(&mut self, path: &str) -> Option<Vec<u8>> {
        let mut path = path.as_bytes().to_vec();
        for _ in 0..MAX_LINKS {
            let (parent, name) = split(&path);
            let parent = self.walk(parent, Missing::Stop).ok()??;
            let found = join(&parent, name);
            match &self.spots.get(&found)?.what {
                What::Symlink(target) if target.first() == Some(&b'/') => path = target.clone(),
                What::Symlink(target) => path = join(&parent, target),
                _ => return Some(found),
            }
        }
        None
    }

    /// The contents of one of the few files whose contents were kept.
    pub fn text(&mut self, path: &str) -> Option<&[u8]> {
        let found = self.follow(path)?;
        self.contents[self.number_of(&found)?].text.as_deref()
    }

    /// Names of each file that is left, by layer and place.
    pub fn winners(&self) -> HashMap<(u32, u32), Vec<&[u8]>> {
        let mut winners: HashMap<(u32, u32), Vec<&[u8]>> = HashMap::new();
        for (path, spot) in &self.spots {
            if let What::File(number) = spot.what {
                let contents = &self.contents[number];
                let key = (contents.layer, contents.place);
                winners.entry(key).or_default().push(path);
            }
        }
        winners
    }

    /// Bytes of all files that are left, each counted once.
    pub fn bytes(&self) -> u64 {
        let numbers: HashSet<usize> = self.spots.values().filter_map(Spot::file).collect();
        numbers
            .iter()
            .map(|number| self.contents[*number].size)
            .sum()
    }

    /// The number of the contents at a path.
    pub fn number_of(&self, path: &[u8]) -> Option<usize> {
        self.spots.get(path)?.file()
    }

    /// Empties and, where it is something else, replaces a directory.
    pub fn empty_directory(&mut self, path: &str, meta: Meta) {
        self.remove_below(path.as_bytes(), u32::MAX);
        self.mount_point(path, meta);
    }

    /// Makes sure that `path` is a directory and not a link to one.
    pub fn mount_point(&mut self, path: &str, meta: Meta) {
        let is_directory = |spot: &Spot| spot.what == What::Directory;
        if !self.get(path).is_some_and(is_directory) {
            self.put(path.as_bytes().to_vec(), What::Directory, meta);
        }
    }

    /// Makes sure that `path` leads to a directory; where it cannot, nothing is
    /// changed.
    pub fn directory(&mut self, path: &str, meta: Meta) {
        let existed = self.follow(path).is_some();
        if let Ok(Some(found)) = self.walk(path.as_bytes(), Missing::Create)
            && !existed
            && !found.is_empty()
        {
            self.put(found, What::Directory, meta);
        }
    }

    /// Puts a file of motu's own at a path whose parent is a directory.
    pub fn own_file(&mut self, path: &str, meta: Meta, text: &'static str) {
        let (parent, name) = split(path.as_bytes());
        if let Ok(Some(parent)) = self.walk(parent, Missing::Create) {
            self.put(join(&parent, name), What::Own(text), meta);
        }
    }

    fn apply(&mut self, item: Item) -> Result<(), EnvironmentError> {
        match item.change {
            Change::Directory(path) => {
                let path = self.locate(&path)?;
                if let Some(spot) = self.spots.get_mut(&path)
                    && spot.what == What::Directory
                {
                    (spot.meta, spot.layer) = (item.meta, self.layer);
                } else {
                    self.put(path, What::Directory, item.meta);
                }
            }
            Change::File(path) => {
                let path = self.locate(&path)?;
                self.contents.push(Contents {
                    layer: self.layer - 1,
                    place: item.place,
                    size: item.size,
                    meta: item.meta,
                    attributes: item.attributes,
                    text: item.text,
                });
                let number = self.contents.len() - 1;
                self.put(path, What::File(number), item.meta);
            }
            Change::Symlink { path, target } => {
                let path = self.locate(&path)?;
                self.put(path, What::Symlink(target), item.meta);
            }
            Change::Link { path, target } => self.link(&path, &target)?,
            Change::Whiteout(path) => self.hide(&path)?,
            Change::Opaque(path) => {
                // An opaque mark on a directory that is not there hides nothing.
                if let Some(path) = self.walk(&path, Missing::Stop)?
                    && self.hidden.insert(join(&path, b""))
                {
                    self.remove_below(&path, self.layer);
                }
            }
        }
        if self.spots.len() as u64 >= MAX_ROOT_ENTRIES {
            return Err(EnvironmentError::TooLarge {
                what: "entries",
                limit: MAX_ROOT_ENTRIES,
            });
        }
        Ok(())
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), EnvironmentError> {
        let (parent, name) = split(target);
        let original = match self.walk(parent, Missing::Stop)? {
            Some(parent) => join(&parent, name),
            None => return Err(refused(path, "hard link to something outside or later")),
        };
        let Some(spot) = self.spots.get(&original) else {
            return Err(refused(path, "hard link to something outside or later"));
        };
        if spot.what == What::Directory {
            return Err(refused(path, "hard link to a directory"));
        }
        let (what, meta) = (spot.what.clone(), spot.meta);
        let path = self.locate(path)?;
        if path != original {
            self.put(path, what, meta);
        }
        Ok(())
    }

    fn hide(&mut self, path: &[u8]) -> Result<(), EnvironmentError> {
        let (parent, name) = split(path);
        let Some(parent) = self.walk(parent, Missing::Stop)? else {
            return Ok(());
        };
        let path = join(&parent, name);
        if !self.hidden.insert(path.clone()) {
            return Ok(());
        }
        self.remove_below(&path, self.layer);
        if self
            .spots
            .get(&path)
            .is_some_and(|spot| spot.layer < self.layer)
        {
            self.spots.remove(&path);
            self.recent = None;
        }
        Ok(())
    }

    /// Where an entry belongs: its parent with links followed, and made where
    /// nothing is; its own name is never followed.
    fn locate(&mut self, path: &[u8]) -> Result<Vec<u8>, EnvironmentError> {
        let (parent, name) = split(path);
        if let Some((from, to)) = &self.recent
            && from == parent
        {
            return Ok(join(to, name));
        }
        let found = self
            .walk(parent, Missing::Create)?
            .ok_or_else(|| refused(path, "its parent is not a directory"))?;
        self.touch(&found);
        self.recent = Some((parent.to_vec(), found.clone()));
        Ok(join(&found, name))
    }

    /// Marks a directory and all above it as part of the current layer, so that
    /// an opaque mark seen later does not take them from under their contents.
    fn touch(&mut self, directory: &[u8]) {
        let mut path = directory;
        while !path.is_empty() {
            if let Some(spot) = self.spots.get_mut(path) {
                spot.layer = self.layer;
            }
            path = split(path).0;
        }
    }

    /// Follows `path` from the root to a directory, links included. `None` when
    /// something on the way is missing or no directory.
    fn walk(&mut self, path: &[u8], missing: Missing) -> Result<Option<Vec<u8>>, EnvironmentError> {
        let mut at: Vec<u8> = Vec::new();
        let mut left: Vec<Vec<u8>> = parts(path);
        let mut links = 0;
        let mut steps = 0;
        while let Some(part) = left.pop() {
            steps += 1;
            self.steps += 1;
            if steps > MAX_STEPS || self.steps > MAX_ALL_STEPS {
                return Err(refused(path, "too many links lead to it"));
            }
            if part == b".." {
                at.truncate(split(&at).0.len());
                continue;
            }
            let next = join(&at, &part);
            match self.spots.get(&next).map(|spot| &spot.what) {
                Some(What::Directory) => at = next,
                Some(What::Symlink(target)) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(refused(path, "too many links lead to it"));
                    }
                    if target.first() == Some(&b'/') {
                        at.clear();
                    }
                    left.extend(parts(target));
                }
                None if missing == Missing::Create => {
                    self.put(next.clone(), What::Directory, Meta::root(0o755));
                    at = next;
                }
                Some(_) | None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn put(&mut self, path: Vec<u8>, what: What, meta: Meta) {
        let spot = Spot {
            what,
            meta,
            layer: self.layer,
        };
        let is_directory = spot.what == What::Directory;
        let plain = matches!(spot.what, What::File(_) | What::Own(_) | What::Base);
        let before = self.spots.insert(path.clone(), spot).map(|spot| spot.what);
        match before {
            Some(What::Directory) if !is_directory => self.remove_below(&path, u32::MAX),
            // A new file changes no lookup of directories.
            None if plain => return,
            _ => {}
        }
        self.recent = None;
    }

    /// Removes what is below `path` and older than `layer`.
    fn remove_below(&mut self, path: &[u8], layer: u32) {
        // The byte after a slash ends the range of paths that continue with one.
        let range = match path {
            b"" => (Bound::Unbounded, Bound::Unbounded),
            path => (
                Bound::Included([path, b"/"].concat()),
                Bound::Excluded([path, b"0"].concat()),
            ),
        };
        let old: Vec<Vec<u8>> = self
            .spots
            .range(range)
            .filter(|(_, spot)| spot.layer < layer)
            .map(|(path, _)| path.clone())
            .collect();
        for path in old {
            self.spots.remove(&path);
        }
        self.recent = None;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// Directories that are missing are made.
    Create,
    /// What is missing ends the walk.
    Stop,
}

/// The names of a path, last first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|b| *b == b'/')
        .rev()
        .filter(|part| !matches!(*part, b"" | b"."))
        .map(<[u8]>::to_vec)
        .collect()
}

fn refused(path: &[u8], reason: &'static str) -> EnvironmentError {
    EnvironmentError::Refused {
        path: String::from_utf8_lossy(path).chars().take(200).collect(),
        reason,
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
