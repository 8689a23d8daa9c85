//! Several changes of files, all or none.

use crate::support::*;
use crate::workspace::{ALL, Kind, World};
use bytes::Bytes;
use motu_link::message::*;
use sha2::Digest as _;

fn sha(text: &str) -> Bytes {
    Bytes::copy_from_slice(&sha2::Sha256::digest(text))
}

fn write(at: &str, content: &str) -> Operation {
    Operation {
        kind: OperationKind::Write as i32,
        path: path(at),
        size: content.len() as u64,
        ..Operation::default()
    }
}

fn delete(at: &str) -> Operation {
    Operation {
        kind: OperationKind::Delete as i32,
        path: path(at),
        ..Operation::default()
    }
}

fn rename(at: &str, to: &str) -> Operation {
    Operation {
        kind: OperationKind::Rename as i32,
        path: path(at),
        to: path(to),
        ..Operation::default()
    }
}

async fn apply(world: &World, operations: Vec<Operation>, data: &str) -> (Heard, Option<Applied>) {
    let request = Apply {
        operations,
        user: String::new(),
    };
    let said = world
        .machine
        .call_with(Verb::Apply(request), data.as_bytes())
        .await;
    let applied = said.notes.iter().find_map(|note| match note {
        Said::Applied(applied) => Some(applied.clone()),
        _ => None,
    });
    (said, applied)
}

const BASELINE: &str =
    "mkdir d; echo one > a; echo two > d/b; echo three > c; chmod 750 a; ln -s a link";
const LIST: &str =
    "find . | sort; cat a d/b c 2>/dev/null || true; stat -c %a a 2>/dev/null || true";

#[tokio::test]
async fn all_operations_are_done_in_order() {
    for kind in ALL {
        let Some(world) = World::new(kind, BASELINE).await else {
            continue;
        };
        let operations = vec![
            Operation {
                expect_sha256: sha("one\n"),
                ..write("a", "ONE\n")
            },
            Operation {
                expect_absent: true,
                mode: 0o755,
                ..write("new/deep/file", "fresh\n")
            },
            rename("d/b", "e/moved"),
            write("e/moved", "2\n"),
            Operation {
                expect_sha256: sha("three\n"),
                ..delete("c")
            },
            write("empty", ""),
        ];
        let (said, applied) = apply(&world, operations, "ONE\nfresh\n2\n").await;
        said.ok();
        assert_eq!(applied.unwrap().done, 6);
        let found = world
            .run("cat a new/deep/file e/moved; stat -c %a a new/deep/file new; stat -c %s empty; find . -name '.motu*'; ls")
            .await;
        assert_eq!(
            found, "ONE\nfresh\n2\n750\n755\n755\n0\na\nd\ne\nempty\nlink\nnew\n",
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_refused_operation_undoes_the_others() {
    for kind in ALL {
        let Some(world) = World::new(kind, BASELINE).await else {
            continue;
        };
        let before = world.run(LIST).await;
        let changes = world.short().await;
        let good = || {
            vec![
                write("a", "X"),
                delete("c"),
                rename("d/b", "far/away/b"),
                write("made/up", ""),
            ]
        };
        let differs = Operation {
            expect_sha256: sha("other"),
            ..write("link", "")
        };
        for (bad, why) in [
            (differs, RefusedWhy::NotAFile),
            (
                Operation {
                    expect_sha256: sha("other"),
                    ..write("far/away/b", "")
                },
                RefusedWhy::Differs,
            ),
            (
                Operation {
                    expect_absent: true,
                    ..write("made/up", "")
                },
                RefusedWhy::Present,
            ),
            (delete("none"), RefusedWhy::Absent),
            (delete("d"), RefusedWhy::NotAFile),
            (rename("a", "link"), RefusedWhy::Present),
            (write("link/x", ""), RefusedWhy::NotAFile),
        ] {
            let name = bad.path.clone();
            let (said, applied) = apply(&world, [good(), vec![bad]].concat(), "X").await;
            assert_ne!(said.failure(), Failure::None);
            let refused = applied.unwrap().refused.unwrap();
            assert_eq!((refused.index, refused.path), (4, name.clone()), "{kind:?}");
            assert_eq!(
                refused.why, why as i32,
                "{kind:?} {name:?}: {}",
                said.outcome.message
            );
            assert_eq!(world.run(LIST).await, before, "{kind:?} {name:?}");
        }
        assert_eq!(world.short().await, changes, "{kind:?}");
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_change_nothing() {
    let Some(world) = World::new(Kind::Compare, BASELINE).await else {
        return;
    };
    let before = world.run(LIST).await;
    for (operations, data) in [
        (vec![write("a", "long")], "x"),
        (vec![write("a", "x")], "xy"),
        (vec![write("../a", "x")], "x"),
        (vec![write("", "x")], "x"),
        (vec![write("/etc/a", "x")], "x"),
        (
            vec![Operation {
                expect_sha256: path("short"),
                ..write("a", "x")
            }],
            "x",
        ),
    ] {
        let (said, applied) = apply(&world, operations, data).await;
        said.fails(Failure::Invalid);
        assert_eq!(applied, None);
        assert_eq!(world.run(LIST).await, before);
    }
}
