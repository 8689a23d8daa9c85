//! A restore that is killed anywhere.

use super::*;
use crate::backup::manifest::{VERSION, describe};
use crate::backup::verify;
use jiff::Timestamp;
use motu_core::ErrorKind;
use std::collections::BTreeMap;

const FILES: [(&str, &str); 9] = [
    ("config.toml", "runtime = \"container\"\n"),
    (
        "environments/names/own.json",
        r#"{"name":"own:1","digest":"sha256:ab"}"#,
    ),
    (
        "environments/blobs/sha256-ab/root/file",
        "of the environment",
    ),
    ("keys/aaaaaaaaaaaa.json", "{}"),
    ("policies/own.toml", "version = 1\n"),
    ("secrets.key", "0123456789abcdef0123456789abcdef"),
    ("kept/ws-1/disks-1/disk.img", "of the workspace"),
    ("audit/00000000000000000001.jsonl", "{}\n"),
    ("motu.db", "the store"),
];

/// A backup with some of everything.
fn backup(dir: &Path) -> Manifest {
    for (path, text) in FILES {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::create_dir(dir.join("templates")).unwrap();
    let manifest = Manifest {
        version: VERSION,
        id: "one".to_string(),
        motu: String::new(),
        made_at: Timestamp::now(),
        workspaces: vec![SandboxId::parse("ws-1").unwrap()],
        items: describe(dir).unwrap(),
        left_out: Vec::new(),
    };
    manifest.write(dir).unwrap();
    manifest
}

/// All files below a directory, with their contents.
fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            match entry.path().is_dir() {
                true => open.push(entry.path()),
                false => {
                    let path = entry.path().strip_prefix(dir).unwrap().to_path_buf();
                    all.insert(path, std::fs::read_to_string(entry.path()).unwrap());
                }
            }
        }
    }
    all
}

fn expected() -> BTreeMap<PathBuf, String> {
    let file = |(path, text): (&str, &str)| (PathBuf::from(path), text.to_string());
    FILES.into_iter().map(file).collect()
}

#[test]
fn a_restore_that_was_killed_anywhere_is_finished_or_undone() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("backup");
    std::fs::create_dir(&from).unwrap();
    let manifest = backup(&from);
    assert!(verify(&from).unwrap().ok);
    for done in 0..=FILES.len() {
        let home = Home::open(&dir.path().join(format!("home-{done}"))).unwrap();
        let staged = home.path().join(STAGED);
        let plan = stage(&home, &from, &manifest, &staged).unwrap();
        assert_eq!(plan.moves.len(), FILES.len());
        assert_eq!(plan.moves.last().unwrap().0, Path::new("motu.db"));
        for (from, to) in plan.moves.iter().take(done) {
            let to = home.path().join(to);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::rename(staged.join(CONTENT).join(from), to).unwrap();
        }
        // By the next daemon, or by the same command again.
        match done % 2 {
            0 => settle(&home).unwrap(),
            _ => {
                let again = restore(&home, &from).unwrap();
                assert_eq!(again, plan.restored);
            }
        }
        assert_eq!(files(home.path()), expected(), "after {done}");
        assert!(
            home.path().join("templates").is_dir(),
            "what is empty is there"
        );
        settle(&home).unwrap();
        let error = restore(&home, &from).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "it has a store now");
    }
    // Killed while it copied: nothing of it stays.
    let home = Home::open(&dir.path().join("home")).unwrap();
    std::fs::create_dir_all(home.path().join("restoring/content/kept/ws-1")).unwrap();
    settle(&home).unwrap();
    assert!(files(home.path()).is_empty());
    assert!(!home.path().join("kept").exists());
    restore(&home, &from).unwrap();
    assert_eq!(files(home.path()), expected());
}

#[test]
fn what_is_damaged_or_in_the_way_is_said_before_anything_is_placed() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("backup");
    std::fs::create_dir(&from).unwrap();
    backup(&from);
    let home = |name: &str, file: &str, text: &str| {
        let home = Home::open(&dir.path().join(name)).unwrap();
        let path = home.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        home
    };
    // Secrets of the backup could not be opened with another key, and so on.
    for (number, (file, _)) in FILES.iter().enumerate() {
        let home = home(&format!("taken-{number}"), file, "{}");
        let before = files(home.path());
        let restored = restore(&home, &from);
        match *file {
            "config.toml" => {
                assert_eq!(restored.unwrap().stays, [PathBuf::from("config.toml")]);
                continue;
            }
            "environments/blobs/sha256-ab/root/file" | "keys/aaaaaaaaaaaa.json" => {
                restored.unwrap();
                continue;
            }
            "audit/00000000000000000001.jsonl" => {
                restored.unwrap();
                assert!(home.path().join("audit.restored").is_dir());
                continue;
            }
            _ => {}
        }
        assert_eq!(restored.unwrap_err().kind, ErrorKind::Conflict, "{file}");
        assert_eq!(files(home.path()), before);
    }
    // Anything that is not as it was backed up.
    for (number, (file, text)) in FILES.iter().enumerate() {
        let path = from.join(file);
        for damaged in [Some("other"), None] {
            match damaged {
                Some(other) => std::fs::write(&path, other).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            let found = verify(&from).unwrap();
            assert!(!found.ok, "{file}");
            let home = Home::open(&dir.path().join(format!("new-{number}"))).unwrap();
            let error = restore(&home, &from).unwrap_err();
            assert!(error.message.contains("damaged"), "{error}");
            assert!(files(home.path()).is_empty());
        }
        std::fs::write(&path, text).unwrap();
    }
    std::fs::write(from.join("policies/new.toml"), "").unwrap();
    assert!(
        !verify(&from).unwrap().ok,
        "something is there that was not backed up"
    );
}
