//! Trees in and out: archives are packed and unpacked without loss, and hostile ones are refused.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

fn tree_in(name: &str) -> TreeIn {
    TreeIn {
        path: path(name),
        ..TreeIn::default()
    }
}

/// One raw tar entry.
fn entry(name: &[u8], kind: u8, link: &[u8], body: &[u8]) -> Vec<u8> {
    let mut block = [0u8; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..107].copy_from_slice(b"0006755");
    block[108..115].copy_from_slice(b"0000000");
    block[116..123].copy_from_slice(b"0000000");
    block[124..135].copy_from_slice(format!("{:011o}", body.len()).as_bytes());
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = block.to_vec();
    all.extend_from_slice(body);
    all.resize(all.len().div_ceil(512) * 512, 0);
    all
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut all = entries.concat();
    all.resize(all.len() + 1024, 0);
    all
}

#[tokio::test]
async fn a_tree_survives_the_way_out_and_in() {
    let machine = Machine::start().await;
    let top = machine.file("from");
    std::fs::create_dir_all(top.join("sub/empty")).unwrap();
    let long = "long-name/".repeat(30);
    std::fs::create_dir_all(top.join(&long)).unwrap();
    std::fs::write(top.join(&long).join("leaf"), "leaf").unwrap();
    let big: Vec<u8> = (0..3_000_001u32).map(|at| (at % 253) as u8).collect();
    std::fs::write(top.join("sub/big"), &big).unwrap();
    std::fs::set_permissions(top.join("sub/big"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    std::fs::hard_link(top.join("sub/big"), top.join("other-name")).unwrap();
    std::fs::write(
        top.join(std::ffi::OsStr::from_bytes(b"new\nline \xff")),
        "odd",
    )
    .unwrap();
    symlink("/etc/shadow", top.join("link")).unwrap();
    machine
        .shell(&format!("mkfifo {}/fifo", top.display()))
        .await
        .ok();

    let said = machine
        .call(Verb::TreeOut(TreeOut {
            path: path("/from"),
            ..Default::default()
        }))
        .await
        .ok();
    assert_eq!(said.file.len() % 512, 0);
    // The system's own tar reads it too.
    std::fs::write(machine.file("out.tar"), &said.file).unwrap();
    let listed = machine
        .shell(&format!("tar -tf {}", machine.file("out.tar").display()))
        .await
        .ok();
    assert_eq!(
        listed.exited().code,
        0,
        "{}",
        String::from_utf8_lossy(&listed.err)
    );

    let done = machine
        .call_with(Verb::TreeIn(tree_in("/to/here")), &said.file)
        .await
        .ok();
    let Some(Said::TreeDone(counts)) = done.notes.last() else {
        panic!()
    };
    assert!(counts.entries >= 38 && counts.bytes >= 3_000_008);
    let to = machine.file("to/here");
    assert!(std::fs::read(to.join("sub/big")).unwrap() == big);
    let (one, two) = (
        to.join("sub/big").metadata().unwrap(),
        to.join("other-name").metadata().unwrap(),
    );
    assert_eq!(one.ino(), two.ino());
    assert_eq!(one.mode() & 0o7777, 0o751, "no set-user-id bit");
    assert_eq!(one.mtime(), top.join("sub/big").metadata().unwrap().mtime());
    assert_eq!(std::fs::read(to.join(&long).join("leaf")).unwrap(), b"leaf");
    assert_eq!(
        std::fs::read(to.join(std::ffi::OsStr::from_bytes(b"new\nline \xff"))).unwrap(),
        b"odd"
    );
    assert_eq!(
        std::fs::read_link(to.join("link")).unwrap().as_os_str(),
        "/etc/shadow"
    );
    assert!(to.join("sub/empty").is_dir() && !to.join("fifo").exists());
}

#[tokio::test]
async fn archives_of_the_systems_own_tar_are_read() {
    let machine = Machine::start().await;
    let long = "deep-directory-name/".repeat(15);
    std::fs::create_dir_all(machine.file("src").join(&long)).unwrap();
    std::fs::write(machine.file("src").join(&long).join("x"), "x").unwrap();
    for format in ["gnu", "pax", "ustar", "v7"] {
        let short = if matches!(format, "gnu" | "pax") {
            "."
        } else {
            "./deep-directory-name/deep-directory-name"
        };
        let only_short = if short == "." { "" } else { "--no-recursion" };
        let script = format!(
            "tar --format={format} {only_short} -cf - -C {} {short}",
            machine.file("src").display()
        );
        let said = machine.shell(&script).await.ok();
        assert_eq!(
            said.exited().code,
            0,
            "{}",
            String::from_utf8_lossy(&said.err)
        );
        let dest = format!("/dest-{format}");
        machine
            .call_with(Verb::TreeIn(tree_in(&dest)), &said.out)
            .await
            .ok();
        let found = machine.root().join(&dest[1..]).join(if short == "." {
            format!("{long}x")
        } else {
            "deep-directory-name".into()
        });
        assert!(found.exists(), "{}", found.display());
    }
}

#[tokio::test]
async fn hostile_entries_are_refused_and_named() {
    let machine = Machine::start().await;
    let outside = machine.place.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("victim"), "safe").unwrap();
    let outside_text = outside.to_str().unwrap().as_bytes().to_vec();
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("dot-dot", vec![entry(b"a/../../evil", b'0', b"", b"x")]),
        ("absolute", vec![entry(b"/evil", b'0', b"", b"x")]),
        (
            "through a symlink",
            vec![
                entry(b"l", b'2', &outside_text, b""),
                entry(b"l/victim", b'0', b"", b"owned"),
            ],
        ),
        (
            "directory over symlink",
            vec![
                entry(b"l", b'2', &outside_text, b""),
                entry(b"l", b'5', b"", b""),
            ],
        ),
        (
            "link to symlink",
            vec![
                entry(b"l", b'2', b"/etc/passwd", b""),
                entry(b"h", b'1', b"l", b""),
            ],
        ),
        (
            "link outside",
            vec![entry(b"h", b'1', b"../../outside/victim", b"")],
        ),
        (
            "link absolute",
            vec![entry(b"h", b'1', b"/etc/passwd", b"")],
        ),
        (
            "link through symlink",
            vec![
                entry(b"l", b'2', &outside_text, b""),
                entry(b"h", b'1', b"l/victim", b""),
            ],
        ),
        ("device", vec![entry(b"null", b'3', b"", b"")]),
        ("block", vec![entry(b"disk", b'4', b"", b"")]),
        ("pipe", vec![entry(b"pipe", b'6', b"", b"")]),
        ("sparse", vec![entry(b"sparse", b'S', b"", b"")]),
        (
            "file over directory",
            vec![entry(b"d", b'5', b"", b""), entry(b"d", b'0', b"", b"x")],
        ),
        (
            "bad record",
            vec![
                entry(b"x", b'x', b"", b"99999 path=x\n"),
                entry(b"y", b'0', b"", b""),
            ],
        ),
        (
            "pax dot-dot",
            vec![
                entry(b"x", b'x', b"", b"19 path=../../evil\n"),
                entry(b"y", b'0', b"", b""),
            ],
        ),
        (
            "long name dot-dot",
            vec![
                entry(b"././@LongLink", b'L', b"", b"../../evil\0"),
                entry(b"y", b'0', b"", b""),
            ],
        ),
    ];
    for (index, (what, entries)) in cases.into_iter().enumerate() {
        let dest = format!("/dest{index}");
        let said = machine
            .call_with(Verb::TreeIn(tree_in(&dest)), &archive(&entries))
            .await;
        assert!(
            matches!(said.failure(), Failure::Invalid | Failure::Exists),
            "{what}: {:?} {}",
            said.failure(),
            said.outcome.message
        );
    }
    assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"safe");
    assert!(!machine.place.path().join("evil").exists() && !machine.file("evil").exists());
}

