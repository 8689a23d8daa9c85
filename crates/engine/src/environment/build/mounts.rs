//! Cache mounts: directories of a step whose contents stay from build to build.
//!
//! ```text
//! mounts/KEY ──unpacked──► target in the machine ──RUN──► the machine's disk ──packed──► mounts/KEY
//! ```
//!
//! The tree's own contents at the target are hidden while the step runs, as under a real mount, and
//! nothing below the target gets into a layer. Steps that use the same cache run one after another,
//! whatever their sharing mode; a `private` one does not wait: it starts empty if the cache is in
//! use. The contents are kept even if the step fails.

use super::Builder;
use super::capture::{MAX_DEPTH, MAX_NAMES, WORKSPACE, open, spooled};
use super::source::{Source, clean, follow};
use super::state::Stage;
use crate::admission::environment_error;
use crate::blocking::blocking;
use crate::driver::Handle;
use crate::pipe;
use motu_core::files::GuestPath;
use motu_core::runtime::AtRest;
use motu_core::turns::Turn;
use motu_core::{Error, Result, limits};
use motu_disks::{Attributes, Kind, Layer};
use motu_dockerfile::{CacheMount, Mount, Run, Sharing};
use motu_environments::{BuildCache, Found};
use motu_workspaces::tarball::{Meta, TarWriter};
use std::io::{BufWriter, Write};

/// Directories that are not on the machine's disks and cannot be the target of a cache.
const ELSEWHERE: [&[u8]; 4] = [b"dev", b"proc", b"sys", b"run"];

/// One cache of a step.
pub(super) struct Cache {
    key: String,
    /// The target in the tree, symbolic links resolved.
    pub(super) target: Vec<u8>,
    pub(super) mount: CacheMount,
    /// The tree has something at the target.
    covers: bool,
    /// The exclusive use of the cache; without it the cache starts empty and is not saved.
    turn: Option<Turn>,
}

impl Builder<'_> {
    /// Waits for the caches of a step and takes them.
    pub(super) async fn caches(&self, stage: &Stage, run: &Run) -> Result<Vec<Cache>> {
        let mounts = run.mounts.iter().filter_map(|mount| match mount {
            Mount::Cache(cache) => Some(cache),
            Mount::Secret(_) => None,
        });
        let mut caches = Vec::new();
        for mount in mounts {
            caches.push(self.cache_mount(stage, mount)?);
        }
        // Every step takes caches in the same order, so no deadlock is possible.
        caches.sort_by(|one, other| one.key.cmp(&other.key));
        let twice = caches.windows(2).find(|two| two[0].key == two[1].key);
        if let Some([one, _]) = twice {
            let id = &one.mount.id;
            return Err(Error::unsupported(format!(
                "the cache {id} is in this step twice"
            )));
        }
        let turns = self.turns;
        for cache in &mut caches {
            cache.turn = match cache.mount.sharing {
                Sharing::Private => turns.try_take(&cache.key),
                Sharing::Shared | Sharing::Locked => Some(turns.take(&cache.key).await),
            };
        }
        Ok(caches)
    }

    fn cache_mount(&self, stage: &Stage, mount: &CacheMount) -> Result<Cache> {
        let place = stage.place.as_ref();
        let place = place.ok_or_else(|| Error::internal("a stage has no tree"))?;
        let written = stage.absolute(&mount.target);
        let target = clean(written.as_bytes())
            .ok_or_else(|| Error::invalid(format!("{written} leads out of the root")))?;
        let target = follow(place, &target)?;
        let top = target.split(|byte| *byte == b'/').next();
        if target.is_empty()
            || target == WORKSPACE
            || top.is_some_and(|top| ELSEWHERE.contains(&top))
        {
            return Err(Error::invalid(format!("{written} cannot be a cache")).hint(
                "a directory below /, /workspace or /tmp; not in /dev, /proc, /run or /sys",
            ));
        }
        let found = place.at(&target).map(|place| place.found);
        let is_directory = matches!(found, None | Some(Found::Directory));
        if !is_directory {
            return Err(Error::invalid(format!("{written} is not a directory")));
        }
        let key = self.key(&[b"mount", mount.id.as_bytes()]);
        Ok(Cache {
            key: key.as_str().to_string(),
            covers: Source::below(place, &target).next().is_some(),
            target,
            mount: mount.clone(),
            turn: None,
        })
    }

    /// Removes the tree's contents at the targets in a machine, as a mount would hide them.
    pub(super) async fn clear_targets(&self, handle: &Handle, caches: &[Cache]) -> Result<()> {
        let guest = handle.guest()?;
        for cache in caches.iter().filter(|cache| cache.covers) {
            guest.remove(&cache.path()?, true).await?;
        }
        Ok(())
    }

    /// Unpacks the saved contents of caches into their targets in a machine.
    pub(super) async fn fill_caches(&self, handle: &Handle, caches: &[Cache]) -> Result<()> {
        let guest = handle.guest()?;
        for cache in caches.iter().filter(|cache| cache.turn.is_some()) {
            let Some(mut stored) = self.cache.mount(&cache.key) else {
                continue;
            };
            let archive = pipe::written(move |out| {
                let copied = std::io::copy(&mut stored, out);
                copied
                    .map(drop)
                    .map_err(|error| Error::io("cannot read a cache", &error))
            });
            let filled = guest.write_owned_tree(&cache.path()?, archive).await;
            if let Err(error) = filled {
                // Delete the saved contents, whatever the error is: otherwise each later build
                // fails the same way.
                self.cache.forget_mount(&cache.key);
                let id = &cache.mount.id;
                return Err(error.hint(format!(
                    "the contents of the cache {id} could not be brought back and are forgotten; build again"
                )));
            }
        }
        Ok(())
    }

    /// Saves the contents of caches after the machine has ended.
    pub(super) async fn keep_caches(&self, caches: Vec<Cache>, rest: &AtRest) -> Result<()> {
        for cache in caches.into_iter().filter(|cache| cache.turn.is_some()) {
            let (store, rest) = (self.cache.clone(), rest.clone());
            let id = cache.mount.id.clone();
            // `cache` moves into the closure with its turn, which ends when the contents are in
            // place.
            let kept = blocking(move || keep(&store, &cache, &rest)).await?;
            if !kept {
                let most = limits::BUILD_MOUNT_BYTES.max;
                let text = format!(
                    "the cache {id} holds more than build_mount_bytes, {most}: it stays as it was before this step"
                );
                self.say("output", text).await;
            }
        }
        Ok(())
    }
}

