//! Files inside a sandbox.

use crate::life::{Life, argv, bytes, collect, long, path, place, refused, shell};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt as _;
use motu_core::files::{
    ChangeMode, FilePage, FileType, FindFiles, GuestPath, ListFiles, ListOptions, MakeDirectory,
    MoveFile, ReadRange, RemoveFile, StatFile, WriteFile, WriteOptions,
};
use motu_core::{Error, ErrorKind, Service as _};

/// What is at the end of a path, as whoever the machine's commands run as.
fn followed(path: GuestPath) -> StatFile {
    StatFile {
        path,
        follow: true,
        user: None,
    }
}

fn names(page: &FilePage) -> Vec<&str> {
    page.entries
        .iter()
        .map(|entry| entry.name.as_str())
        .collect()
}

pub async fn what_is_written_is_read(life: Life) {
    let sandbox = life.create().await;
    for (name, content) in [
        ("empty", &b""[..]),
        ("text", b"hello\n"),
        ("bytes", b"\0\xff\xfe"),
    ] {
        if life.lacks().await.binary && std::str::from_utf8(content).is_err() {
            let written = life.write_with(&sandbox, name, content, Default::default());
            refused(ErrorKind::Unsupported, written.await);
            continue;
        }
        let written = life.write(&sandbox, name, content).await;
        assert_eq!(written.size_bytes, content.len() as u64);
        assert_eq!(written.path, place(&sandbox, name));
        assert_eq!(life.read(&sandbox, name).await.expect("read"), content);
    }
    life.write(&sandbox, "text", b"bye").await;
    assert_eq!(life.read(&sandbox, "text").await.expect("read"), b"bye");
}

pub async fn parents_are_made_unless_told_not_to(life: Life) {
    let sandbox = life.create().await;
    life.write(&sandbox, "a/b/c/file", b"deep").await;
    assert_eq!(
        life.read(&sandbox, "a/b/c/file").await.expect("read"),
        b"deep"
    );
    let options = WriteOptions {
        no_parents: true,
        ..WriteOptions::default()
    };
    let written = life.write_with(&sandbox, "x/y", b"", options).await;
    refused(
        match life.lacks().await.write_options {
            true => ErrorKind::Unsupported,
            false => ErrorKind::NotFound,
        },
        written,
    );
    assert!(!life.exists(&sandbox, "x").await);
}

pub async fn commands_and_files_see_the_same_tree(life: Life) {
    let sandbox = life.create().await;
    life.write(&sandbox, "from-outside", b"outside\n").await;
    let outside = place(&sandbox, "from-outside");
    let result = life.exec(&sandbox, argv(&["cat", &outside])).await;
    assert_eq!(result.stdout, "outside\n", "{}", result.stderr);
    let script = format!("echo inside > {}", place(&sandbox, "from-inside"));
    life.exec(&sandbox, shell(&script)).await;
    let inside = life.read(&sandbox, "from-inside").await.expect("read");
    assert_eq!(inside, b"inside\n");
}

pub async fn stat_tells_kind_size_and_mode(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let options = WriteOptions {
        mode: Some(0o600),
        ..WriteOptions::default()
    };
    let written = life.write_with(&sandbox, "dir/file", b"12345", options);
    written.await.expect("written");
    let file = life
        .engine
        .stat(id, followed(path(&sandbox, "dir/file")))
        .await;
    let file = file.expect("a file");
    assert_eq!(
        (file.kind, file.size_bytes, file.mode),
        (FileType::File, 5, 0o600)
    );
    assert_eq!(file.name, "file");
    assert_eq!(file.permissions, "-rw-------");
    assert!(
        file.modified_at.as_millisecond() > 1_600_000_000_000,
        "{file:?}"
    );
    let dir = life.engine.stat(id, followed(path(&sandbox, "dir"))).await;
    assert_eq!(dir.expect("a directory").kind, FileType::Directory);
    let made = life
        .engine
        .mkdir(
            id,
            MakeDirectory {
                path: path(&sandbox, "new/er"),
                mode: Some(0o700),
                user: None,
            },
        )
        .await;
    let made = made.expect("a directory");
    assert_eq!((made.kind, made.mode), (FileType::Directory, 0o700));
}

