//! Images and root filesystems on this host.
//!
//! Reads OCI layouts, archives of `docker save`, archives of a root filesystem and directories.
//! Whatever can be read in place is not copied.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt as _,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{Found, Import, made_from, obtain::Supply};
use crate::{
    digest::hex,
    error::{EnvironmentError, IoContext as _},
    layer::{archive::Archive, decompress, entry::EntryKind, index::Section},
    oci::manifest::{
        self, Config, Descriptor, Document, MAX_DOCUMENT_BYTES, Manifest, Settings, json, malformed,
    },
    pack,
    store::Staging,
};

/// Most files in an archive of `docker save`.
const MAX_MEMBERS: usize = 10_000;

/// One image of an archive of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    layers: Vec<String>,
}

impl Import {
    /// `None` if the installed image is the one in the layout.
    pub(super) fn read_layout(
        &self,
        path: &Path,
        tag: Option<&str>,
        installed: Option<&str>,
    ) -> Result<Option<Found>, EnvironmentError> {
        let index = read_document(&path.join("index.json"))?;
        self.read_index(&index, tag, installed, &|blob| open_blob(path, blob))
    }

    /// The image of a layout whose blobs `open` finds.
    fn read_index(
        &self,
        index: &[u8],
        tag: Option<&str>,
        installed: Option<&str>,
        open: &dyn Fn(&Descriptor) -> Result<Section, EnvironmentError>,
    ) -> Result<Option<Found>, EnvironmentError> {
        let name = self.name.clone();
        let Document::Index(entries) = Document::parse(&format!("index of {name}"), index)? else {
            return Err(malformed(&name, "index.json lists no images"));
        };
        let entries = manifest::tagged(entries, tag);
        if entries.is_empty() {
            return Err(malformed(&name, "it has no such image"));
        }
        if entries.len() > 1 && entries.iter().all(|entry| entry.platform.is_none()) {
            let reason = "it holds several images; name one as oci:<path>:<tag>";
            return Err(malformed(&name, reason));
        }
        let chosen = manifest::choose(&name, &entries)?;
        if installed == Some(made_from(&chosen.digest).as_str()) {
            return Ok(None);
        }
        let (manifest, digest) = self.follow_blobs(open, chosen.clone())?;
        let config = read_blob(open, &manifest.config)?;
        let config = Config::parse(&name, &config, manifest.layers.len())?;
        let sections = manifest.layers.iter().map(|layer| {
            let section = open(layer)?;
            check_digest(section.clone(), layer)?;
            Ok((section, Some(layer.digest.clone())))
        });
        let sections: Result<Vec<_>, EnvironmentError> = sections.collect();
        let layers = self.obtain(&Supply::Local(sections?), Some(&config.rootfs.diff_ids))?;
        Ok(Some(Found {
            made_from: made_from(&chosen.digest),
            manifest_digest: Some(digest),
            settings: config.config.unwrap_or_default(),
            layers,
        }))
    }

    /// The manifest that an entry leads to, through at most one more index.
    fn follow_blobs(
        &self,
        open: &dyn Fn(&Descriptor) -> Result<Section, EnvironmentError>,
        entry: Descriptor,
    ) -> Result<(Manifest, String), EnvironmentError> {
        let name = self.name.clone();
        let document = Document::parse(&name, &read_blob(open, &entry)?)?;
        let entries = match document {
            Document::Image(manifest) => return Ok((manifest, entry.digest)),
            Document::Index(entries) => entries,
        };
        let chosen = manifest::choose(&name, &entries)?;
        match Document::parse(&name, &read_blob(open, &chosen)?)? {
            Document::Image(manifest) => Ok((manifest, chosen.digest)),
            Document::Index(_) => Err(malformed(&name, "it lists a list of images")),
        }
    }

    /// Reads an OCI layout in an archive, or the output of `docker save`.
    pub(super) fn read_oci_archive(
        &self,
        path: &Path,
        staging: &Staging,
        installed: Option<&str>,
    ) -> Result<Option<Found>, EnvironmentError> {
        let file = open(path)?;
        let print = fingerprint(&file, path)?;
        let members = members(&self.name, self.uncompressed(file, path, staging)?)?;
        let Some(index) = find_member(&members, "index.json") else {
            return self.read_saved(&members, print).map(Some);
        };
        let find = |blob: &Descriptor| {
            let digits = blob.digest.trim_start_matches("sha256:");
            let member = format!("blobs/sha256/{digits}");
            let found = find_member(&members, &member);
            found.ok_or_else(|| malformed(&self.name, format!("it holds no {member:?}")))
        };
        self.read_index(&read_section(index)?, None, installed, &find)
    }

