//! Disks that outlive their machine.
//!
//! Everything is in one directory, which may be moved while no machine uses it;
//! names inside it are relative to it.
//!
//! ```text
//!   kept.json       {"version": 1, "layer": L, "root_bytes": …, "disk_mib": …}
//!   root.ext4       the environment as ext4 with a journal, raw; never written
//!   blank.ext4      an empty ext4 with a journal, raw; never written
//!   baseline.ext4   what /workspace was at first: ext4 without a journal, raw; never written
//!   root-N.qcow2    the disk of /,          N = 0 … L: each above the one before it,
//!   work-N.qcow2    the disk of /workspace, N = 0 … L: number 0 above root.ext4 and blank.ext4
//! ```
//!
//! To read them offline: take `layer` from `kept.json`. `root-L.qcow2` is `/` as
//! a plain ext4, all of it but `/workspace`. `work-L.qcow2` is an ext4 with two
//! directories: `/upper` is the upper directory of an overlay (whiteouts are
//! character devices 0:0, a directory that hides the one below it has
//! `trusted.overlay.opaque` = `y`; no redirects, no metacopy, no index) and
//! `/work` is the overlay's own. Its lower directory is the root of
//! `baseline.ext4`. The qcow2 files have version 3, clusters of 64 KiB, no
//! compression, no encryption, no snapshots, no outside data file; the disk below
//! is named in the header (`raw` or `qcow2`) and reads as zero beyond its end. A
//! machine that was killed leaves journals to be replayed.
//!
//! A file system's own journal and flushes that reach the host's disk make the
//! disks survive the end of QEMU and of the host at any moment. The directory is
//! locked (`flock`) as long as a machine's QEMU lives: no second machine can use
//! the disks, and who reads them offline takes the lock first.
//!
//! A new directory that has a `baseline.ext4` and no `kept.json` keeps that
//! image: whoever resets a workspace can link it from the old directory to the new one.

use crate::blocking::blocking;
use crate::cache;
use crate::disks::{DISKS, disk_file};
use crate::error::QemuError;
use crate::image::{self, Image, SLACK};
use crate::place::Place;
use crate::qcow2::{self, Below};
use crate::tool;
use motu_core::Error;
use motu_core::runtime::{AtRest, BASELINE_OWNER, RestLayer};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::Path;

const VERSION: u32 = 1;
const MANIFEST: &str = "kept.json";
/// The images below the first layers, in the order of the disks.
const IMAGES: [&str; 2] = ["root.ext4", "blank.ext4"];
pub(crate) const BASELINE: &str = "baseline.ext4";

/// What is known of a directory of kept disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    version: u32,
    /// The generation that is written to.
    pub(crate) layer: u32,
    pub(crate) root_bytes: u64,
    pub(crate) disk_mib: u64,
}

impl Manifest {
    /// What is in a directory; `None` in one that no machine has used.
    pub(crate) fn load(dir: &Path) -> Result<Option<Manifest>, QemuError> {
        let text = match std::fs::read(dir.join(MANIFEST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(QemuError::io("cannot read about the kept disks"))?,
        };
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|_| damaged("kept.json is unreadable"))?;
        match manifest.version {
            VERSION => Ok(Some(manifest)),
            other => Err(damaged(&format!(
                "they are of version {other}; this motu knows version {VERSION}"
            ))),
        }
    }

    /// Written whole and on the disk before anything depends on it.
    pub(crate) fn store(&self, dir: &Path) -> Result<(), QemuError> {
        let storing = || QemuError::io("cannot write about the kept disks");
        let text = serde_json::to_vec(self).map_err(|error| storing()(error.into()))?;
        let staged = dir.join("kept.json.new");
        std::fs::write(&staged, text).map_err(storing())?;
        sync(&staged).map_err(storing())?;
        std::fs::rename(&staged, dir.join(MANIFEST)).map_err(storing())?;
        sync(dir).map_err(storing())
    }

