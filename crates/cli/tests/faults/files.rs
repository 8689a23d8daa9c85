//! Unusual file names, and many of them.

use motu_core::files::decode_base64;
use motu_core::files::{
    ChangeMode, FileEntry, FindFiles, ListFiles, ListOptions, MoveFile, ReadFile, ReadRange,
    RemoveFile, StatFile, WriteFile, WriteOptions,
};
use motu_core::{ErrorKind, SandboxId, Service};
use motu_testkit::world::{World, at, collect, refused};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Files in one directory.
const MANY: usize = 10_000;

/// Names that are legal on Linux and often handled wrongly.
const NAMES: [&[u8]; 9] = [
    b"new\nline",
    b"\xff\xfe invalid",
    b"half a char \xc3",
    b"-rf",
    b" ",
    b"back\\slash\ttab",
    b"\x1b[31mred\x07\x7f",
    "μοτυ ☂".as_bytes(),
    b"%2e%2e&path=x#?+",
];

fn odd(name: &[u8]) -> Vec<u8> {
    [b"/odd/", name].concat()
}

/// The exact path of an entry.
fn exact(entry: &FileEntry) -> Vec<u8> {
    match &entry.path_base64 {
        Some(base64) => decode_base64(base64).unwrap().to_vec(),
        None => entry.path.clone().into_bytes(),
    }
}

async fn listed(world: &World, id: &SandboxId, path: &str) -> BTreeSet<Vec<u8>> {
    let page = world
        .client()
        .list_files(id, ListFiles::new(at(path), ListOptions::default()))
        .await;
    page.unwrap().entries.iter().map(exact).collect()
}

#[tokio::test]
async fn odd_names_make_the_round_trip() {
    let Some(world) = World::new() else { return };
    let (client, id) = (world.client(), world.create().await);
    for name in NAMES {
        let content = motu_testkit::world::stream(name);
        let written = client.write_file(
            &id,
            WriteFile::new(at(odd(name)), WriteOptions::default()),
            content,
        );
        assert_eq!(exact(&written.await.unwrap()), odd(name));
    }
    let all: BTreeSet<Vec<u8>> = NAMES.iter().map(|name| odd(name)).collect();
    assert_eq!(listed(&world, &id, "/odd").await, all);
    let found = client
        .glob(&id, FindFiles::new("/odd/*", None))
        .await
        .unwrap();
    assert_eq!(
        found.entries.iter().map(exact).collect::<BTreeSet<_>>(),
        all
    );

    // Names from a listing work in every call.
    let page = client
        .list_files(&id, ListFiles::new(at("/odd"), ListOptions::default()))
        .await
        .unwrap();
    for entry in page.entries {
        let path = exact(&entry);
        let (read, content) = client
            .read_file(&id, ReadFile::new(at(&path), ReadRange::default()))
            .await
            .unwrap();
        assert_eq!(exact(&read), path);
        assert_eq!(collect(content).await.unwrap(), path[5..]);
        assert_eq!(
            exact(
                &client
                    .stat(
                        &id,
                        StatFile {
                            path: at(&path),
                            follow: false,
                            user: None,
                        }
                    )
                    .await
                    .unwrap()
            ),
            path
        );
        assert_eq!(
            client
                .hash(&id, (at(&path)).into())
                .await
                .unwrap()
                .size_bytes,
            path.len() as u64 - 5
        );
        client
            .chmod(
                &id,
                ChangeMode {
                    path: at(&path),
                    mode: 0o600,
                    user: None,
                },
            )
            .await
            .unwrap();
        let moved = [&path[..], b"\xfd\n"].concat();
        let entry = client
            .move_file(
                &id,
                MoveFile {
                    from: at(&path),
                    to: at(&moved),
                    overwrite: false,
                    user: None,
                },
            )
            .await
            .unwrap();
        assert_eq!(exact(&entry), moved);
        client
            .remove_file(
                &id,
                RemoveFile {
                    path: at(&moved),
                    recursive: false,
                    user: None,
                },
            )
            .await
            .unwrap();
    }
    assert!(listed(&world, &id, "/odd").await.is_empty());
}

#[tokio::test]
async fn odd_names_survive_copies_both_ways() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let tree = world.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in NAMES {
        std::fs::write(tree.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let told = world.motu(&["cp", "tree", &format!("{id}:/odd")]);
    assert_eq!(told.code, 0, "{told:?}");
    let all: BTreeSet<Vec<u8>> = NAMES.iter().map(|name| odd(name)).collect();
    assert_eq!(listed(&world, &id, "/odd").await, all);
    let told = world.motu(&["cp", &format!("{id}:/odd"), "back"]);
    assert_eq!(told.code, 0, "{told:?}");
    for name in NAMES {
        let path = world.path().join("back").join(OsStr::from_bytes(name));
        assert_eq!(std::fs::read(&path).unwrap(), name, "{}", path.display());
    }
}

#[tokio::test]
async fn a_crowded_directory_is_listed_completely() {
    let Some(world) = World::new() else { return };
    let (client, id) = (world.client(), world.create().await);
    let script = format!(
        "mkdir /many; cd /many; i=0; while [ $i -lt {MANY} ]; do : > f$i; i=$((i+1)); done"
    );
    let made = world.sh(&id, &script).await;
    assert_eq!(made.exit_code, 0, "{made:?}");
    let expected: BTreeSet<Vec<u8>> = (0..MANY)
        .map(|number| format!("/many/f{number}").into_bytes())
        .collect();
    for limit in [None, Some(777), Some(MANY as u64)] {
        let (mut seen, mut after) = (BTreeSet::new(), None);
        loop {
            let options = ListOptions {
                limit,
                after: after.take(),
                ..ListOptions::default()
            };
            let page = client
                .list_files(&id, ListFiles::new(at("/many"), options))
                .await
                .unwrap();
            assert!(page.entries.len() as u64 <= limit.unwrap_or(1000));
            for entry in &page.entries {
                assert!(seen.insert(exact(entry)), "{} came twice", entry.path);
            }
            match page.next {
                Some(next) => after = Some(decode_base64(&next).unwrap()),
                None => break,
            }
        }
        assert!(seen == expected, "{} with {limit:?}", seen.len());
    }
    let options = ListOptions {
        limit: Some(MANY as u64 + 1),
        ..ListOptions::default()
    };
    refused(
        ErrorKind::Invalid,
        client
            .list_files(&id, ListFiles::new(at("/many"), options))
            .await,
    );
}
