//! Files out and back in, exactly.

use crate::support::*;
use crate::workspace::{ALL, Kind, World};
use bytes::Bytes;
use motu_link::message::*;

/// Everything about a tree that a program could see, but for the times of directories that are not ours.
const LISTING: &str = r#"
python3 - <<'P'
import os, hashlib
seen = {}
for top, dirs, files in os.walk(b'.'):
    dirs.sort()
    for name in sorted(dirs + files):
        p = os.path.join(top, name)
        s = os.lstat(p)
        line = [p, oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns]
        if os.path.islink(p): line.append(os.readlink(p))
        elif os.path.isfile(p):
            line += [s.st_size, s.st_nlink, hashlib.sha256(open(p,'rb').read()).hexdigest(),
                     seen.setdefault(s.st_ino, p), s.st_blocks < 2000]
        if not os.path.islink(p):
            line.append(sorted((n, os.getxattr(p, n)) for n in os.listxattr(p) if n.startswith('user.')))
        print(line)
P"#;

const CHANGE: &str = r#"
mkdir -p tree/deep; echo one > tree/one; ln tree/one tree/deep/two; chmod 4751 tree/one
printf '\377' > "$(printf 'tree/bad\377')"; ln -s nowhere tree/link; touch -h -d @5.5 tree/link
truncate -s 60M tree/sparse; printf end | dd of=tree/sparse bs=1 seek=50000000 conv=notrunc 2>/dev/null
head -c 3000000 /dev/urandom > tree/big; mkfifo -m 620 tree/pipe
mkdir -m 500 tree/locked; touch -d '1960-01-01 00:00:00.25 UTC' tree/locked
python3 -c 'import os; os.setxattr("tree/one", "user.a=b%c", b"\0\xff"); os.setxattr("tree/deep", "user.d", b"x")'
touch -d @1234567890.987654321 tree/big tree/deep
chown -h 1234:5678 tree/link tree/big tree/deep tree/pipe
: > "tree/$(printf 'n%.0s' $(seq 255))"
touch -d @7.000000001 tree
"#;

async fn pick(world: &World, paths: Vec<Bytes>) -> (Vec<u8>, Picked) {
    let request = Pick { paths, more: false };
    let said = world.machine.call(Verb::Pick(request)).await.ok();
    match said.notes.last() {
        Some(Said::Picked(picked)) => (said.file, picked.clone()),
        other => panic!("{other:?}"),
    }
}

async fn paths(world: &World) -> Vec<Bytes> {
    let all = world.changes().await.into_iter();
    all.filter(|entry| entry.after.is_some())
        .map(|entry| entry.path)
        .collect()
}

#[tokio::test]
async fn what_is_picked_comes_back_as_it_was() {
    if !is_root() {
        eprintln!("skipped: owners need root");
        return;
    }
    for kind in ALL {
        let baseline = "mkdir old; echo x > old/f; echo keep > keep";
        let (Some(from), Some(to)) = (
            World::new(kind, baseline).await,
            World::new(kind, baseline).await,
        ) else {
            continue;
        };
        from.run(&format!("{CHANGE}\nrm -r old; echo changed > keep"))
            .await;
        let (archive, picked) = pick(&from, paths(&from).await).await;
        assert_eq!(
            picked.left_out_count + picked.unsettled_count,
            0,
            "{picked:?}"
        );
        assert!(
            archive.len() < 8_000_000,
            "holes were packed: {}",
            archive.len()
        );

        let request = Restore {
            remove: vec![path("old"), path("none/there")],
            list_bytes: 0,
        };
        let said = to.machine.call_with(Verb::Restore(request), &archive).await;
        said.ok();
        let (before, after) = (from.run(LISTING).await, to.run(LISTING).await);
        assert_eq!(before, after, "{kind:?}");
        assert!(before.contains("user.a=b%c"), "{before}");
        assert!(before.contains("62914560"), "{before}");
        let shorts = (from.short().await, to.short().await);
        assert_eq!(shorts.0, shorts.1, "{kind:?}");
    }
}

#[tokio::test]
async fn the_systems_own_tar_reads_what_is_picked() {
    let Some(world) = World::new(Kind::Compare, "true").await else {
        return;
    };
    world
        .run("echo one > one; truncate -s 100M holes; printf x >> holes; touch -d @5.25 one")
        .await;
    let (archive, _) = pick(&world, vec![path("one"), path("holes")]).await;
    let file = world.machine.file("out.tar");
    std::fs::write(&file, archive).unwrap();
    world
        .run(&format!(
            "mkdir out; tar -C out -xf {}; cmp one out/one; cmp holes out/holes; test \"$(stat -c %.Y out/one)\" = \"$(stat -c %.Y one)\"",
            file.display()
        ))
        .await;
}

#[tokio::test]
async fn long_lists_come_as_data() {
    let Some(world) = World::new(Kind::Compare, "true").await else {
        return;
    };
    world
        .run("i=0; while [ $i -lt 300 ]; do : > f$i; i=$((i+1)); done")
        .await;
    let list: Vec<u8> = (0..300)
        .flat_map(|i| format!("f{i}\0").into_bytes())
        .collect();
    let request = Pick {
        paths: vec![path("none")],
        more: true,
    };
    let said = world
        .machine
        .call_with(Verb::Pick(request), &list)
        .await
        .ok();
    let Some(Said::Picked(picked)) = said.notes.last() else {
        panic!("{:?}", said.notes);
    };
    assert_eq!((picked.entries, picked.left_out_count), (300, 1));
    assert_eq!(picked.left_out, [path("none")]);

    let request = Restore {
        remove: Vec::new(),
        list_bytes: list.len() as u64,
    };
    let data = [&list[..], &[0; 1024]].concat();
    world
        .machine
        .call_with(Verb::Restore(request), &data)
        .await
        .ok();
    assert_eq!(world.run("ls").await, "");
}

