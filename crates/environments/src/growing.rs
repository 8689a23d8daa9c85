//! A root filesystem that grows by layers.
//!
//! ```text
//! installed root ──hard links──► own root ──layer──► own root ──layer──► … ──seal──► blob + name
//! ```
//!
//! Machines start from [`Workplace::root`]; their changes come back as a layer. The first layer
//! copies the installed tree: its directories are made anew and its files are hard links, so no
//! contents are copied. Every further layer costs what it changes. Files are never written in
//! place: a replaced file is unlinked first.
//!
//! The digest of the result is that of its contents, as for every environment: the list of the
//! installed tree, with the hash of each file, is kept in the build cache and updated with each
//! layer.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, BufReader},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::Arc,
};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::{
    about::{ImageInfo, LayerInfo},
    build_cache::BuildCache,
    copying::copy_tar,
    digest::{self, Content, Node, Nodes, hex},
    environments::{Environments, blocking},
    error::{EnvironmentError, IoContext as _},
    finish,
    held::Hold,
    layer::{self, Budget, Merged, index, index::Section, merge::What},
    pack,
    process::{self, Cancel},
    store::{BlobRecord, NameRecord, Staging, Store},
    title::Title,
    tree::{Captured, TreeWriter, Verdict},
    unpack::{Failure, unpack_into},
};

/// Largest text file that is read from a tree.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// What a path of a tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'a> {
    Directory,
    /// By the hash of its contents.
    File([u8; 32]),
    Symlink(&'a [u8]),
}

/// One path of a tree and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<'a> {
    pub found: Found<'a>,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub attributes: &'a std::collections::BTreeMap<String, Vec<u8>>,
}

/// A root filesystem that a build works on; removed on drop unless sealed.
#[derive(Debug)]
pub struct Workplace {
    store: Arc<Store>,
    staging: Staging,
    nodes: Nodes,
    /// The installed tree that this still equals.
    installed: Option<String>,
    digest: String,
    bytes: u64,
    disks: u32,
    cancel: Cancel,
    /// What it begins with stays for as long as it is worked on.
    _base: Option<Hold>,
}

impl Environments {
    /// A workplace that starts as an installed environment, by its digest, or empty.
    pub async fn workplace(&self, base: Option<&str>) -> Result<Workplace, EnvironmentError> {
        let (store, base) = (self.store().clone(), base.map(str::to_owned));
        blocking(move || Workplace::open(store, base)).await
    }

    /// Gives an installed tree a title and settings, and holds it; `None` if the tree is not
    /// installed.
    pub async fn settle(
        &self,
        digest: &str,
        title: Title,
        image: ImageInfo,
        made_from: String,
    ) -> Result<Option<Hold>, EnvironmentError> {
        self.check_own_name(&title)?;
        let (store, digest) = (self.store().clone(), digest.to_owned());
        blocking(move || {
            let _guard = store.lock()?;
            if store.blob_record(&digest).is_err() {
                return Ok(None);
            }
            let hold = store.hold(&digest);
            store.write_name(&name_record(digest, title, image, made_from))?;
            Ok(Some(hold))
        })
        .await
    }

    /// What builds of the host's users leave for the next one, or those of the project that is this
    /// owner.
    pub fn build_cache(&self, project: Option<&str>) -> Result<BuildCache, EnvironmentError> {
        let store = self.store();
        let dir = match project {
            None => store.build_cache(),
            Some(owner) => store.build_cache_of(owner),
        };
        BuildCache::open(dir, store.contexts_of(project), store.holds())
    }

    /// Whether a tree with this digest is installed, under any name.
    pub fn is_installed(&self, digest: &str) -> bool {
        self.store().blob_record(digest).is_ok()
    }
}