    /// `None` if the archive has not changed since it was imported.
    pub(super) fn read_docker_archive(
        &self,
        path: &Path,
        staging: &Staging,
        installed: Option<&str>,
    ) -> Result<Option<Found>, EnvironmentError> {
        let name = self.name.clone();
        let file = open(path)?;
        let print = fingerprint(&file, path)?;
        if installed == Some(print.as_str()) {
            return Ok(None);
        }
        let whole = self.uncompressed(file, path, staging)?;
        self.read_saved(&members(&name, whole)?, print).map(Some)
    }

    fn read_saved(
        &self,
        members: &HashMap<String, Member>,
        print: String,
    ) -> Result<Found, EnvironmentError> {
        let name = self.name.clone();
        let find = |member: &str| {
            let found = find_member(members, member);
            found.ok_or_else(|| malformed(&name, format!("it holds no {member:?}")))
        };
        let images: Vec<SavedImage> = json(&name, &read_section(find("manifest.json")?)?)?;
        let [image] = images.as_slice() else {
            let reason = format!("it holds {} images, not one", images.len());
            return Err(malformed(&name, reason));
        };
        let config = read_section(find(&image.config)?)?;
        let config = Config::parse(&name, &config, image.layers.len())?;
        let sections = image.layers.iter().map(|layer| Ok((find(layer)?, None)));
        let sections: Result<Vec<_>, EnvironmentError> = sections.collect();
        let layers = self.obtain(&Supply::Local(sections?), Some(&config.rootfs.diff_ids))?;
        Ok(Found {
            made_from: print,
            manifest_digest: None,
            settings: config.config.unwrap_or_default(),
            layers,
        })
    }

    /// `None` if the archive has not changed since it was imported.
    pub(super) fn read_tar(
        &self,
        path: &Path,
        installed: Option<&str>,
    ) -> Result<Option<Found>, EnvironmentError> {
        let file = open(path)?;
        let print = fingerprint(&file, path)?;
        if installed == Some(print.as_str()) {
            return Ok(None);
        }
        let section = Section::whole(file).at("reading", path)?;
        self.read_root(section, print).map(Some)
    }

    /// Reads a directory through tar, with the ids that files have inside environments.
    pub(super) fn read_directory(
        &self,
        path: &Path,
        staging: &Staging,
    ) -> Result<Found, EnvironmentError> {
        if !path.is_dir() {
            let missing = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(missing).at("reading", path);
        }
        self.progress
            .say("resolve", format!("reading {}", path.display()));
        let spooled = pack::spool(&self.store, path, staging, &self.cancel, |status| {
            status.success()
        })?;
        let section = Section::whole(spooled).at("reading", path)?;
        self.read_root(section, made_from("directory"))
    }

    /// A root filesystem of one layer without configuration.
    fn read_root(&self, section: Section, made_from: String) -> Result<Found, EnvironmentError> {
        let layers = self.obtain(&Supply::Local(vec![(section, None)]), None)?;
        Ok(Found {
            made_from,
            manifest_digest: None,
            settings: Settings::default(),
            layers,
        })
    }

    /// The archive itself, or an uncompressed copy: its members are read in place.
    fn uncompressed(
        &self,
        file: File,
        path: &Path,
        staging: &Staging,
    ) -> Result<Section, EnvironmentError> {
        let section = Section::whole(file).at("reading", path)?;
        let mut start = Vec::new();
        let mut head = section.clone().take(4);
        head.read_to_end(&mut start).at("reading", path)?;
        if !decompress::is_compressed(&start) {
            return Ok(section);
        }
        let compressed = section.length;
        let unpacked = decompress::open(section, compressed, &self.cancel).at("reading", path)?;
        let (mut spool, spooled) = pack::spool_file(staging)?;
        pack::copy_limited(unpacked, &mut spool)?;
        Section::whole(spooled).at("reading", path)
    }
}

/// The name that an archive gives its only image. A compressed archive is not searched for one.
pub(crate) fn name_in(path: &Path) -> Result<String, EnvironmentError> {
    let what = "the archive";
    let nameless = || malformed(what, "it does not say what its image is called; say a name");
    let section = Section::whole(open(path)?).at("reading", path)?;
    let mut head = Vec::new();
    let mut start = section.clone().take(4);
    start.read_to_end(&mut head).at("reading", path)?;
    if decompress::is_compressed(&head) {
        return Err(nameless());
    }
    let members = members(what, section)?;
    let index = find_member(&members, "index.json").ok_or_else(nameless)?;
    let Document::Index(entries) = Document::parse(what, &read_section(index)?)? else {
        return Err(nameless());
    };
    let name = |entry: &Descriptor| entry.annotations.as_ref()?.get(manifest::REF_NAME).cloned();
    entries.iter().find_map(name).ok_or_else(nameless)
}

