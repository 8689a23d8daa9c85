use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use motu_environments::archive::{Archive, EntryKind};
use motu_link::message::{ChangedEntry, Facts};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::tarball::{Attributes, Meta, TarWriter};

thread_local! {
    /// Crash points left until the simulated crash.
    static STEPS_LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// All crash points call this.
pub(super) fn step(name: &'static str) -> Result<(), SnapshotError> {
    STEPS_LEFT.with(|left| match left.get() {
        0 => Err(SnapshotError::archive(format!("the end, after: {name}"))),
        steps => {
            left.set(steps - 1);
            Ok(())
        }
    })
}

/// A path in a simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// Contents, inode and stamp.
    File(Vec<u8>, u64, i64),
    Directory(u64),
    Symlink(String),
}

type Tree = BTreeMap<String, Node>;

fn facts(node: &Node) -> Facts {
    let base = Facts {
        uid: 7,
        gid: 8,
        modified_unix_ns: 1_700_000_000_123_456_789,
        ..Facts::default()
    };
    match node {
        Node::File(contents, inode, stamp) => Facts {
            mode: 0o100_640,
            size: contents.len() as u64,
            inode: *inode,
            stamp_ns: *stamp,
            ..base
        },
        Node::Directory(inode) => Facts {
            mode: 0o040_750,
            inode: *inode,
            ..base
        },
        Node::Symlink(target) => Facts {
            mode: 0o120_777,
            symlink_target: target.clone().into(),
            ..base
        },
    }
}

fn changes(base: &Tree, now: &Tree) -> Vec<ChangedEntry> {
    let paths: std::collections::BTreeSet<_> = base.keys().chain(now.keys()).collect();
    let changed = paths
        .into_iter()
        .filter(|path| base.get(*path) != now.get(*path));
    changed
        .map(|path| ChangedEntry {
            path: path.clone().into(),
            before: base.get(path).map(facts),
            after: now.get(path).map(facts),
        })
        .collect()
}

fn pick<'a>(now: &Tree, paths: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut tar = TarWriter::new(Vec::new());
    let meta = Meta {
        mode: 0o640,
        uid: 7,
        gid: 8,
        modified_unix_ns: 0,
    };
    let attributes = Attributes::from([("user.note".to_owned(), b"kept".to_vec())]);
    for path in paths {
        match &now[std::str::from_utf8(path).unwrap()] {
            Node::File(contents, ..) => tar
                .file(
                    path,
                    meta,
                    &attributes,
                    contents.len() as u64,
                    &mut contents.as_slice(),
                )
                .unwrap(),
            Node::Directory(_) => tar.directory(path, meta, &attributes).unwrap(),
            Node::Symlink(_) => panic!("links are known without being packed"),
        }
    }
    tar.finish().unwrap()
}

fn take(store: &Snapshots, name: &str, base: &Tree, now: &Tree) -> Result<Summary, SnapshotError> {
    let plan = store.plan(name, &changes(base, now))?;
    let tar = pick(now, plan.fetch());
    store.commit(plan, tar.as_slice())
}

/// The result of restoring over the baseline, without inodes and stamps.
fn restored(store: &Snapshots, name: &str, base: &Tree) -> Result<Tree, SnapshotError> {
    let restore = store.restore(name)?;
    let mut tree = base.clone();
    for path in &restore.remove {
        let path = std::str::from_utf8(path).unwrap();
        tree.retain(|other, _| other != path && !other.starts_with(&format!("{path}/")));
    }
    let bytes = restore.write_to(Vec::new())?;
    let mut archive = Archive::new(bytes.as_slice());
    while let Some(entry) = archive.next_entry().unwrap() {
        let path = String::from_utf8(entry.path).unwrap();
        let node = match entry.kind {
            EntryKind::File => {
                let mut contents = Vec::new();
                archive.read_to_end(&mut contents).unwrap();
                assert_eq!(entry.attributes["user.note"], b"kept");
                Node::File(contents, 0, 0)
            }
            EntryKind::Directory => Node::Directory(0),
            EntryKind::Symlink => Node::Symlink(String::from_utf8(entry.link).unwrap()),
            EntryKind::HardLink => tree[std::str::from_utf8(&entry.link).unwrap()].clone(),
            kind => panic!("{kind:?}"),
        };
        tree.insert(path.trim_end_matches('/').to_owned(), node);
    }
    Ok(plain(&tree))
}

