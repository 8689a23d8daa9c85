//! Trees copied in and out, with honest and hostile archives.

use motu_core::files::{MakeDirectory, RemoveFile};
use motu_core::{ErrorKind, SandboxId, Service};
use motu_testkit::world::{World, at, refused, stream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

#[tokio::test]
async fn trees_are_copied_both_ways() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let tree = world.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b/empty")).unwrap();
    let large: Vec<u8> = (0..3_000_000u32)
        .flat_map(|n| n.to_le_bytes())
        .take(5_000_001)
        .collect();
    std::fs::write(tree.join("a/large"), &large).unwrap();
    std::fs::write(tree.join("a/b/tool"), "#!/bin/sh\necho tool\n").unwrap();
    std::fs::set_permissions(tree.join("a/b/tool"), PermissionsExt::from_mode(0o751)).unwrap();
    symlink("b/tool", tree.join("a/link")).unwrap();
    std::fs::write(tree.join("l".repeat(150)), "long").unwrap();

    let told = world.motu(&["cp", "tree", &format!("{id}:/work/tree")]);
    assert_eq!(told.code, 0, "{told:?}");
    let said = world
        .sh(
            &id,
            "cd /work/tree/a && ./link && ls b && stat -c %a b/tool",
        )
        .await;
    assert_eq!(said.stdout, "tool\nempty\ntool\n751\n", "{said:?}");
    // Into an existing directory: under its own name, as with cp.
    let told = world.motu(&["cp", "tree", &format!("{id}:/work")]);
    assert_eq!(told.code, 0, "{told:?}");
    let said = world.sh(&id, "ls /work").await;
    assert_eq!(said.stdout, "tree\n", "{said:?}");

    let told = world.motu(&["cp", &format!("{id}:/work/tree"), "back"]);
    assert_eq!(told.code, 0, "{told:?}");
    let diff = motu_needs::command("diff")
        .args(["-r", "--no-dereference", "tree", "back"])
        .current_dir(world.path())
        .output()
        .unwrap();
    assert!(
        diff.status.success(),
        "{}",
        String::from_utf8_lossy(&diff.stdout)
    );
    let mode = std::fs::metadata(world.path().join("back/a/b/tool"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o700, 0o700);

    for (args, code) in [
        (["cp", "nothing", &format!("{id}:/work")], 104),
        (["cp", &format!("{id}:/nothing"), "x"], 104),
        (["cp", "sb-nobody:/work", "x"], 104),
        (["cp", "tree", "sb-nobody:/work"], 104),
    ] {
        let told = world.motu(&args);
        assert_eq!(told.code, code, "{told:?}");
    }
}

/// An entry with a name that no honest writer would use.
fn entry(kind: tar::EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let old = header.as_old_mut();
    old.name[..name.len()].copy_from_slice(name.as_bytes());
    old.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Unpacks the entries into `/in` and returns the result.
async fn unpack(world: &World, id: &SandboxId, entries: &[Vec<u8>]) -> motu_core::Result<()> {
    let mut archive = entries.concat();
    archive.resize(archive.len() + 1024, 0);
    world
        .client()
        .mkdir(
            id,
            MakeDirectory {
                path: at("/in"),
                mode: None,
                user: None,
            },
        )
        .await
        .unwrap();
    let written = world
        .client()
        .write_tree(id, (at("/in")).into(), stream(&archive))
        .await;
    written.map(drop)
}

#[tokio::test]
async fn hostile_archives_are_refused_and_write_nothing_outside() {
    use tar::EntryType as Kind;
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    // Files of an environment may have more hard links in the store, so the test uses a file of its
    // own.
    world.sh(&id, "echo own > /etc/own").await;
    let evil = b"evil";
    let outside = [
        vec![entry(Kind::Regular, "/evil", "", evil)],
        vec![entry(Kind::Regular, "../evil", "", evil)],
        vec![entry(Kind::Regular, "a/../../evil", "", evil)],
        vec![
            entry(Kind::Symlink, "out", "/", b""),
            entry(Kind::Regular, "out/evil", "", evil),
        ],
        vec![
            entry(Kind::Symlink, "up", "..", b""),
            entry(Kind::Regular, "up/evil", "", evil),
        ],
        vec![
            entry(Kind::Symlink, "d", "/", b""),
            entry(Kind::Directory, "d/evil", "", b""),
        ],
        vec![entry(Kind::Link, "hard", "/etc/own", b"")],
        vec![entry(Kind::Link, "hard", "../etc/own", b"")],
        vec![entry(Kind::Block, "evil", "", b"")],
        vec![entry(Kind::Char, "evil", "", b"")],
        vec![entry(Kind::Fifo, "evil", "", b"")],
        vec![entry(Kind::Regular, "cut", "", &[1; 4096])[..1024].to_vec()],
        vec![vec![0xa5; 2048]],
    ];
    for (number, entries) in outside.iter().enumerate() {
        let error = unpack(&world, &id, entries).await.unwrap_err();
        let typed = matches!(error.kind, ErrorKind::Invalid | ErrorKind::Denied);
        assert!(typed, "archive {number}: {error:?}");
        let said = world
            .sh(
                &id,
                "ls -d /evil /etc/evil /in/evil 2>/dev/null; stat -c %h /etc/own",
            )
            .await;
        assert_eq!(said.stdout, "1\n", "archive {number}: {said:?}");
        world
            .client()
            .remove_file(
                &id,
                RemoveFile {
                    path: at("/in"),
                    recursive: true,
                    user: None,
                },
            )
            .await
            .unwrap();
    }
    // An existing link is no way out either; it is replaced by a regular file.
    world
        .sh(&id, "mkdir /in; echo kept > /kept; ln -s /kept /in/file")
        .await;
    unpack(&world, &id, &[entry(Kind::Regular, "file", "", evil)])
        .await
        .unwrap();
    assert_eq!(world.read(&id, "/kept").await.unwrap(), b"kept\n");
    assert_eq!(world.read(&id, "/in/file").await.unwrap(), evil);
    world.assert_works(&id).await;
}

#[tokio::test]
async fn a_tree_from_a_sandbox_cannot_climb_out_of_its_copy() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let victim = world.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("file"), "precious").unwrap();
    let assert_intact = |names: usize| {
        assert_eq!(std::fs::read(victim.join("file")).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(&victim).unwrap().count(), names);
    };
    // First a link, then a directory of the same name: a naive second copy would follow the link.
    let path = victim.display();
    let made = world
        .sh(
            &id,
            &format!("mkdir /t; ln -s {path} /t/x; ln -s {path}/file /t/y"),
        )
        .await;
    assert_eq!(made.exit_code, 0, "{made:?}");
    let source = format!("{id}:/t");
    assert_eq!(world.motu(&["cp", &source, "."]).code, 0);
    assert!(Path::new(&world.path().join("t/x")).is_symlink());
    world
        .sh(
            &id,
            "cd /t; rm x y; mkdir x; echo evil > x/file; echo evil > x/new; echo evil > y",
        )
        .await;
    let told = world.motu(&["cp", &source, "."]);
    assert_intact(1);
    println!("{told:?}");

    // Special mode bits and devices are not copied.
    world
        .sh(
            &id,
            "rm -r /t; mkdir /t; cp /bin/busybox /t/su; chmod 6755 /t/su; mkfifo /t/pipe",
        )
        .await;
    let told = world.motu(&["cp", &source, "bits"]);
    assert_eq!(told.code, 0, "{told:?}");
    let mode = std::fs::metadata(world.path().join("bits/su"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7000, 0, "{mode:o}");
    assert!(!world.path().join("bits/pipe").exists());
    refused(
        ErrorKind::NotFound,
        world
            .client()
            .read_tree(&id, (at("/nothing")).into())
            .await
            .map(drop),
    );
}
