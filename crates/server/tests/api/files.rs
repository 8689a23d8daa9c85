//! Files, trees and watches over the socket.

use super::*;
use motu_core::files::{
    ChangeMode, FindFiles, ListFiles, MakeDirectory, MoveFile, ReadFile, RemoveFile, StatFile,
    WatchFiles, WriteFile,
};
use serde_json::json;
use std::collections::BTreeMap;

type Kept = BTreeMap<Vec<u8>, Vec<u8>>;

fn entry(path: &GuestPath, size: usize, mode: u32) -> FileEntry {
    let path = String::from_utf8_lossy(path.as_bytes()).into_owned();
    answers::made(json!({
        "name": path.rsplit('/').next(), "path": path, "type": "file", "size_bytes": size,
        "mode": mode, "permissions": "-rw-r--r--", "owner": "root", "group": "root",
        "uid": 0, "gid": 0, "modified_at": answers::MOMENT, "revision": 0,
    }))
}

/// Files that are kept in memory.
#[derive(Clone, Default)]
pub struct Files(Arc<Mutex<Kept>>);

impl Files {
    pub fn of(it: &Recorder) -> Files {
        let all = Files::default();
        let files = all.clone();
        it.on(move |verb::Stat { ask, .. }| {
            let size = files.content(&ask.path)?.len();
            Ok(entry(&ask.path, size, 0o644))
        });
        let files = all.clone();
        it.on(move |verb::Read { ask, .. }| {
            let content = files.content(&ask.path)?;
            let (size, range) = (content.len(), ask.range());
            let first = (range.offset as usize).min(size);
            let length = range.length.map_or(size, |length| length as usize);
            let part = Bytes::from(content[first..(first + length).min(size)].to_vec());
            let entry = entry(&ask.path, size, 0o644);
            Ok((entry, stream::iter([Ok(part)]).boxed()))
        });
        let files = all.clone();
        it.on_with(move |verb::Write { ask, .. }, content| files.clone().write(ask, content));
        let files = all.clone();
        it.on(move |verb::Remove { ask, .. }| {
            files.content(&ask.path)?;
            let mut all = files.0.lock().unwrap();
            all.remove(ask.path.as_bytes().as_ref());
            Ok(())
        });
        let files = all.clone();
        it.on(move |verb::Hash { ask, .. }| {
            Ok(FileHash {
                sha256: "00".to_string(),
                size_bytes: files.content(&ask.path)?.len() as u64,
            })
        });
        all
    }

    pub fn kept(&self) -> Kept {
        self.0.lock().unwrap().clone()
    }

    fn content(&self, path: &GuestPath) -> motu_core::Result<Vec<u8>> {
        let found = self.kept().remove(path.as_bytes().as_ref());
        found.ok_or_else(|| Error::not_found("no such file"))
    }

    async fn write(self, ask: WriteFile, mut content: ByteStream) -> motu_core::Result<FileEntry> {
        let mut whole = Vec::new();
        while let Some(chunk) = content.next().await {
            whole.extend_from_slice(&chunk?);
        }
        let entry = entry(&ask.path, whole.len(), ask.mode.unwrap_or(0o644));
        let mut all = self.0.lock().unwrap();
        all.insert(ask.path.as_bytes().to_vec(), whole);
        Ok(entry)
    }
}

/// A tree that breaks off, one that is gone, and one that takes what is sent.
pub fn tell_of_trees(it: &Recorder) {
    it.on(|verb::ReadTree { ask, .. }| {
        if ask.path.as_bytes() == "/gone" {
            return Ok(stream::iter([Err(Error::not_found("no such tree"))]).boxed());
        }
        let later = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(Error::transport("broke"))
        };
        let first = stream::iter([Ok(Bytes::from_static(b"tar"))]);
        Ok(first.chain(stream::once(later)).boxed())
    });
    it.on_with(|_: verb::WriteTree, archive: ByteStream| async move {
        let sizes = archive.map(|chunk| chunk.map_or(0, |chunk| chunk.len() as u64));
        let bytes = sizes.fold(0, |sum, size| async move { sum + size }).await;
        Ok(TreeWritten { entries: 1, bytes })
    });
}

/// What names a path only, and is answered with what was asked for.
fn tell_of_paths(it: &Recorder) {
    it.on(|verb::Mkdir { ask, .. }| Ok(entry(&ask.path, 0, ask.mode.unwrap_or(0o755))));
    it.on(|verb::Chmod { ask, .. }| Ok(entry(&ask.path, 0, ask.mode)));
    it.on(|verb::Move { ask, .. }| Ok(entry(&ask.to, 0, 0o644)));
    it.on(|verb::Glob { ask, .. }| {
        let path = GuestPath::new(ask.pattern.as_bytes().to_vec())?;
        let entries = vec![entry(&path, 0, 0o644)];
        Ok(FilePage {
            entries,
            next: None,
        })
    });
    it.on(|verb::List { ask, .. }| {
        let after = ask.options().after;
        Ok(FilePage {
            entries: vec![entry(&ask.path, 0, 0o644)],
            next: after.map(|after| String::from_utf8_lossy(&after).into_owned()),
        })
    });
}

