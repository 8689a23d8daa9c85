//! Files, trees and watches over the socket.

use super::*;
use motu_core::files::{
    ChangeMode, FindFiles, ListFiles, MakeDirectory, MoveFile, ReadFile, RemoveFile, StatFile,
    WatchFiles, WriteFile,
};

#[tokio::test]
async fn files_travel_both_ways() {
    let world = world();
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
                    follow: true
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
                    mode: Some(0o700)
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
                    mode: 0o1777
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
    assert!(world.stub.files.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_download_that_breaks_off_is_an_error() {
    let world = world();
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
    let mut changes = world
        .client
        .watch(
            &id(),
            WatchFiles {
                path: path("/w"),
                recursive: true,
            },
        )
        .await
        .unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().path, "/w");
    assert!(changes.next().await.unwrap().is_err());
    assert!(changes.next().await.is_none());
}
