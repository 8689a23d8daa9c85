//! Tests of the store.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _};

use super::*;
use crate::{
    catalog::{self, Variant},
    tree::{Meta, TreeWriter},
};

/// Stores a tiny environment whose contents are `text`; returns its digest.
pub(crate) fn install(store: &Store, name: &str, text: &str) -> String {
    let staging = store.stage().unwrap();
    let mut tree = TreeWriter::new(io::sink()).unwrap();
    tree.file("text", Meta::root(0o644), text.as_bytes())
        .unwrap();
    let digest = tree.finish().unwrap().0.digest;
    fs::write(staging.root().join("text"), text).unwrap();
    let recipe = CatalogEntry {
        name: name.to_owned(),
        description: String::new(),
        suite: "bookworm".to_owned(),
        variant: Variant::Minbase,
        packages: Vec::new(),
        default_user: "root".to_owned(),
        default_workdir: "/workspace".to_owned(),
        wants_sudo: false,
        env: BTreeMap::new(),
        approximate_bytes: 1,
        approximate_seconds: 1,
    };
    let name = NameRecord {
        format_version: NameRecord::VERSION,
        name: name.to_owned(),
        digest: digest.clone(),
        pulled_at: "2026-01-01T00:00:00Z".to_owned(),
        recipe_hash: recipe.recipe_hash(),
        image: None,
        owner: Some(String::new()),
        made_for: None,
    };
    let blob = BlobRecord {
        format_version: BlobRecord::VERSION,
        digest: digest.clone(),
        size_bytes: text.len() as u64,
        entries: 2,
        created_at: "2026-01-01T00:00:00Z".to_owned(),
        architecture: "x86_64".to_owned(),
        os: "test".to_owned(),
        packages: Vec::new(),
        recipe: Some(recipe),
    };
    store.commit(&staging, &blob, &name).unwrap();
    digest
}

fn open(home: &Path) -> Store {
    Store::open(home, Privilege::detect()).unwrap()
}

fn staged(store: &Store) -> Vec<String> {
    children(&store.root.join("staging")).unwrap()
}

#[test]
fn only_the_owner_can_enter() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let digest = install(&store, "a", "text");
    for dir in [
        store.root.clone(),
        store.root.join("blobs"),
        store.blob(&digest),
    ] {
        let mode = fs::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", dir.display());
    }
}

#[test]
fn what_is_committed_is_read_back_and_nothing_is_left_behind() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let digest = install(&store, "team/a:1", "text");
    let again = open(home.path());
    assert_eq!(again.name("team/a:1").unwrap().unwrap().digest, digest);
    assert_eq!(again.blob_record(&digest).unwrap().digest, digest);
    assert_eq!(again.blobs().unwrap(), [digest]);
    assert!(staged(&again).is_empty());
    let names = children(&again.root.join("names")).unwrap();
    assert_eq!(names, ["team%2Fa%3A1.json"]);
}

#[test]
fn the_same_contents_are_stored_once() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let one = install(&store, "a", "text");
    let two = install(&store, "b", "text");
    assert_eq!(one, two);
    assert_eq!(store.blobs().unwrap().len(), 1);
    assert_eq!(store.names().unwrap().len(), 2);
}

#[test]
fn abandoned_builds_are_swept_and_running_ones_are_not() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let running = store.stage().unwrap();
    // As left by a killed process: with an unheld lock, or without one.
    let abandoned = store.root.join("staging").join("killed");
    fs::create_dir_all(abandoned.join("blob/root/deep")).unwrap();
    fs::write(abandoned.join("lock"), "").unwrap();
    fs::create_dir(store.root.join("staging").join("earlier")).unwrap();
    let second = open(home.path());
    let left = staged(&second);
    assert_eq!(left, [running.path.file_name().unwrap().to_str().unwrap()]);
    drop(running);
    assert!(staged(&second).is_empty());
}

#[test]
fn a_broken_blob_is_corrupt_and_replaced_by_the_next_commit() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let digest = install(&store, "a", "text");
    fs::remove_file(store.blob(&digest).join("environment.json")).unwrap();
    let error = store.blob_record(&digest).unwrap_err();
    assert!(matches!(error, EnvironmentError::Corrupt { .. }), "{error}");
    assert_eq!(install(&store, "a", "text"), digest);
    store.blob_record(&digest).unwrap();
}

#[test]
fn records_of_a_newer_format_are_named_not_misread() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    fs::write(store.name_file("a"), r#"{"format_version": 4, "else": 1}"#).unwrap();
    let error = store.name("a").unwrap_err().to_string();
    assert!(error.contains("format version 4"), "{error}");
    fs::write(store.name_file("a"), "{").unwrap();
    assert!(matches!(
        store.name("a"),
        Err(EnvironmentError::Corrupt { .. })
    ));
}

#[test]
fn a_digest_cannot_point_out_of_the_store() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let record = NameRecord {
        format_version: NameRecord::VERSION,
        name: "a".to_owned(),
        digest: "sha256:../../../etc".to_owned(),
        pulled_at: String::new(),
        recipe_hash: String::new(),
        image: None,
        owner: Some(String::new()),
        made_for: None,
    };
    write_record(&store.name_file("a"), &record).unwrap();
    assert!(matches!(
        store.name("a"),
        Err(EnvironmentError::Corrupt { .. })
    ));
}

#[test]
fn one_process_builds_a_name_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let cancel = Cancel::default();
    let held = store
        .lock_pull("a", &cancel, || panic!("nobody holds it"))
        .unwrap();
    let other = open(home.path());
    let stop = cancel.clone();
    let refused = other.lock_pull("a", &cancel, || stop.cancel());
    assert!(matches!(refused, Err(EnvironmentError::Cancelled { .. })));
    drop(held);
    other
        .lock_pull("a", &Cancel::default(), || panic!("it is free"))
        .unwrap();
}

#[test]
fn stored_samples_of_format_one_are_read() {
    let text = include_str!("../tests/samples/environment-1.json");
    let record: BlobRecord = serde_json::from_str(text).unwrap();
    assert_eq!(record.format_version, 1);
    let recipe = record.recipe.unwrap();
    assert_eq!(recipe.name, "busybox");
    assert!(
        catalog::embedded()
            .iter()
            .any(|entry| entry.name == recipe.name)
    );
}