impl Cache {
    fn path(&self) -> Result<GuestPath> {
        GuestPath::new(format!("/{}", String::from_utf8_lossy(&self.target)))
    }

    /// The attributes of the target directory when the step begins.
    pub(super) fn top(&self) -> Meta {
        Meta {
            mode: self.mount.mode,
            uid: self.mount.uid,
            gid: self.mount.gid,
            modified_unix_ns: 0,
        }
    }
}

/// Packs the contents of the target. Returns false if they are too large.
fn keep(store: &BuildCache, cache: &Cache, rest: &AtRest) -> Result<bool> {
    let in_workspace = cache.target.strip_prefix(b"workspace/");
    let (layers, inside) = match in_workspace {
        Some(inside) => (&rest.workspace, inside),
        None => (&rest.root, cache.target.as_slice()),
    };
    let upper = layers.first();
    let upper = upper.ok_or_else(|| Error::internal("a machine has no disk"))?;
    let is_upper = in_workspace.is_some() || layers.len() > 1;
    let (new, file) = store.new_mount().map_err(environment_error)?;
    let mut packing = Packing {
        disk: open(upper, is_upper)?,
        tar: TarWriter::new(BufWriter::new(file)),
        left: limits::BUILD_MOUNT_BYTES.max,
    };
    let top = packing.find(inside)?;
    // If the step has removed the target directory, the cache becomes empty.
    if top.is_some_and(|top| top.kind == Kind::Directory) && !packing.directory(inside, b"", 0)? {
        return Ok(false);
    }
    let failed = |error| Error::io("cannot keep a cache", &error);
    packing.tar.finish().map_err(failed)?;
    store
        .keep_mount(&cache.key, new)
        .map_err(environment_error)?;
    Ok(true)
}

struct Packing<W> {
    disk: Box<dyn Layer>,
    tar: TarWriter<W>,
    /// Bytes that may still be packed.
    left: u64,
}

impl<W: Write> Packing<W> {
    /// The attributes of a path, if all its parents are directories on this disk.
    fn find(&mut self, path: &[u8]) -> Result<Option<Attributes>> {
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = self.disk.stat(&path[..at])?;
            if above.is_none_or(|above| above.kind != Kind::Directory) {
                return Ok(None);
            }
        }
        Ok(self.disk.stat(path)?)
    }

    /// Packs a directory. Returns false if it is too large.
    fn directory(&mut self, inside: &[u8], outside: &[u8], depth: usize) -> Result<bool> {
        if depth > MAX_DEPTH {
            return Err(Error::limit("a directory of a cache is too deep"));
        }
        let mut names = self.disk.names(inside, MAX_NAMES)?;
        names.sort_unstable();
        for name in names {
            let path = [inside, b"/", &name].concat();
            let to = match outside {
                b"" => name,
                above => [above, b"/", &name].concat(),
            };
            let Some(found) = self.disk.stat(&path)? else {
                continue;
            };
            let whole = self.entry(&path, &to, &found)?
                && (found.kind != Kind::Directory || self.directory(&path, &to, depth + 1)?);
            if !whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entry(&mut self, inside: &[u8], outside: &[u8], found: &Attributes) -> Result<bool> {
        let failed = |error| Error::io("cannot keep a cache", &error);
        let meta = Meta {
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            modified_unix_ns: found.modified_unix_ns,
        };
        let cost = ENTRY_BYTES.saturating_add(found.size);
        let Some(left) = self.left.checked_sub(cost) else {
            return Ok(false);
        };
        self.left = left;
        let none = Default::default();
        let written = match found.kind {
            Kind::Directory => self.tar.directory(outside, meta, &none),
            Kind::Symlink => self.tar.symlink(outside, meta, &found.symlink_target),
            Kind::File => {
                let mut contents = spooled(self.disk.as_mut(), inside, found.size)?;
                let size = found.size;
                self.tar.file(outside, meta, &none, size, &mut contents)
            }
            // Sockets, pipes and devices belong to the machine.
            Kind::Other | Kind::Whiteout => Ok(()),
        };
        written.map_err(failed)?;
        Ok(true)
    }
}

/// Bytes counted per entry in addition to its contents.
const ENTRY_BYTES: u64 = 512;