pub async fn a_missing_file_is_not_found(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    let engine = &life.engine;
    let none = || path(&sandbox, "none");
    refused(ErrorKind::NotFound, life.read(&sandbox, "none").await);
    refused(ErrorKind::NotFound, engine.stat(id, followed(none())).await);
    refused(
        ErrorKind::NotFound,
        engine
            .list_files(id, ListFiles::new(none(), ListOptions::default()))
            .await,
    );
    refused(
        ErrorKind::NotFound,
        engine
            .remove_file(
                id,
                RemoveFile {
                    path: none(),
                    recursive: false,
                    user: None,
                },
            )
            .await,
    );
    refused(
        ErrorKind::NotFound,
        engine
            .chmod(
                id,
                ChangeMode {
                    path: none(),
                    mode: 0o644,
                    user: None,
                },
            )
            .await,
    );
    refused(ErrorKind::NotFound, engine.hash(id, (none()).into()).await);
    let moved = engine
        .move_file(
            id,
            MoveFile {
                from: none(),
                to: path(&sandbox, "other"),
                overwrite: true,
                user: None,
            },
        )
        .await;
    refused(ErrorKind::NotFound, moved);
}

pub async fn a_relative_path_is_invalid(life: Life) {
    for wrong in ["", "file", "./file", "../file", "~/file", "/a\0b"] {
        refused(ErrorKind::Invalid, GuestPath::new(wrong));
    }
    let sandbox = life.create().await;
    let found = life
        .engine
        .glob(&sandbox.sandbox_id, FindFiles::new("*.txt", None))
        .await;
    refused(ErrorKind::Invalid, found);
}

pub async fn ranges_are_exact(life: Life) {
    let sandbox = life.create().await;
    life.write(&sandbox, "digits", b"0123456789").await;
    for (offset, length, expected) in [
        (0, None, "0123456789"),
        (3, None, "3456789"),
        (3, Some(4), "3456"),
        (8, Some(100), "89"),
        (10, None, ""),
        (99, Some(1), ""),
        (4, Some(0), ""),
    ] {
        let range = ReadRange { offset, length };
        let read = life.read_range(&sandbox, "digits", range).await;
        let read = read.expect("read");
        assert_eq!(read, expected.as_bytes(), "{offset} {length:?}");
    }
}

pub async fn of_writers_who_expect_the_same_one_wins(life: Life) {
    let sandbox = life.create().await;
    let mut found = life.write(&sandbox, "shared", b"").await;
    for round in 0..5 {
        let options = WriteOptions {
            expected: Some(found.version()),
            ..WriteOptions::default()
        };
        // Every text has a length of its own: services may tell times by the second.
        let texts: Vec<String> = (1..=6).map(|one| "x".repeat(round * 6 + one)).collect();
        let writing = texts
            .iter()
            .map(|text| life.write_with(&sandbox, "shared", text.as_bytes(), options.clone()));
        let answers = futures_util::future::join_all(writing).await;
        let mut won = Vec::new();
        for (answer, text) in answers.into_iter().zip(texts) {
            match answer {
                Ok(entry) => won.push((entry, text)),
                Err(error) => assert_eq!(error.kind, ErrorKind::Conflict, "{error}"),
            }
        }
        let [(entry, text)] = &won[..] else {
            panic!("{} writers have won in round {round}", won.len());
        };
        let read = life.read(&sandbox, "shared").await.expect("read");
        assert_eq!(read, text.as_bytes());
        found = entry.clone();
    }
}

pub async fn append_and_create_new(life: Life) {
    let sandbox = life.create().await;
    let append = WriteOptions {
        append: true,
        ..WriteOptions::default()
    };
    if life.lacks().await.write_options {
        let new = WriteOptions {
            create_new: true,
            ..WriteOptions::default()
        };
        for options in [append, new] {
            let written = life.write_with(&sandbox, "log", b"x", options).await;
            refused(ErrorKind::Unsupported, written);
        }
        assert!(!life.exists(&sandbox, "log").await);
        return;
    }
    for piece in ["one,", "two"] {
        let written = life
            .write_with(&sandbox, "log", piece.as_bytes(), append.clone())
            .await;
        written.expect("appended");
    }
    assert_eq!(life.read(&sandbox, "log").await.expect("read"), b"one,two");
    let new = WriteOptions {
        create_new: true,
        ..WriteOptions::default()
    };
    let first = life.write_with(&sandbox, "new", b"1", new.clone()).await;
    first.expect("created");
    refused(
        ErrorKind::Conflict,
        life.write_with(&sandbox, "new", b"2", new).await,
    );
    assert_eq!(life.read(&sandbox, "new").await.expect("read"), b"1");
}