#[tokio::test]
async fn files_travel_both_ways() {
    let world = world();
    Files::of(&world.recorder);
    tell_of_paths(&world.recorder);
    let client = &world.client;
    let options = WriteOptions {
        mode: Some(0o600),
        ..WriteOptions::default()
    };
    let odd = GuestPath::new(&b"/a b&c\xff"[..]).unwrap();
    let written = client
        .write_file(
            &id(),
            WriteFile::new(odd.clone(), options),
            content("0123456789"),
        )
        .await
        .unwrap();
    assert_eq!((written.mode, written.size_bytes), (0o600, 10));
    assert_eq!(
        client
            .stat(
                &id(),
                StatFile {
                    path: odd.clone(),
                    follow: true,
                    user: None,
                }
            )
            .await
            .unwrap()
            .size_bytes,
        10
    );

    for (offset, length, expected) in [
        (0, None, "0123456789"),
        (3, None, "3456789"),
        (3, Some(2), "34"),
        (3, Some(0), ""),
        (8, Some(50), "89"),
    ] {
        let range = ReadRange { offset, length };
        let (entry, stream) = client
            .read_file(&id(), ReadFile::new(odd.clone(), range))
            .await
            .unwrap();
        assert_eq!(entry.size_bytes, 10);
        let bytes: Vec<Bytes> = stream.map(Result::unwrap).collect().await;
        assert_eq!(bytes.concat(), expected.as_bytes());
    }
    client.hash(&id(), (odd.clone()).into()).await.unwrap();
    client
        .remove_file(
            &id(),
            RemoveFile {
                path: odd.clone(),
                recursive: false,
                user: None,
            },
        )
        .await
        .unwrap();
    let error = client
        .stat(
            &id(),
            StatFile {
                path: odd,
                follow: true,
                user: None,
            },
        )
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);

    assert_eq!(
        client
            .mkdir(
                &id(),
                MakeDirectory {
                    path: path("/d"),
                    mode: Some(0o700),
                    user: None,
                }
            )
            .await
            .unwrap()
            .mode,
        0o700
    );
    assert_eq!(
        client
            .chmod(
                &id(),
                ChangeMode {
                    path: path("/d"),
                    mode: 0o1777,
                    user: None,
                }
            )
            .await
            .unwrap()
            .mode,
        0o1777
    );
    let moved = client
        .move_file(
            &id(),
            MoveFile {
                from: path("/d"),
                to: path("/e"),
                overwrite: true,
                user: None,
            },
        )
        .await
        .unwrap();
    assert_eq!(moved.path, "/e");
    assert_eq!(
        client
            .glob(&id(), FindFiles::new("/**/*", None))
            .await
            .unwrap()
            .entries[0]
            .path,
        "/**/*"
    );
    let options = ListOptions {
        after: Some(Bytes::from_static(b"x y")),
        ..ListOptions::default()
    };
    let page = client
        .list_files(&id(), ListFiles::new(path("/"), options))
        .await
        .unwrap();
    assert_eq!(page.next.as_deref(), Some("x y"));
}

#[tokio::test]
async fn ranges_are_answered_as_http_says() {
    let world = world();
    Files::of(&world.recorder);
    let file = path("/f");
    world
        .client
        .write_file(
            &id(),
            WriteFile::new(file, WriteOptions::default()),
            content("0123456789"),
        )
        .await
        .unwrap();
    let get = |range: &str| {
        format!("GET /v1/sandboxes/sb-a/files/content?path=/f HTTP/1.1\r\nRange: {range}")
    };
    let answer = world.raw(&get("bytes=2-4"), "").await;
    assert!(answer.starts_with("HTTP/1.1 206"), "{answer}");
    assert!(
        answer.contains("content-range: bytes 2-4/10\r\n"),
        "{answer}"
    );
    let answer = world.raw(&get("bytes=-3"), "").await;
    assert!(
        answer.contains("content-range: bytes 7-9/10\r\n"),
        "{answer}"
    );
    let answer = world.raw(&get("bytes=10-"), "").await;
    assert!(answer.starts_with("HTTP/1.1 416"), "{answer}");
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_not_a_file() {
    let world = world();
    let files = Files::of(&world.recorder);
    let broken = stream::iter([
        Ok(Bytes::from_static(b"half")),
        Err(Error::internal("the disk went away")),
    ]);
    let id = id();
    let write = world.client.write_file(
        &id,
        WriteFile::new(path("/f"), WriteOptions::default()),
        broken.boxed(),
    );
    assert!(within(write).await.is_err());
    assert!(files.kept().is_empty());
}

#[tokio::test]
async fn a_download_that_breaks_off_is_an_error() {
    let world = world();
    tell_of_trees(&world.recorder);
    let mut archive = world
        .client
        .read_tree(&id(), (path("/")).into())
        .await
        .unwrap();
    assert_eq!(archive.next().await.unwrap().unwrap(), "tar");
    assert!(archive.next().await.unwrap().is_err());
    let error = world
        .client
        .read_tree(&id(), (path("/gone")).into())
        .await
        .err()
        .unwrap();
    assert_eq!(error, Error::not_found("no such tree"));
    let archive = content("archive");
    let written = world
        .client
        .write_tree(&id(), (path("/")).into(), archive)
        .await
        .unwrap();
    assert_eq!(written.bytes, 7);
}

#[tokio::test]
async fn a_watch_reports_changes_and_its_end() {
    let world = world();
    world.recorder.on(|call: verb::Watch| {
        let change = FileChange {
            kind: ChangeKind::Created,
            path: String::from_utf8_lossy(call.ask.path.as_bytes()).into_owned(),
            from: None,
        };
        let gone = Error::not_found("the directory is gone");
        Ok(stream::iter([Ok(change), Err(gone)]).boxed())
    });
    let mut changes = world
        .client
        .watch(
            &id(),
            WatchFiles {
                path: path("/w"),
                recursive: true,
                user: None,
            },
        )
        .await
        .unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().path, "/w");
    assert!(changes.next().await.unwrap().is_err());
    assert!(changes.next().await.is_none());
}