#[tokio::test]
async fn an_existing_symlink_is_replaced_not_followed() {
    let machine = Machine::start().await;
    let outside = machine.place.path().join("victim");
    std::fs::write(&outside, "safe").unwrap();
    std::fs::create_dir(machine.file("dest")).unwrap();
    symlink(&outside, machine.file("dest/file")).unwrap();
    let body = archive(&[entry(b"file", b'0', b"", b"new")]);
    machine
        .call_with(Verb::TreeIn(tree_in("/dest")), &body)
        .await
        .ok();
    assert_eq!(std::fs::read(&outside).unwrap(), b"safe");
    assert_eq!(std::fs::read(machine.file("dest/file")).unwrap(), b"new");
}

#[tokio::test]
async fn limits_hold() {
    let machine = Machine::start().await;
    let many = archive(&[
        entry(b"a", b'0', b"", b"1234"),
        entry(b"b", b'0', b"", b"1234"),
    ]);
    let limited = |max_bytes, max_entries| {
        Verb::TreeIn(TreeIn {
            max_bytes,
            max_entries,
            ..tree_in("/d")
        })
    };
    machine
        .call_with(limited(7, 0), &many)
        .await
        .fails(Failure::Limit);
    machine
        .call_with(limited(0, 1), &many)
        .await
        .fails(Failure::Limit);
    machine.call_with(limited(8, 2), &many).await.ok();
    machine
        .call_with(limited(0, 0), &many[..700])
        .await
        .fails(Failure::Invalid);
    machine
        .call_with(limited(0, 0), &[7; 2048])
        .await
        .fails(Failure::Invalid);
    let mut huge = entry(b"././@LongLink", b'L', b"", &[b'x'; 70_000]);
    huge.extend(entry(b"y", b'0', b"", b""));
    machine
        .call_with(limited(0, 0), &huge)
        .await
        .fails(Failure::Limit);
    // An archive may be split into pieces of any size.
    let stream = machine.open(Verb::TreeIn(tree_in("/pieces"))).await;
    for piece in many.chunks(333) {
        stream
            .tx
            .data(0, Bytes::copy_from_slice(piece))
            .await
            .unwrap();
    }
    stream.tx.eof().await.unwrap();
    finish(stream).await.ok();
    assert_eq!(std::fs::read(machine.file("pieces/b")).unwrap(), b"1234");
}

#[tokio::test]
async fn owners_come_from_the_request_or_the_archive() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let machine = Machine::start().await;
    let body = archive(&[entry(b"d/f", b'0', b"", b"x")]);
    machine
        .call_with(
            Verb::TreeIn(TreeIn {
                user: "777:778".into(),
                ..tree_in("/one")
            }),
            &body,
        )
        .await
        .ok();
    for name in ["one", "one/d", "one/d/f"] {
        let found = machine.file(name).metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (777, 778), "{name}");
    }
    machine
        .call_with(
            Verb::TreeIn(TreeIn {
                user: "archive".into(),
                ..tree_in("/two")
            }),
            &body,
        )
        .await
        .ok();
    assert_eq!(machine.file("two/d/f").metadata().unwrap().uid(), 0);
}