#[tokio::test]
async fn a_file_that_never_settles_is_named() {
    let Some(world) = World::new(Kind::Compare, "true").await else {
        return;
    };
    world
        .run("head -c 900000 /dev/zero > busy; echo calm > calm")
        .await;
    let dir = world.machine.place.path().join("ws");
    let writer = format!("cd {}; while :; do echo x >> busy; done", dir.display());
    let mut child = motu_needs::command("sh")
        .args(["-c", &writer])
        .spawn()
        .unwrap();
    let mut named = false;
    for _ in 0..200 {
        let (_, picked) = pick(&world, vec![path("busy"), path("calm")]).await;
        assert!(!picked.unsettled.contains(&path("calm")));
        if picked.unsettled == [path("busy")] {
            named = true;
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(named);
}

#[tokio::test]
async fn sockets_are_left_out_by_name() {
    let Some(world) = World::new(Kind::Compare, "true").await else {
        return;
    };
    let dir = world.machine.place.path().join("ws");
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("sock")).unwrap();
    let (_, picked) = pick(&world, vec![path("sock")]).await;
    assert_eq!(picked.left_out, [path("sock")]);
}

#[tokio::test]
async fn nothing_is_picked_or_restored_through_a_link() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let link = format!("ln -s {} out", outside.path().display());
    let Some(world) = World::new(Kind::Compare, &link).await else {
        return;
    };
    let (_, picked) = pick(&world, vec![path("out/file")]).await;
    assert_eq!(picked.left_out, [path("out/file")]);
    let request = Pick {
        paths: vec![path("../x")],
        more: false,
    };
    let said = world.machine.call(Verb::Pick(request)).await;
    said.fails(Failure::Invalid);
    let restore = |remove: &str| {
        Verb::Restore(Restore {
            remove: vec![path(remove)],
            list_bytes: 0,
        })
    };
    // Nothing exists behind a symbolic link, and a missing path need not be removed.
    world
        .machine
        .call_with(restore("out/file"), &[0; 1024])
        .await
        .ok();
    let said = world.machine.call_with(restore(""), &[0; 1024]).await;
    said.fails(Failure::Invalid);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

/// Files and links: how many names each has, and what is in it.
const CONTENTS: &str = "find . -type l -printf '%p %l\\n' -o -type f -printf '%p %n ' \\
    -exec sha256sum {} ';' | sort";

/// The names of unfinished files.
async fn unfinished(world: &World) -> String {
    world.run("find . -name '.motu-restoring-*'").await
}

#[tokio::test]
async fn a_restore_that_is_cut_off_leaves_no_half_file() {
    let old = "echo old > big; mkdir deep; echo old > deep/big";
    for kind in ALL {
        let (Some(from), Some(to)) = (World::new(kind, old).await, World::new(kind, old).await)
        else {
            continue;
        };
        from.run("head -c 3000000 /dev/urandom > big; cp big deep/big; cp big deep/new")
            .await;
        let wanted = ["big", "deep/big", "deep/new"].map(path).to_vec();
        for file in &wanted {
            let (archive, _) = pick(&from, vec![file.clone()]).await;
            let stream = to.machine.open(Verb::Restore(Restore::default())).await;
            let half = Bytes::copy_from_slice(&archive[..1_000_000]);
            stream.tx.data(0, half).await.unwrap();
            eventually("it has begun", async || !unfinished(&to).await.is_empty()).await;
            assert_eq!(to.run("cat big deep/*").await, "old\nold\n", "{kind:?}");
            drop(stream);
            eventually("it is undone", async || unfinished(&to).await.is_empty()).await;
            assert_eq!(to.run("cat big deep/*").await, "old\nold\n", "{kind:?}");
        }
        let (archive, _) = pick(&from, wanted).await;
        let whole = Verb::Restore(Restore::default());
        to.machine.call_with(whole, &archive).await.ok();
        assert_eq!(to.run(CONTENTS).await, from.run(CONTENTS).await, "{kind:?}");
    }
}

#[tokio::test]
async fn what_is_no_directory_is_replaced_by_what_is_none() {
    let old = "echo a > file; ln -s nowhere link; echo b > one";
    for kind in ALL {
        let (Some(from), Some(to)) = (World::new(kind, old).await, World::new(kind, old).await)
        else {
            continue;
        };
        // The second time, both names belong to one file: a rename between them does nothing.
        from.run("rm file link one; ln -s one file; echo c > link; echo d > one; ln one two")
            .await;
        let wanted = ["file", "link", "one", "two"].map(path).to_vec();
        let (archive, _) = pick(&from, wanted).await;
        for _ in 0..2 {
            let restore = Verb::Restore(Restore::default());
            to.machine.call_with(restore, &archive).await.ok();
            assert_eq!(unfinished(&to).await, "", "{kind:?}");
            assert_eq!(to.run(CONTENTS).await, from.run(CONTENTS).await, "{kind:?}");
        }
        // A directory is never replaced, and the temporary file for it is removed.
        to.run("rm file; mkdir file; touch file/kept").await;
        let restore = Verb::Restore(Restore::default());
        let said = to.machine.call_with(restore, &archive).await;
        assert_ne!(said.failure(), Failure::None, "{kind:?}");
        assert_eq!(unfinished(&to).await, "", "{kind:?}");
        assert_eq!(to.run("ls file").await, "kept\n", "{kind:?}");
    }
}
