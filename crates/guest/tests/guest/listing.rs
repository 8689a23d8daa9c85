//! Finding files: listings in pages, strange names and patterns.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;
use std::os::unix::fs::symlink;

#[tokio::test]
async fn strange_names_are_names() {
    let machine = Machine::start().await;
    for name in [
        &b"/new\nline"[..],
        b"/\xff\xfe invalid",
        b"/ -rf *",
        b"/\x1b[31m",
    ] {
        let name = Bytes::copy_from_slice(name);
        machine
            .call_with(
                Verb::Write(Write {
                    path: name.clone(),
                    ..Write::default()
                }),
                &name,
            )
            .await
            .ok();
        let said = machine
            .call(Verb::Read(Read {
                path: name.clone(),
                ..Read::default()
            }))
            .await
            .ok();
        assert_eq!(said.file, &name[..]);
        let missing = Bytes::from([&name[..], b"?"].concat());
        let message = machine
            .call(Verb::Read(Read {
                path: missing,
                ..Read::default()
            }))
            .await
            .fails(Failure::NotFound);
        assert!(!message.contains(['\n', '\x1b']), "{message:?}");
    }
    let said = machine
        .call(Verb::List(List {
            path: path("/"),
            ..List::default()
        }))
        .await
        .ok();
    let names: Vec<Bytes> = said.entries().into_iter().map(|entry| entry.path).collect();
    assert_eq!(
        names,
        [
            &b"/\x1b[31m"[..],
            b"/ -rf *",
            b"/new\nline",
            b"/\xff\xfe invalid"
        ]
    );
}

#[tokio::test]
async fn ten_thousand_files_are_listed_in_pages() {
    let machine = Machine::start().await;
    std::fs::create_dir(machine.file("many")).unwrap();
    let mut expected: Vec<String> = (0..12_345)
        .map(|number| format!("/many/file-{number}"))
        .collect();
    for name in &expected {
        std::fs::write(machine.root().join(&name[1..]), "").unwrap();
    }
    expected.sort();
    for limit in [0, 10_000] {
        let mut seen = Vec::new();
        let mut after = Bytes::new();
        loop {
            let list = List {
                path: path("/many"),
                after,
                limit,
                ..List::default()
            };
            let said = machine.call(Verb::List(list)).await.ok();
            seen.extend(
                said.entries()
                    .into_iter()
                    .map(|entry| String::from_utf8(entry.path.to_vec()).unwrap()),
            );
            after = said.next_page();
            if after.is_empty() {
                break;
            }
        }
        assert!(seen == expected, "{} of {}", seen.len(), expected.len());
    }
}

#[tokio::test]
async fn a_deep_listing_is_in_tree_order_and_follows_no_symlink() {
    let machine = Machine::start().await;
    for directory in ["a", "a/b", "a/b/c", "a.d", "z"] {
        std::fs::create_dir(machine.file(directory)).unwrap();
    }
    for file in ["a/1", "a/b/2", "a/b/c/3", "a.d/4", "z/5"] {
        std::fs::write(machine.file(file), "").unwrap();
    }
    symlink("..", machine.file("a/b/loop")).unwrap();
    let expected = [
        "/a",
        "/a/1",
        "/a/b",
        "/a/b/2",
        "/a/b/c",
        "/a/b/c/3",
        "/a/b/loop",
        "/a.d",
        "/a.d/4",
        "/z",
        "/z/5",
    ];
    for limit in [1, 2, 3, 100] {
        let mut seen = Vec::new();
        let mut after = Bytes::new();
        loop {
            let list = List {
                path: path("/"),
                depth: 10,
                after,
                limit,
            };
            let said = machine.call(Verb::List(list)).await.ok();
            assert!(said.entries().len() <= limit as usize);
            seen.extend(
                said.entries()
                    .into_iter()
                    .map(|entry| String::from_utf8(entry.path.to_vec()).unwrap()),
            );
            after = said.next_page();
            if after.is_empty() {
                break;
            }
        }
        assert_eq!(seen, expected, "limit {limit}");
    }
    let shallow = machine
        .call(Verb::List(List {
            path: path("/"),
            depth: 2,
            ..List::default()
        }))
        .await
        .ok();
    assert_eq!(shallow.entries().len(), 7);
    machine
        .call(Verb::List(List {
            path: path("/"),
            depth: 1000,
            ..List::default()
        }))
        .await
        .fails(Failure::Invalid);
    machine
        .call(Verb::List(List {
            path: path("/a/1"),
            ..List::default()
        }))
        .await
        .fails(Failure::Invalid);
    machine
        .call(Verb::List(List {
            path: path("/a"),
            after: path("/z"),
            ..List::default()
        }))
        .await
        .fails(Failure::Invalid);
}

#[tokio::test]
async fn patterns_find_files() {
    let machine = Machine::start().await;
    for directory in ["src", "src/deep", "src/deep/er"] {
        std::fs::create_dir(machine.file(directory)).unwrap();
    }
    for file in [
        "src/a.rs",
        "src/b.c",
        "src/deep/c.rs",
        "src/deep/er/d.rs",
        "top.rs",
    ] {
        std::fs::write(machine.file(file), "").unwrap();
    }
    symlink("..", machine.file("src/deep/loop")).unwrap();
    let glob = async |pattern: &str, limit| {
        let said = machine
            .call(Verb::Glob(Glob {
                pattern: path(pattern),
                limit,
            }))
            .await
            .ok();
        let names: Vec<String> = said
            .entries()
            .into_iter()
            .map(|entry| String::from_utf8(entry.path.to_vec()).unwrap())
            .collect();
        (names.join(" "), !said.next_page().is_empty())
    };
    assert_eq!(glob("/src/*.rs", 0).await.0, "/src/a.rs");
    assert_eq!(
        glob("/**/*.rs", 0).await.0,
        "/src/a.rs /src/deep/c.rs /src/deep/er/d.rs /top.rs"
    );
    assert_eq!(glob("/src/{a,b}.*", 0).await.0, "/src/a.rs /src/b.c");
    assert_eq!(
        glob("/src/**", 0).await.0,
        "/src/a.rs /src/b.c /src/deep /src/deep/c.rs /src/deep/er /src/deep/er/d.rs /src/deep/loop"
    );
    assert_eq!(glob("/top.rs", 0).await.0, "/top.rs");
    assert_eq!(glob("/none", 0).await.0, "");
    assert_eq!(
        glob("/**/*.rs", 2).await,
        ("/src/a.rs /src/deep/c.rs".to_string(), true)
    );
    machine
        .call(Verb::Glob(Glob {
            pattern: path("*.rs"),
            limit: 0,
        }))
        .await
        .fails(Failure::Invalid);
}
