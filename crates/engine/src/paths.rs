//! Paths as the store has them: relative to the state directory.
//!
//! So a state directory that was moved, copied or is reached by another link keeps everything.
//! Rows of earlier versions have absolute paths, perhaps of a place where the directory is no
//! longer: what is kept lies inside the state directory by construction, so such a path is read
//! from the part of the layout it names (`…/kept/ID/disks-1`).

use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// Where a row's JSON has paths, and in which part of the state directory they lie.
type Fields = &'static [(&'static str, &'static str)];

pub(crate) const LAUNCH: Fields = &[
    ("/root", ENVIRONMENTS),
    ("/kept/dir", "kept"),
    ("/kept/baseline", "baselines"),
];
pub(crate) const MACHINE: Fields = &[("/dir", "machines"), ("/record/kept", "kept")];

/// Environments may be shared with other state directories and lie elsewhere.
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

    /// A row's JSON as it is stored.
    pub(crate) fn stored(&self, mut value: Value, fields: Fields) -> Value {
        for (pointer, part) in fields {
            replace(&mut value, pointer, |path| self.relative(path, part));
        }
        value
    }

    /// A row's JSON as it is used.
    pub(crate) fn loaded(&self, mut value: Value, fields: Fields) -> Value {
        for (pointer, part) in fields {
            replace(&mut value, pointer, |path| {
                // Joining an absolute path gives that path.
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

/// A path from the last place on where this part of a state directory begins.
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
        // Not in this state directory, so where it was.
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
        // A machine on the host itself has none.
        assert_eq!(base.loaded(json!({ "root": "" }), LAUNCH)["root"], "");
    }
}
