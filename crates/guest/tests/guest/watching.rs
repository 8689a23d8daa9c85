//! Watching for changes.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;

async fn change(stream: &mut motu_link::Stream) -> (ChangeKind, String, String) {
    loop {
        match next(stream).await {
            Next::Note(Said::Change(change)) => {
                let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                return (
                    ChangeKind::try_from(change.kind).unwrap(),
                    text(change.path),
                    text(change.from),
                );
            }
            Next::Data(..) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn changes_are_seen() {
    let machine = Machine::start().await;
    std::fs::create_dir_all(machine.file("w/sub")).unwrap();
    let mut stream = machine
        .open(Verb::Watch(Watch {
            path: path("/w"),
            recursive: true,
        }))
        .await;
    assert!(matches!(
        next(&mut stream).await,
        Next::Note(Said::Watching(_))
    ));
    let expect = async |stream: &mut motu_link::Stream, kind, name: &str, from: &str| {
        // A change of attributes may accompany any other change.
        loop {
            let seen = change(stream).await;
            if seen.0 == ChangeKind::Attributes
                || (seen.0 == ChangeKind::Modified && kind != ChangeKind::Modified)
            {
                continue;
            }
            assert_eq!(seen, (kind, name.to_string(), from.to_string()));
            return;
        }
    };
    std::fs::write(machine.file("w/sub/file"), "data").unwrap();
    expect(&mut stream, ChangeKind::Created, "/w/sub/file", "").await;
    expect(&mut stream, ChangeKind::Modified, "/w/sub/file", "").await;
    std::fs::rename(machine.file("w/sub/file"), machine.file("w/moved")).unwrap();
    expect(&mut stream, ChangeKind::Renamed, "/w/moved", "/w/sub/file").await;
    std::fs::rename(machine.file("w/moved"), machine.file("away")).unwrap();
    expect(&mut stream, ChangeKind::Removed, "/w/moved", "").await;
    std::fs::create_dir(machine.file("w/new")).unwrap();
    expect(&mut stream, ChangeKind::Created, "/w/new", "").await;
    machine.call(Verb::Ping(Ping {})).await.ok();
    std::fs::rename(machine.file("w/new"), machine.file("w/renamed")).unwrap();
    expect(&mut stream, ChangeKind::Renamed, "/w/renamed", "/w/new").await;
    std::fs::write(machine.file("w/renamed/inside"), "").unwrap();
    expect(&mut stream, ChangeKind::Created, "/w/renamed/inside", "").await;
    std::fs::remove_file(machine.file("w/renamed/inside")).unwrap();
    expect(&mut stream, ChangeKind::Removed, "/w/renamed/inside", "").await;
    machine
        .call(Verb::Watch(Watch {
            path: path("/none"),
            recursive: false,
        }))
        .await
        .fails(Failure::NotFound);
}

#[tokio::test]
async fn a_flood_of_changes_does_not_break_the_link() {
    let machine = Machine::start().await;
    let mut stream = machine
        .open(Verb::Watch(Watch {
            path: path("/"),
            recursive: true,
        }))
        .await;
    assert!(matches!(
        next(&mut stream).await,
        Next::Note(Said::Watching(_))
    ));
    let script = format!(
        "cd {} && i=0; while [ $i -lt 20000 ]; do : > f$i; i=$((i+1)); done",
        machine.root().display()
    );
    machine.shell(&script).await.ok();
    machine.call(Verb::Ping(Ping {})).await.ok();
    // Unread until now: either all changes arrive, or the guest reports a loss.
    loop {
        let (kind, name, _) = change(&mut stream).await;
        if kind == ChangeKind::Lost || name == "/f19999" {
            break;
        }
    }
}