    /// Refuses disks that are cut short or altered in a way that can be seen from outside.
    pub(crate) fn check(&self, dir: &Path) -> Result<(), QemuError> {
        for (disk, image) in DISKS.iter().zip(IMAGES) {
            let bytes = self.bytes(disk);
            for layer in 0..=self.layer {
                let name = disk_file(disk, layer);
                let below = match layer {
                    0 => (image.to_string(), Below::Raw),
                    _ => (disk_file(disk, layer - 1), Below::Qcow2),
                };
                qcow2::check(&dir.join(&name), bytes, &below.0, below.1)
                    .map_err(|reason| damaged(&format!("{name}: {reason}")))?;
            }
            present(dir, image)?;
        }
        present(dir, BASELINE)
    }

    /// Leaves only the newest layer to the machine that starts: a fork that was cut short
    /// may have left the one below to the machine before it.
    pub(crate) fn freeze(&self, place: &Place) -> Result<(), QemuError> {
        for layer in 0..self.layer {
            for disk in DISKS {
                place.freeze(&disk_file(disk, layer))?;
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self, disk: &str) -> u64 {
        match disk {
            "root" => self.root_bytes,
            _ => self.disk_mib << 20,
        }
    }
}

fn present(dir: &Path, name: &str) -> Result<(), QemuError> {
    match dir.join(name).metadata() {
        Ok(found) if found.len() > 0 => Ok(()),
        _ => Err(damaged(&format!("{name} is missing"))),
    }
}

fn damaged(reason: &str) -> QemuError {
    QemuError::Disks {
        reason: reason.to_string(),
    }
}

/// Whether a machine was started on these disks before.
pub(crate) fn is_there(dir: &Path) -> bool {
    dir.join(MANIFEST).exists()
}

/// Where the file systems are while no machine runs.
pub(crate) fn at_rest(dir: &Path) -> Result<AtRest, Error> {
    let manifest = Manifest::load(dir)?;
    let manifest = manifest.ok_or_else(|| Error::not_found("the machine was never started"))?;
    let chain = |disk: &str, base: &str| {
        let layers = (0..=manifest.layer)
            .rev()
            .map(|layer| disk_file(disk, layer));
        let names = layers.chain([base.to_string()]);
        names.map(|name| dir.join(name)).collect()
    };
    let disk = |chain, directory: &str| RestLayer::Disk {
        chain,
        directory: directory.to_string(),
    };
    Ok(AtRest {
        root: vec![disk(chain("root", "root.ext4"), "")],
        workspace: vec![
            disk(chain("work", "blank.ext4"), "upper"),
            disk(vec![dir.join("baseline.ext4")], ""),
        ],
    })
}

/// Makes the disks of a machine that starts for the first time. Blocks.
pub(crate) fn begin(
    place: &Place,
    tree: &Path,
    images: [&Image; 2],
    disk_mib: u64,
) -> Result<Manifest, QemuError> {
    let manifest = Manifest {
        version: VERSION,
        layer: 0,
        root_bytes: images[0].bytes - SLACK + (disk_mib << 20),
        disk_mib,
    };
    for ((disk, name), image) in DISKS.iter().zip(IMAGES).zip(images) {
        let file = disk_file(disk, 0);
        // What a start that did not get far has left.
        cache::remove(&place.file(name))?;
        cache::remove(&place.file(&file))?;
        place.link(&image.path, name)?;
        qcow2::create(&place.file(&file), manifest.bytes(disk), name, Below::Raw)
            .map_err(QemuError::io("cannot make a disk"))?;
        sync(&place.file(&file)).map_err(QemuError::io("cannot make a disk"))?;
    }
    baseline(place, tree)?;
    manifest.store(place.path())?;
    Ok(manifest)
}

fn baseline(place: &Place, tree: &Path) -> Result<(), QemuError> {
    let image = place.file(BASELINE);
    if image.exists() {
        return Ok(());
    }
    let staged = place.file("baseline.ext4.new");
    cache::remove(&staged)?;
    image::of_tree(tree, &staged, owner_of(tree)?)?;
    std::fs::rename(staged, image).map_err(QemuError::io("cannot keep the baseline"))
}

/// Whose the files of a baseline are to be, if the host's ids do not say so ([`BASELINE_OWNER`]): root's, unless somebody
/// is named.
fn owner_of(tree: &Path) -> Result<Option<(u32, u32)>, QemuError> {
    if rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let text = match std::fs::read_to_string(tree.with_file_name(BASELINE_OWNER)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some((0, 0))),
        Err(error) => return Err(QemuError::io("cannot read whose the baseline is")(error)),
    };
    let ids = text.trim().split_once(':');
    let ids = ids.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    ids.map(Some)
        .ok_or_else(|| damaged(&format!("the owner of the baseline is {text:?}")))
}

/// Gives a copy of a machine disks of its own above those of its source. Blocks.
pub(crate) fn copy(source: &Place, place: &Place, manifest: &Manifest) -> Result<(), QemuError> {
    for name in source.shared_files(manifest.layer)? {
        cache::remove(&place.file(&name))?;
        place.link(&source.file(&name), &name)?;
    }
    for disk in DISKS {
        let (below, file) = (
            disk_file(disk, manifest.layer - 1),
            place.file(&disk_file(disk, manifest.layer)),
        );
        cache::remove(&file)?;
        qcow2::create(&file, manifest.bytes(disk), &below, Below::Qcow2)
            .map_err(QemuError::io("cannot make a disk"))?;
        sync(&file).map_err(QemuError::io("cannot make a disk"))?;
    }
    manifest.store(place.path())
}

/// Writes the disk of `/` as raw ext4 to a new file, sparse. The machine must be stopped.
///
/// `/workspace` is not on it: see the module's text for where it is.
pub async fn flatten(kept_dir: &Path, output: &Path) -> Result<(), Error> {
    flatten_disk(kept_dir, DISKS[0], output).await
}

/// Writes the disk of `/workspace` as raw ext4: the layers of its overlay, as they are.
pub async fn flatten_workspace(kept_dir: &Path, output: &Path) -> Result<(), Error> {
    flatten_disk(kept_dir, DISKS[1], output).await
}

async fn flatten_disk(dir: &Path, disk: &'static str, output: &Path) -> Result<(), Error> {
    let (dir, output) = (dir.to_path_buf(), output.to_path_buf());
    let work = move || {
        let _claim = Place::claim(&dir)?;
        let manifest = Manifest::load(&dir)?.ok_or_else(|| damaged("there are none here"))?;
        // Also sees to it that the files name nothing outside their directory.
        manifest.check(&dir)?;
        let mut convert = tool::command("qemu-img")?;
        convert
            .args(["convert", "-f", "qcow2", "-O", "raw"])
            .arg(dir.join(disk_file(disk, manifest.layer)))
            .arg(&output);
        tool::run(convert).map(drop)
    };
    blocking(work).await.map_err(Error::from)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn altered_disks_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest {
            version: VERSION,
            layer: 1,
            root_bytes: 64 << 20,
            disk_mib: 32,
        };
        assert_eq!(Manifest::load(dir.path()).unwrap(), None);
        let file = |name: &str| dir.path().join(name);
        for (disk, image) in DISKS.iter().zip(IMAGES) {
            std::fs::write(file(image), "x").unwrap();
            let bytes = manifest.bytes(disk);
            qcow2::create(&file(&disk_file(disk, 0)), bytes, image, Below::Raw).unwrap();
            let below = disk_file(disk, 0);
            qcow2::create(&file(&disk_file(disk, 1)), bytes, &below, Below::Qcow2).unwrap();
        }
        std::fs::write(file(BASELINE), "x").unwrap();
        manifest.store(dir.path()).unwrap();
        let found = Manifest::load(dir.path()).unwrap().unwrap();
        assert_eq!(found, manifest);
        found.check(dir.path()).unwrap();

        let other = Manifest {
            root_bytes: 65 << 20,
            ..manifest.clone()
        };
        other.check(dir.path()).unwrap_err();
        std::fs::remove_file(file(BASELINE)).unwrap();
        let error = manifest.check(dir.path()).unwrap_err();
        assert!(error.to_string().contains(BASELINE), "{error}");
        std::fs::write(
            file(MANIFEST),
            r#"{"version":9,"layer":0,"root_bytes":1,"disk_mib":1}"#,
        )
        .unwrap();
        let error = Manifest::load(dir.path()).unwrap_err();
        assert!(error.to_string().contains("version 9"), "{error}");
    }
}