impl Workplace {
    fn open(store: Arc<Store>, base: Option<String>) -> Result<Self, EnvironmentError> {
        store.privilege().check()?;
        let staging = store.stage()?;
        let cancel = Cancel::default();
        let Some(base) = base else {
            use std::os::unix::fs::PermissionsExt as _;
            let nodes = Nodes::from([(Vec::new(), root_node())]);
            let root = staging.root();
            fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).at("making", &root)?;
            return Ok(Self {
                digest: digest::of_nodes(&nodes),
                nodes,
                store,
                staging,
                installed: None,
                bytes: 0,
                disks: 0,
                cancel,
                _base: None,
            });
        };
        let (hold, record) = store.hold_there(&base)?;
        let nodes = known_nodes(&store, &staging, &base, &cancel)?;
        Ok(Self {
            nodes,
            bytes: record.size_bytes,
            installed: Some(base.clone()),
            digest: base,
            store,
            staging,
            disks: 0,
            cancel,
            _base: Some(hold),
        })
    }

    /// The root that machines start from now. It is never written to.
    pub fn root(&self) -> PathBuf {
        match &self.installed {
            Some(digest) => self.store.root_of(digest),
            None => self.staging.root(),
        }
    }

    /// The digest of the current tree.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// An empty directory for the disks of one machine.
    pub fn fresh_disks(&mut self) -> Result<PathBuf, EnvironmentError> {
        self.disks += 1;
        let path = self.staging.scratch().join(format!("disks-{}", self.disks));
        crate::store::private_directory(&path)?;
        Ok(path)
    }

    /// The entry at a path; symbolic links are not followed.
    pub fn at(&self, path: &[u8]) -> Option<Place<'_>> {
        let node = self.nodes.get(path)?;
        Some(Place {
            found: match &node.content {
                Content::Directory => Found::Directory,
                Content::File(sum) => Found::File(*sum),
                Content::Symlink(target) => Found::Symlink(target),
            },
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            attributes: &node.attributes,
        })
    }

    /// Paths below a directory, parents first.
    pub fn below<'a>(&'a self, path: &[u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let start = match path {
            b"" => Vec::new(),
            path => [path, b"/"].concat(),
        };
        self.nodes
            .range(start.clone()..)
            .map(|(path, _)| path.as_slice())
            .take_while(move |found| found.starts_with(&start))
            .filter(|found| !found.is_empty())
    }

    /// Opens a regular file of the tree.
    pub fn open_file(&self, path: &[u8]) -> Result<File, EnvironmentError> {
        let full = self.root().join(std::ffi::OsStr::from_bytes(path));
        match self.nodes.get(path).map(|node| &node.content) {
            // All its parents are directories, so no symbolic link is followed.
            Some(Content::File(_)) => File::open(&full).at("opening", &full),
            _ => Err(EnvironmentError::io(
                "opening a file of the tree",
                io::ErrorKind::NotFound.into(),
            )),
        }
    }

    /// The text of a small file; empty if there is none.
    pub fn text(&self, path: &str) -> Vec<u8> {
        use std::io::Read as _;
        let mut text = Vec::new();
        if let Ok(file) = self.open_file(path.as_bytes()) {
            let read = file.take(MAX_TEXT_BYTES).read_to_end(&mut text);
            if read.is_err() {
                text.clear();
            }
        }
        text
    }

    /// Applies layers to the tree. Blocks.
    pub fn apply(
        &mut self,
        layers: &[(PathBuf, String)],
        image: &mut ImageInfo,
    ) -> Result<(), EnvironmentError> {
        let mut merged = Merged::over(&self.nodes);
        let budget = Budget::default();
        let mut sections = Vec::new();
        for (path, expected) in layers {
            let section = Section::whole(File::open(path).at("opening", path)?);
            let section = section.at("reading", path)?;
            let index = index(
                section.clone(),
                "a layer of the build",
                &budget,
                &self.cancel,
            )?;
            if index.diff_id != *expected {
                return Err(EnvironmentError::DigestMismatch {
                    what: "a layer of the build cache".to_owned(),
                    expected: expected.clone(),
                    found: index.diff_id,
                });
            }
            merged.add(index)?;
            sections.push(section);
        }
        image.complete(&mut merged);
        self.own_the_tree()?;
        let kept = self.keep_unchanged(&merged)?;
        let bytes = self.bytes;
        let unpacked = unpack_into(
            &self.store,
            &self.staging,
            &self.cancel,
            |output| Ok(TreeWriter::over(output, kept, bytes)),
            |tree| layer::emit::emit(&merged, &sections, tree, &self.cancel, |_| {}),
        );
        let (summary, ()) = unpacked.map_err(failed)?;
        (self.digest, self.bytes) = (summary.digest, summary.bytes);
        self.nodes = summary.nodes;
        Ok(())
    }

    /// Copies the installed tree with hard links, before the first change.
    fn own_the_tree(&mut self) -> Result<(), EnvironmentError> {
        let Some(digest) = self.installed.take() else {
            return Ok(());
        };
        let (from, to) = (self.store.root_of(&digest), self.staging.root());
        let mut command = self.store.privilege().mapped("cp");
        command
            .args(["--archive", "--link", "--no-target-directory", "--"])
            .args([&from, &to]);
        let output = process::output(command, &self.cancel, &self.staging.scratch(), 1 << 16);
        let (exit, _) = output.at("linking", &from)?;
        match exit.status.success() {
            true => Ok(()),
            false => Err(failed(Failure::Unpacker(exit.tail))),
        }
    }

    /// Removes from disk what the layers remove or replace; returns what stays.
    fn keep_unchanged(&mut self, merged: &Merged) -> Result<Nodes, EnvironmentError> {
        let spots: std::collections::HashMap<&[u8], &layer::merge::Spot> = merged.spots().collect();
        let mut kept = Nodes::new();
        let mut gone: HashSet<&[u8]> = HashSet::new();
        let root = self.staging.root();
        for (path, node) in &self.nodes {
            if path.is_empty()
                || spots
                    .get(path.as_slice())
                    .is_some_and(|spot| stays(spot, node))
            {
                kept.insert(path.clone(), node.clone());
                continue;
            }
            let stays_directory = spots
                .get(path.as_slice())
                .is_some_and(|spot| spot.what == What::Directory)
                && node.content == Content::Directory;
            if stays_directory {
                continue;
            }
            let full = root.join(std::ffi::OsStr::from_bytes(path));
            if matches!(node.content, Content::File(_)) {
                let size = fs::symlink_metadata(&full).map_or(0, |meta| meta.len());
                self.bytes = self.bytes.saturating_sub(size);
            }
            let mut above = path.as_slice();
            let covered = loop {
                let Some(at) = above.iter().rposition(|byte| *byte == b'/') else {
                    break false;
                };
                above = &above[..at];
                if gone.contains(above) {
                    break true;
                }
            };
            if !covered {
                self.store.privilege().remove_path(&full)?;
            }
            gone.insert(path);
        }
        Ok(kept)
    }

    /// Registers the tree as an environment, and holds it until the caller has looked at it. Blocks.
    pub fn seal(
        self,
        title: Title,
        image: ImageInfo,
        made_from: String,
    ) -> Result<Hold, EnvironmentError> {
        let digest = self.digest.clone();
        let hold = self.store.hold(&digest);
        let name = name_record(digest.clone(), title, image, made_from);
        if self.installed.is_some() {
            let _guard = self.store.lock()?;
            self.store.write_name(&name)?;
            return Ok(hold);
        }
        let captured = self.captured();
        let blob = BlobRecord {
            format_version: BlobRecord::VERSION,
            digest: digest.clone(),
            size_bytes: self.bytes,
            entries: self.nodes.len() as u64,
            created_at: Timestamp::now().to_string(),
            architecture: std::env::consts::ARCH.to_owned(),
            os: finish::os_name(&captured).unwrap_or_else(|| "linux".to_owned()),
            packages: finish::packages(&captured),
            recipe: None,
        };
        self.store.commit(&self.staging, &blob, &name)?;
        remember_nodes(&self.store, &digest, &self.nodes);
        Ok(hold)
    }

    fn captured(&self) -> Captured {
        let mut captured = Captured::new();
        for (path, key) in [
            ("etc/os-release", finish::OS_RELEASE),
            (finish::OS_RELEASE, finish::OS_RELEASE),
            (finish::DPKG_STATUS, finish::DPKG_STATUS),
        ] {
            let text = self.text(path);
            if !text.is_empty() {
                captured.insert(key.into(), text);
            }
        }
        captured
    }
}

