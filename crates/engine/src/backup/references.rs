//! What refers to what: read from the records themselves, in a state directory or in a backup of
//! one.

use super::parts::Kind;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A name of an environment, as its record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The record's file name.
    pub file: String,
    pub name: String,
    pub digest: String,
}

/// All names of environments in a directory with the layout of a state directory.
pub fn names(dir: &Path) -> Vec<Name> {
    let place = dir.join("environments/names");
    let found = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut all: Vec<Name> = found
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let record = json(&entry.path())?;
            let text = |field: &str| record[field].as_str().map(str::to_string);
            Some(Name {
                file,
                name: text("name")?,
                digest: text("digest")?,
            })
        })
        .collect();
    all.sort_by(|a, b| a.file.cmp(&b.file));
    all
}

/// Where the files of an environment are.
pub fn blob(digest: &str) -> PathBuf {
    Path::new("environments/blobs").join(digest.replace(':', "-"))
}

/// The environments that a template's machines start from, or are built from again.
pub fn environments_of(template: &Value) -> Vec<String> {
    let template = &template["record"];
    let named = [
        &template["definition"]["environment"],
        &template["built"]["environment"],
    ];
    let named = named.into_iter().filter_map(Value::as_str);
    named
        .filter(|name| !name.is_empty())
        .map(str::to_string)
        .collect()
}

/// The machine that was saved for a template.
pub fn memory_of(template: &Value) -> Option<PathBuf> {
    let template: motu_core::template::Template =
        serde_json::from_value(template["record"].clone()).ok()?;
    let saved = template.asleep()?;
    Some(Path::new("saved").join(crate::home::saved_entry(&template.name, saved)))
}

/// The digest and the baseline of a kept sandbox.
pub fn of_kept(dir: &Path) -> Vec<PathBuf> {
    let Some(record) = json(&dir.join("sandbox.json")) else {
        return Vec::new();
    };
    let mut needs = Vec::new();
    let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str);
    needs.extend(
        text("/sandbox/digest")
            .filter(|one| !one.is_empty())
            .map(blob),
    );
    let baseline = text("/launch/kept/baseline").map(Path::new);
    needs.extend(baseline.and_then(Path::parent).map(Path::to_path_buf));
    needs
}

/// What a thing needs of the other things in the same directory, as far as that is there.
pub fn of(dir: &Path, kind: Kind, path: &Path) -> Vec<PathBuf> {
    let place = dir.join(path);
    let mut needs = match kind {
        Kind::Workspace => of_kept(&place),
        Kind::EnvironmentName => {
            let digest = json(&place).and_then(|name| Some(blob(name["digest"].as_str()?)));
            digest.into_iter().collect()
        }
        Kind::Template => match json(&place) {
            Some(template) => {
                let mut needs: Vec<PathBuf> = memory_of(&template).into_iter().collect();
                let asked = environments_of(&template);
                let meant = |name: &Name| asked.iter().any(|asked| is_meant(&name.name, asked));
                let found = names(dir).into_iter().filter(meant);
                needs.extend(found.map(|name| Path::new("environments/names").join(name.file)));
                needs
            }
            None => Vec::new(),
        },
        Kind::Secret => vec![PathBuf::from("secrets.key")],
        Kind::Audit => vec![PathBuf::from("audit.key")],
        _ => Vec::new(),
    };
    needs.retain(|path| dir.join(path).exists());
    needs
}

/// Whether a name as it is stored is the one that was asked for.
pub fn is_meant(stored: &str, asked: &str) -> bool {
    motu_environments::is_spelled(stored, asked)
}

pub fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