pub async fn an_overwrite_is_all_or_nothing(life: Life) {
    let sandbox = life.create().await;
    life.write(&sandbox, "file", b"old").await;
    let (pieces, content) = tokio::sync::mpsc::channel::<Result<Bytes, Error>>(1);
    let content = futures_util::stream::unfold(content, |mut content| async move {
        let piece = content.recv().await?;
        Some((piece, content))
    });
    let writing = life.engine.write_file(
        &sandbox.sandbox_id,
        WriteFile::new(path(&sandbox, "file"), WriteOptions::default()),
        content.boxed(),
    );
    let feeding = async {
        let piece = || Ok(Bytes::from(vec![b'n'; 300_000]));
        // The second piece is accepted only after the first was sent.
        pieces.send(piece()).await.expect("taken");
        pieces.send(piece()).await.expect("taken");
        assert_eq!(life.read(&sandbox, "file").await.expect("read"), b"old");
        drop(pieces);
    };
    let (written, ()) = tokio::join!(writing, feeding);
    assert_eq!(written.expect("written").size_bytes, 600_000);
    assert_eq!(
        life.read(&sandbox, "file").await.expect("read").len(),
        600_000
    );
}

pub async fn an_abandoned_write_changes_nothing(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "dir/file", b"old").await;
    let torn = futures_util::stream::iter([
        Ok(Bytes::from_static(b"new")),
        Err(Error::transport("the caller went away")),
    ]);
    let file = path(&sandbox, "dir/file");
    let written = life
        .engine
        .write_file(
            id,
            WriteFile::new(file, WriteOptions::default()),
            torn.boxed(),
        )
        .await;
    refused(ErrorKind::Transport, written);
    assert_eq!(life.read(&sandbox, "dir/file").await.expect("read"), b"old");
    crate::life::eventually("the staged file to go", || async {
        let dir = path(&sandbox, "dir");
        let page = life
            .engine
            .list_files(id, ListFiles::new(dir, ListOptions::default()))
            .await;
        names(&page.expect("a list")) == ["file"]
    })
    .await;
}

pub async fn lists_come_in_pages(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    for name in ["a", "b", "c", "d", "e", "sub/deep"] {
        life.write(&sandbox, &format!("dir/{name}"), b"x").await;
    }
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let options = ListOptions {
            limit: Some(2),
            after: after.take(),
            depth: None,
        };
        let page = life
            .engine
            .list_files(id, ListFiles::new(path(&sandbox, "dir"), options))
            .await;
        let page = page.expect("a page");
        assert!(page.entries.len() <= 2);
        found.extend(names(&page).into_iter().map(str::to_string));
        match page.next {
            Some(next) => after = Some(Bytes::from(BASE64.decode(next).expect("base64"))),
            None => break,
        }
    }
    found.sort();
    assert_eq!(found, ["a", "b", "c", "d", "e", "sub"]);
    let deep = ListOptions {
        depth: Some(2),
        ..ListOptions::default()
    };
    let page = life
        .engine
        .list_files(id, ListFiles::new(path(&sandbox, "dir"), deep))
        .await;
    let page = page.expect("a page");
    assert!(names(&page).contains(&"deep"), "{page:?}");
    let file = path(&sandbox, "dir/a");
    let page = life
        .engine
        .list_files(id, ListFiles::new(file, ListOptions::default()))
        .await;
    refused(ErrorKind::Invalid, page);
}

pub async fn move_keeps_content_and_respects_the_target(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "from", b"content").await;
    life.write(&sandbox, "taken", b"other").await;
    let engine = &life.engine;
    let to = |name: &str| path(&sandbox, name);
    let onto = engine
        .move_file(
            id,
            MoveFile {
                from: to("from"),
                to: to("taken"),
                overwrite: false,
                user: None,
            },
        )
        .await;
    refused(ErrorKind::Conflict, onto);
    assert_eq!(life.read(&sandbox, "taken").await.expect("read"), b"other");
    let moved = engine
        .move_file(
            id,
            MoveFile {
                from: to("from"),
                to: to("free"),
                overwrite: false,
                user: None,
            },
        )
        .await;
    assert_eq!(moved.expect("moved").path, place(&sandbox, "free"));
    assert!(!life.exists(&sandbox, "from").await);
    let moved = engine
        .move_file(
            id,
            MoveFile {
                from: to("free"),
                to: to("taken"),
                overwrite: true,
                user: None,
            },
        )
        .await;
    moved.expect("moved");
    assert_eq!(
        life.read(&sandbox, "taken").await.expect("read"),
        b"content"
    );
    life.write(&sandbox, "dir/inner", b"inner").await;
    let moved = engine
        .move_file(
            id,
            MoveFile {
                from: to("dir"),
                to: to("moved"),
                overwrite: false,
                user: None,
            },
        )
        .await;
    moved.expect("moved");
    assert_eq!(
        life.read(&sandbox, "moved/inner").await.expect("read"),
        b"inner"
    );
}