/// Whether the entry on disk is the wanted one.
fn stays(spot: &layer::merge::Spot, node: &Node) -> bool {
    let same_owner = (spot.meta.uid, spot.meta.gid) == (node.uid, node.gid);
    match (&spot.what, &node.content) {
        (What::Base, Content::File(_)) => true,
        (What::Directory, Content::Directory) => same_owner && spot.meta.mode == node.mode,
        (What::Symlink(target), Content::Symlink(old)) => same_owner && target == old,
        _ => false,
    }
}

fn root_node() -> Node {
    Node {
        content: Content::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        attributes: Default::default(),
    }
}

fn name_record(digest: String, title: Title, image: ImageInfo, made_from: String) -> NameRecord {
    NameRecord {
        format_version: NameRecord::VERSION,
        digest,
        pulled_at: Timestamp::now().to_string(),
        recipe_hash: made_from,
        image: Some(ImageInfo {
            reference: title.name.clone(),
            ..image
        }),
        name: title.name,
        owner: Some(title.owner),
        made_for: title.made_for,
    }
}

fn failed(failure: Failure) -> EnvironmentError {
    match failure {
        Failure::Other(error) => error,
        Failure::Unpacker(tail) if tail.contains("No space left on device") => {
            EnvironmentError::NoSpace {
                context: "storing what a build changed".to_owned(),
            }
        }
        Failure::Unpacker(tail) => EnvironmentError::BuildFailed {
            name: "the build".to_owned(),
            stage: "unpack".to_owned(),
            tail_of_log: tail,
        },
    }
}