fn plain(tree: &Tree) -> Tree {
    let plain = |node: &Node| match node {
        Node::File(contents, ..) => Node::File(contents.clone(), 0, 0),
        Node::Directory(_) => Node::Directory(0),
        Node::Symlink(target) => Node::Symlink(target.clone()),
    };
    tree.iter()
        .map(|(path, node)| (path.clone(), plain(node)))
        .collect()
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn size_of(directory: &Path) -> u64 {
    let files = files_in(directory);
    files
        .iter()
        .map(|path| path.metadata().unwrap().len())
        .sum()
}

fn store() -> (TempDir, Snapshots) {
    let directory = TempDir::new().unwrap();
    let store = Snapshots::open(directory.path()).unwrap();
    (directory, store)
}

fn file(contents: &[u8], inode: u64) -> Node {
    Node::File(contents.to_vec(), inode, 100)
}

fn tree(nodes: &[(&str, Node)]) -> Tree {
    nodes
        .iter()
        .map(|(path, node)| ((*path).to_owned(), node.clone()))
        .collect()
}

/// A baseline and a state with every kind of change.
fn example() -> (Tree, Tree) {
    let base = tree(&[
        ("gone", Node::Directory(1)),
        ("gone/deep", file(b"x", 2)),
        ("kept", file(b"kept", 3)),
        ("turned", Node::Directory(4)),
        ("turned/inner", file(b"y", 5)),
    ]);
    let now = tree(&[
        ("kept", file(b"kept", 3)),
        ("new", Node::Directory(10)),
        ("new/empty", file(b"", 11)),
        ("new/large", file(&vec![9; 3 << 20], 12)),
        ("new/link", Node::Symlink("../kept".to_owned())),
        ("new/one", file(b"twice", 13)),
        ("new/two", file(b"twice", 13)),
        ("new/zeros", file(&vec![0; 2 << 20], 14)),
        ("turned", file(b"a file now", 15)),
    ]);
    (base, now)
}

#[test]
fn a_snapshot_gives_back_what_it_took() {
    let (_directory, store) = store();
    let (base, now) = example();
    let summary = take(&store, "first", &base, &now).unwrap();
    assert_eq!(summary.bytes, (5 << 20) + 5 + 5 + 10);
    assert_eq!(restored(&store, "first", &base).unwrap(), plain(&now));
    store.verify("first").unwrap();
    let restore = store.restore("first").unwrap();
    assert_eq!(restore.remove, ["gone", "turned"]);
    assert_eq!(store.list().unwrap(), [summary]);
}

#[test]
fn a_second_snapshot_costs_what_changed() {
    let (directory, store) = store();
    let base = Tree::new();
    let mut now = Tree::new();
    let noise = |seed: u64, size: usize| -> Vec<u8> {
        let mut state = seed + 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..size).map(|_| next()).collect()
    };
    for number in 0..5000 {
        now.insert(
            format!("d{}/f{number}", number % 70),
            file(&noise(number, 2000), number + 1),
        );
    }
    take(&store, "one", &base, &now).unwrap();
    let first = size_of(directory.path());
    assert!(first < 5000 * 2000 * 12 / 10, "{first}");
    for number in 0..20 {
        let path = format!("d{}/f{number}", number % 70);
        now.insert(
            path,
            Node::File(noise(90_000 + number, 20_000), number + 1, 200),
        );
    }
    // A file rewritten with the same bytes is fetched, but not stored again.
    now.insert("d50/f50".to_owned(), Node::File(noise(50, 2000), 51, 300));
    let plan = store.plan("two", &changes(&base, &now)).unwrap();
    assert_eq!(plan.fetch().count(), 21);
    let tar = pick(&now, plan.fetch());
    store.commit(plan, tar.as_slice()).unwrap();
    let grown = size_of(directory.path()) - first;
    assert!(grown < 20 * 20_000 * 12 / 10, "{grown}");
    assert_eq!(restored(&store, "two", &base).unwrap(), plain(&now));
    // Nothing changed: almost no cost.
    let plan = store.plan("three", &changes(&base, &now)).unwrap();
    assert_eq!(plan.fetch().count(), 0);
    let before = size_of(directory.path());
    store
        .commit(plan, pick(&now, [].into_iter()).as_slice())
        .unwrap();
    let grown = size_of(directory.path()) - before;
    assert!(grown < 20_000, "{grown}");
}

