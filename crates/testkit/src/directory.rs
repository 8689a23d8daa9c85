//! A root filesystem in a directory of this host, so that a pull needs no network.

use crate::story::Story;
use std::path::PathBuf;

/// The installed `busybox` of a story, as a directory.
pub fn of_busybox(story: &Story) -> PathBuf {
    let known = story.motu(&["env", "inspect", "busybox", "--json"]);
    let known: serde_json::Value = serde_json::from_str(&known.stdout).unwrap();
    let digest = known["digest"].as_str().unwrap().replace(':', "-");
    let blobs = story.home().join("environments/blobs");
    blobs.join(digest).join("root").canonicalize().unwrap()
}