/// The list of an installed tree: from the cache, or by reading the tree once.
fn known_nodes(
    store: &Store,
    staging: &Staging,
    digest: &str,
    cancel: &Cancel,
) -> Result<Nodes, EnvironmentError> {
    let path = store.list_of(digest);
    if let Ok(text) = fs::read(&path)
        && format!("sha256:{}", hex(&Sha256::digest(&text))) == digest
        && let Some(nodes) = digest::decode(&text)
    {
        return Ok(nodes);
    }
    let root = store.root_of(digest);
    let mut reader = pack::start(store, &root, staging, cancel)?;
    let mut tree = TreeWriter::new(io::sink())?;
    let stdout = BufReader::new(reader.take_stdout());
    let copied = copy_tar(stdout, &mut tree, |_, _| Verdict::Keep);
    let exit = reader.finish().at("reading", &root)?;
    copied?;
    let summary = tree.finish()?.0;
    if !pack::is_whole(exit.status) || summary.digest != digest {
        return Err(EnvironmentError::Corrupt {
            digest: digest.to_owned(),
            reason: match pack::is_whole(exit.status) {
                true => format!("its contents have digest {}", summary.digest),
                false => exit.tail,
            },
        });
    }
    remember_nodes(store, digest, &summary.nodes);
    Ok(summary.nodes)
}

/// Best effort: a missing list is computed again.
fn remember_nodes(store: &Store, digest: &str, nodes: &Nodes) {
    let path = store.list_of(digest);
    if let Err(error) = crate::build_cache::replace(&path, &digest::encode(nodes)) {
        tracing::debug!(%error, "caching the list of a tree failed");
    }
}

/// The layers of an environment that was built from another one.
pub fn layers_over(base: Option<&ImageInfo>, added: &[(String, u64)]) -> Vec<LayerInfo> {
    let below = base.map(|image| image.layers.clone()).unwrap_or_default();
    let added = added.iter().map(|(digest, size)| LayerInfo {
        digest: digest.clone(),
        diff_id: digest.clone(),
        size_bytes: *size,
    });
    below.into_iter().chain(added).collect()
}

#[cfg(test)]
#[path = "growing_tests.rs"]
mod tests;