#[test]
fn a_crash_leaves_all_or_nothing() {
    let (base, now) = example();
    let mut later = now.clone();
    later.insert("more".to_owned(), file(b"more", 40));
    for steps in 0.. {
        let (directory, store) = store();
        take(&store, "old", &base, &now).unwrap();
        STEPS_LEFT.set(steps);
        let result = take(&store, "new", &base, &later).map(drop);
        let result = result.and_then(|()| store.delete("old"));
        STEPS_LEFT.set(usize::MAX);
        // A new process after the crash.
        let store = Snapshots::open(directory.path()).unwrap();
        let names: Vec<_> = store
            .list()
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        for name in &names {
            let wanted = if name == "new" { &later } else { &now };
            assert_eq!(
                &restored(&store, name, &base).unwrap(),
                &plain(wanted),
                "{steps}"
            );
        }
        assert!(!names.is_empty());
        take(&store, "again", &base, &later).unwrap();
        for name in ["old", "new", "again"] {
            let _ = store.delete(name);
        }
        assert_eq!(
            files_in(directory.path()),
            [directory.path().join("lock")],
            "{steps}"
        );
        if result.is_ok() {
            assert!(steps > 8, "the steps were not reached");
            return;
        }
    }
}

#[test]
fn damage_is_found() {
    let (directory, store) = store();
    let (base, mut now) = example();
    now.retain(|path, _| !path.ends_with("large") && !path.ends_with("zeros"));
    take(&store, "one", &base, &now).unwrap();
    let check = |what: String| match restored(&store, "one", &base) {
        // Damage in an unused part goes unnoticed.
        Ok(tree) => assert_eq!(tree, plain(&now), "{what}"),
        Err(SnapshotError::Damaged { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
    };
    for path in files_in(directory.path()) {
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            check(format!("{} at {at}", path.display()));
        }
        for length in (0..whole.len()).step_by(7) {
            fs::write(&path, &whole[..length]).unwrap();
            check(format!("{} cut to {length}", path.display()));
        }
        fs::write(&path, whole).unwrap();
    }
    let packs: Vec<_> = files_in(&directory.path().join("packs"));
    let bytes = fs::read(directory.path().join("one.snapshot")).unwrap();
    fs::write(directory.path().join("one.snapshot"), &bytes[..20]).unwrap();
    assert!(store.list().unwrap()[0].damaged);
    // Other snapshots still work, and the packs of the damaged one are kept.
    take(&store, "two", &base, &now).unwrap();
    assert!(packs.iter().all(|pack| pack.exists()));
    store.delete("one").unwrap();
    assert!(packs.iter().all(|pack| !pack.exists()));
    assert_eq!(restored(&store, "two", &base).unwrap(), plain(&now));
}

#[test]
fn snapshots_are_compared() {
    let (_directory, store) = store();
    let (base, now) = example();
    let mut later = now.clone();
    later.remove("new/link");
    later.insert("kept".to_owned(), Node::File(b"changed".to_vec(), 3, 900));
    later.insert("new/one".to_owned(), Node::File(b"twice".to_vec(), 77, 901));
    take(&store, "a", &base, &now).unwrap();
    take(&store, "b", &base, &later).unwrap();
    let paths = |from, to| -> Vec<(String, bool, bool)> {
        let changes = store.compare(from, to).unwrap().into_iter();
        changes
            .map(|change| {
                let path = String::from_utf8(change.path.to_vec()).unwrap();
                (path, change.before.is_some(), change.after.is_some())
            })
            .collect()
    };
    let wanted = [
        ("kept".to_owned(), true, true),
        ("new/link".to_owned(), true, false),
    ];
    assert_eq!(paths("a", "b"), wanted);
    assert_eq!(paths("b", "b"), []);
    assert_eq!(paths(BASELINE, "a").len(), changes(&base, &now).len());
    let back = store.compare("a", BASELINE).unwrap();
    assert!(back.iter().all(|change| match change.path.as_ref() {
        b"gone" => change.before.is_none() && change.after.is_some(),
        _ => true,
    }));
    let read = |name, path: &str| store.read(name, path.as_bytes(), 100).unwrap();
    assert_eq!(read("a", "kept"), Contents::Baseline);
    assert_eq!(read("b", "kept"), Contents::Bytes(b"changed".to_vec()));
    assert_eq!(read("a", "new/link"), Contents::None);
    assert!(matches!(
        store.read("a", b"new/large", 100),
        Err(SnapshotError::Limit { .. })
    ));
}

#[test]
fn names_are_checked() {
    let (_directory, store) = store();
    let long = "n".repeat(65);
    for name in [
        "", ".", "..", ".hidden", "-x", "a/b", "a b", "é", BASELINE, &long,
    ] {
        assert!(
            matches!(store.plan(name, &[]), Err(SnapshotError::Name { .. })),
            "{name}"
        );
    }
    let name = "a.B-9_";
    store
        .commit(store.plan(name, &[]).unwrap(), [].as_slice())
        .unwrap();
    assert!(matches!(
        store.plan(name, &[]),
        Err(SnapshotError::Exists { .. })
    ));
    assert!(matches!(
        store.delete("other"),
        Err(SnapshotError::NotFound { .. })
    ));
}

#[test]
fn an_archive_must_be_what_was_asked_for() {
    let (_directory, store) = store();
    let (base, now) = example();
    let plan = || store.plan("x", &changes(&base, &now)).unwrap();
    let fetch: Vec<Vec<u8>> = plan().fetch().map(<[u8]>::to_vec).collect();
    let paths = || fetch.iter().map(Vec::as_slice);
    let commit = |tar: &[u8]| store.commit(plan(), tar).unwrap_err();
    assert!(matches!(
        commit(&pick(&now, paths().skip(1))),
        SnapshotError::Changed { .. }
    ));
    let twice = pick(&now, paths().chain([b"new/one".as_slice()]));
    assert!(matches!(commit(&twice), SnapshotError::Archive { .. }));
    assert!(matches!(
        commit(&twice[..5000]),
        SnapshotError::Archive { .. }
    ));
    let mut other = now.clone();
    other.insert("new/one".to_owned(), file(b"longer than it was", 13));
    assert!(matches!(
        commit(&pick(&other, paths())),
        SnapshotError::Changed { .. }
    ));
    assert!(store.list().unwrap().is_empty());
    store
        .commit(plan(), pick(&now, paths()).as_slice())
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random histories: every snapshot restores its state, whatever was deleted in between.
    #[test]
    fn histories_hold(steps in prop::collection::vec(
        (0..6usize, prop::collection::vec(any::<u8>(), 0..4), any::<bool>()), 1..25)
    ) {
        let (_directory, store) = store();
        let base = tree(&[("f0", file(b"base", 1))]);
        let mut now = base.clone();
        let mut kept: BTreeMap<String, Tree> = BTreeMap::new();
        for (number, (which, contents, remove)) in steps.into_iter().enumerate() {
            let path = format!("f{which}");
            match remove {
                true => now.remove(&path),
                false => now.insert(path, Node::File(contents, which as u64 + 1, number as i64)),
            };
            let name = format!("s{number}");
            take(&store, &name, &base, &now).unwrap();
            kept.insert(name, now.clone());
            if number % 3 == 2 {
                let gone = kept.keys().nth(which % kept.len()).unwrap().clone();
                store.delete(&gone).unwrap();
                kept.remove(&gone);
            }
            for (name, tree) in &kept {
                prop_assert_eq!(restored(&store, name, &base).unwrap(), plain(tree));
            }
        }
    }

    #[test]
    fn any_archive_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let (_directory, store) = store();
        let (base, now) = example();
        let plan = store.plan("x", &changes(&base, &now)).unwrap();
        let _ = store.commit(plan, bytes.as_slice());
    }
}
