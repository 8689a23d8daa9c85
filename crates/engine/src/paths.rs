//! Stored paths, relative to the state directory.
//!
//! A state directory can be moved, copied or reached through another link. Rows of earlier versions
//! have absolute paths, perhaps of a former location: these are resolved by the part of the layout
//! that they name (`…/kept/ID/disks-1`).

use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// JSON pointers to paths in a row, and the part of the state directory each lies in.
type Fields = &'static [(&'static str, &'static str)];

pub(crate) const LAUNCH: Fields = &[
    ("/root", ENVIRONMENTS),
    ("/kept/dir", "kept"),
    ("/kept/baseline", "baselines"),
];
pub(crate) const MACHINE: Fields = &[("/dir", "machines"), ("/record/kept", "kept")];

/// Environments may be shared between state directories and lie outside of this one.
const ENVIRONMENTS: &str = "environments";

/// The state directory that paths are relative to.
#[derive(Clone, Debug)]
pub struct Base {
    home: PathBuf,
}

impl Base {
    pub fn new(home: &Path) -> Base {
        Base {
            home: home.to_path_buf(),
        }
    }

    /// Makes the paths in a row's JSON relative.
    pub(crate) fn stored(&self, mut value: Value, fields: Fields) -> Value {
        for (pointer, part) in fields {
            replace(&mut value, pointer, |path| self.relative(path, part));
        }
        value
    }

    /// Makes the paths in a row's JSON absolute.
    pub(crate) fn loaded(&self, mut value: Value, fields: Fields) -> Value {
        for (pointer, part) in fields {
            replace(&mut value, pointer, |path| {
                // `join` with an absolute path gives that path.
                self.home.join(self.relative(path, part))
            });
        }
        value
    }

    fn relative(&self, path: &Path, part: &str) -> PathBuf {
        if let Ok(inside) = path.strip_prefix(&self.home) {
            return inside.to_path_buf();
        }
        let Some(tail) = path.is_absolute().then(|| tail(path, part)).flatten() else {
            return path.to_path_buf();
        };
        match part == ENVIRONMENTS && !self.home.join(&tail).exists() {
            true => path.to_path_buf(),
            false => tail,
        }
    }
}

/// The end of a path, from the last component with this name.
fn tail(path: &Path, part: &str) -> Option<PathBuf> {
    let names: Vec<Component<'_>> = path.components().collect();
    let at = names.iter().rposition(|name| name.as_os_str() == part)?;
    Some(names[at..].iter().collect())
}

fn replace(value: &mut Value, pointer: &str, change: impl FnOnce(&Path) -> PathBuf) {
    if let Some(Value::String(text)) = value.pointer_mut(pointer)
        && !text.is_empty()
        && let Some(changed) = change(Path::new(text.as_str())).to_str()
    {
        *text = changed.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_follow_their_state_directory() {
        let (old, new) = (
            Base::new(Path::new("/old/home")),
            Base::new(Path::new("/new")),
        );
        let launch = json!({
            "root": "/elsewhere/environments/blobs/x/root",
            "env": { "PATH": "/old/home/bin" },
            "kept": { "dir": "/old/home/kept/ws-1/disks-1", "baseline": "/old/home/baselines/base-1/tree" },
        });
        let stored = old.stored(launch.clone(), LAUNCH);
        assert_eq!(stored["kept"]["dir"], "kept/ws-1/disks-1");
        assert_eq!(stored["kept"]["baseline"], "baselines/base-1/tree");
        assert_eq!(stored["env"]["PATH"], "/old/home/bin");
        assert_eq!(old.loaded(stored.clone(), LAUNCH), launch);
        let moved = new.loaded(stored, LAUNCH);
        assert_eq!(moved["kept"]["dir"], "/new/kept/ws-1/disks-1");
        // A path outside of the state directory is not changed.
        assert_eq!(moved["root"], launch["root"]);
    }

    #[test]
    fn absolute_paths_of_another_place_are_read_by_their_part_of_the_layout() {
        let base = Base::new(Path::new("/new/kept/home"));
        let machine = json!({
            "dir": "/old/kept/home/machines/container/ws-1",
            "record": { "kept": "/old/kept/home/kept/ws-1/disks-2", "slot": 3 },
        });
        let stored = base.stored(machine, MACHINE);
        assert_eq!(stored["dir"], "machines/container/ws-1");
        assert_eq!(stored["record"]["kept"], "kept/ws-1/disks-2");
        assert_eq!(stored["record"]["slot"], 3);
    }

    #[test]
    fn an_environment_that_came_along_is_the_one_used() {
        let home = tempfile::tempdir().unwrap();
        let root = "environments/blobs/x/root";
        std::fs::create_dir_all(home.path().join(root)).unwrap();
        let base = Base::new(home.path());
        let stored = base.stored(json!({ "root": format!("/old/{root}") }), LAUNCH);
        assert_eq!(stored["root"], root);
        // A machine of the `host` runtime has no root.
        assert_eq!(base.loaded(json!({ "root": "" }), LAUNCH)["root"], "");
    }
}