/// A member of an archive: its contents, or another member with the same contents.
enum Member {
    Contents(Section),
    /// Older archives use links for repeated layers.
    SameAs(String),
}

fn members(name: &str, whole: Section) -> Result<HashMap<String, Member>, EnvironmentError> {
    let broken = |error: io::Error| malformed(name, error.to_string());
    let mut archive = Archive::new(whole.clone());
    let mut members = HashMap::new();
    while let Some(entry) = archive.next_entry().map_err(broken)? {
        if members.len() >= MAX_MEMBERS {
            return Err(malformed(name, "it holds too many files"));
        }
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        let path = path.trim_start_matches("./").to_owned();
        match entry.kind {
            EntryKind::File => {
                let offset = archive.get_ref().offset;
                let section = Section {
                    file: whole.file.clone(),
                    offset,
                    length: entry.size,
                };
                members.insert(path, Member::Contents(section));
            }
            EntryKind::Symlink | EntryKind::HardLink => {
                let link = String::from_utf8_lossy(&entry.link).into_owned();
                // A link relative to its target: "../<id>/layer.tar".
                let link = link.trim_start_matches("../").trim_start_matches("./");
                members.insert(path, Member::SameAs(link.to_owned()));
            }
            _ => {}
        }
    }
    Ok(members)
}

fn find_member(members: &HashMap<String, Member>, name: &str) -> Option<Section> {
    let mut name = name.trim_start_matches("./");
    for _ in 0..3 {
        match members.get(name)? {
            Member::Contents(section) => return Some(section.clone()),
            Member::SameAs(other) => name = other,
        }
    }
    None
}

fn open(path: &Path) -> Result<File, EnvironmentError> {
    // A pipe would keep its reader waiting for somebody to write.
    let mut options = File::options();
    options.read(true);
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).at("opening", path)?;
    if !file.metadata().at("reading", path)?.is_file() {
        let wrong = io::Error::other("it is not a file");
        return Err(wrong).at("reading", path);
    }
    Ok(file)
}

/// Changes when the file does, as far as its metadata tells.
fn fingerprint(file: &File, path: &Path) -> Result<String, EnvironmentError> {
    let meta = file.metadata().at("reading", path)?;
    Ok(made_from(&format!(
        "file {} {} {}.{:09}",
        meta.ino(),
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec()
    )))
}

fn read_document(path: &Path) -> Result<Vec<u8>, EnvironmentError> {
    let section = Section::whole(open(path)?).at("reading", path)?;
    read_section(section)
}

fn read_section(section: Section) -> Result<Vec<u8>, EnvironmentError> {
    if section.length > MAX_DOCUMENT_BYTES {
        return Err(EnvironmentError::TooLarge {
            what: "bytes in a manifest",
            limit: MAX_DOCUMENT_BYTES,
        });
    }
    let mut bytes = Vec::new();
    let mut section = section;
    section
        .read_to_end(&mut bytes)
        .map_err(|error| EnvironmentError::io("reading a manifest", error))?;
    Ok(bytes)
}

fn open_blob(layout: &Path, blob: &Descriptor) -> Result<Section, EnvironmentError> {
    let digits = blob.digest.trim_start_matches("sha256:");
    let path = layout.join("blobs").join("sha256").join(digits);
    Section::whole(open(&path)?).at("reading", &path)
}

/// A small blob of a layout, checked.
fn read_blob(
    open: &dyn Fn(&Descriptor) -> Result<Section, EnvironmentError>,
    blob: &Descriptor,
) -> Result<Vec<u8>, EnvironmentError> {
    let section = open(blob)?;
    let bytes = read_section(section.clone())?;
    check_digest(section, blob)?;
    Ok(bytes)
}

fn check_digest(mut section: Section, blob: &Descriptor) -> Result<(), EnvironmentError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match section.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(EnvironmentError::io("reading a blob", error)),
        }
    }
    let found = format!("sha256:{}", hex(&hash.finalize()));
    if found == blob.digest {
        return Ok(());
    }
    Err(EnvironmentError::DigestMismatch {
        what: "a blob of the layout".to_owned(),
        expected: blob.digest.clone(),
        found,
    })
}