pub async fn chmod_changes_the_mode(life: Life) {
    let sandbox = life.create().await;
    life.write(&sandbox, "file", b"").await;
    for mode in [0o755, 0o600] {
        let file = path(&sandbox, "file");
        let changed = life
            .engine
            .chmod(
                &sandbox.sandbox_id,
                ChangeMode {
                    path: file,
                    mode,
                    user: None,
                },
            )
            .await;
        assert_eq!(changed.expect("changed").mode, mode);
    }
}

pub async fn remove_takes_directories_only_when_told(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "dir/file", b"").await;
    let dir = || path(&sandbox, "dir");
    let removed = life
        .engine
        .remove_file(
            id,
            RemoveFile {
                path: dir(),
                recursive: false,
                user: None,
            },
        )
        .await;
    removed.expect_err("the directory is not empty");
    assert!(life.exists(&sandbox, "dir/file").await);
    life.engine
        .remove_file(
            id,
            RemoveFile {
                path: dir(),
                recursive: true,
                user: None,
            },
        )
        .await
        .expect("removed");
    assert!(!life.exists(&sandbox, "dir").await);
    life.write(&sandbox, "file", b"").await;
    let file = path(&sandbox, "file");
    life.engine
        .remove_file(
            id,
            RemoveFile {
                path: file,
                recursive: false,
                user: None,
            },
        )
        .await
        .expect("removed");
    assert!(!life.exists(&sandbox, "file").await);
}

pub async fn glob_finds_and_stops_at_its_limit(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    for name in ["g/one.txt", "g/two.txt", "g/three.rs", "g/deep/four.txt"] {
        life.write(&sandbox, name, b"").await;
    }
    let glob = async |pattern: &str, limit| {
        let pattern = place(&sandbox, pattern);
        let page = life.engine.glob(id, FindFiles::new(&pattern, limit)).await;
        let page = page.expect("a page");
        let mut found: Vec<String> = names(&page).into_iter().map(str::to_string).collect();
        found.sort();
        (found, page.next.is_some())
    };
    assert_eq!(glob("g/*.txt", None).await.0, ["one.txt", "two.txt"]);
    assert_eq!(
        glob("g/**/*.txt", None).await.0,
        ["four.txt", "one.txt", "two.txt"]
    );
    assert_eq!(
        glob("g/{one,three}.*", None).await.0,
        ["one.txt", "three.rs"]
    );
    assert_eq!(glob("g/nothing*", None).await.0, [""; 0]);
    let (found, more) = glob("g/**/*.txt", Some(2)).await;
    assert_eq!((found.len(), more), (2, true));
}

pub async fn a_hash_is_of_the_content(life: Life) {
    let sandbox = life.create().await;
    life.write(&sandbox, "abc", b"abc").await;
    let hash = life
        .engine
        .hash(&sandbox.sandbox_id, (path(&sandbox, "abc")).into())
        .await;
    let hash = hash.expect("a hash");
    assert_eq!(hash.size_bytes, 3);
    // The example of the SHA-256 standard.
    assert_eq!(
        hash.sha256,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

pub async fn large_files_survive_the_round_trip(life: Life) {
    let sandbox = life.create().await;
    let content = long(5_000_000, life.lacks().await.binary);
    life.write(&sandbox, "large", &content).await;
    let read = life.read(&sandbox, "large").await.expect("read");
    assert_eq!(read.len(), content.len());
    assert!(read == content, "the bytes differ");
}

pub async fn trees_survive_the_round_trip(life: Life) {
    let sandbox = life.create().await;
    let id = &sandbox.sandbox_id;
    life.write(&sandbox, "tree/a", b"a").await;
    life.write(&sandbox, "tree/b/c", b"c").await;
    let archive = life
        .engine
        .read_tree(id, (path(&sandbox, "tree")).into())
        .await;
    if life.lacks().await.trees {
        refused(ErrorKind::Unsupported, archive.map(drop));
        let copy = path(&sandbox, "copy");
        let written = life.engine.write_tree(id, copy.into(), bytes(b"")).await;
        refused(ErrorKind::Unsupported, written);
        return;
    }
    let archive = collect(archive.expect("an archive")).await.expect("whole");
    let copy = path(&sandbox, "copy");
    let written = life
        .engine
        .write_tree(id, copy.into(), bytes(&archive))
        .await;
    let written = written.expect("unpacked");
    assert!(written.entries >= 3, "{written:?}");
    assert_eq!(written.bytes, 2);
    assert_eq!(life.read(&sandbox, "copy/a").await.expect("read"), b"a");
    assert_eq!(life.read(&sandbox, "copy/b/c").await.expect("read"), b"c");
}
