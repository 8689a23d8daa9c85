//! Files through the real guest: every verb, and the ways out of the root.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

async fn read(machine: &Machine, name: &str) -> Heard {
    machine
        .call(Verb::Read(Read {
            path: path(name),
            ..Read::default()
        }))
        .await
}

fn write(name: &str) -> Write {
    Write {
        path: path(name),
        ..Write::default()
    }
}

#[tokio::test]
async fn what_is_written_is_read() {
    let machine = Machine::start().await;
    let data: Vec<u8> = (0..5_000_000u32).map(|at| (at * 7 % 251) as u8).collect();
    let said = machine
        .call_with(
            Verb::Write(Write {
                parents: true,
                mode: 0o640,
                ..write("/a/b/file")
            }),
            &data,
        )
        .await
        .ok();
    let entry = said.entries().remove(0);
    assert_eq!(
        (&entry.path[..], entry.size, entry.mode),
        (&b"/a/b/file"[..], 5_000_000, 0o640)
    );
    assert!(std::fs::read(machine.file("a/b/file")).unwrap() == data);
    let said = read(&machine, "/a/b/file").await.ok();
    assert!(said.file == data);
    assert_eq!(said.entries()[0].kind, FileType::File as i32);
    let part = Read {
        path: path("/a/b/file"),
        offset: 4_999_990,
        length: 5,
        ..Default::default()
    };
    assert_eq!(
        machine.call(Verb::Read(part)).await.ok().file,
        &data[4_999_990..4_999_995]
    );
    let beyond = Read {
        path: path("/a/b/file"),
        offset: u64::MAX,
        length: 5,
        ..Default::default()
    };
    machine.call(Verb::Read(beyond)).await;
    assert_eq!(
        std::fs::read_dir(machine.file("a/b")).unwrap().count(),
        1,
        "nothing temporary is left"
    );
}

#[tokio::test]
async fn what_links_lead_to_outside_of_a_directory_is_refused() {
    let machine = Machine::start().await;
    std::fs::create_dir_all(machine.file("top/in")).unwrap();
    std::fs::create_dir_all(machine.file("topmost")).unwrap();
    for name in ["top/in/file", "topmost/file", "file"] {
        std::fs::write(machine.file(name), name).unwrap();
    }
    symlink("/file", machine.file("top/out")).unwrap();
    symlink("../topmost", machine.file("top/beside")).unwrap();
    symlink("/top/in", machine.file("top/again")).unwrap();
    let within = path("/top");
    let refused = Failure::Denied;
    for (name, fine) in [
        ("/top/in/file", true),
        ("/top/again/file", true),
        ("/top/out", false),
        ("/top/beside/file", false),
        ("/file", false),
    ] {
        let read = Read {
            path: path(name),
            within: within.clone(),
            ..Read::default()
        };
        let heard = machine.call(Verb::Read(read)).await;
        let expected = if fine { Failure::None } else { refused };
        assert_eq!(heard.failure(), expected, "{name}");
        let stat = Stat {
            path: path(name),
            follow: true,
            within: within.clone(),
        };
        let heard = machine.call(Verb::Stat(stat)).await;
        assert_eq!(heard.failure(), expected, "{name}");
    }
    for (name, fine) in [("/top", true), ("/top/again", true), ("/top/beside", false)] {
        let tree = TreeOut {
            path: path(name),
            within: within.clone(),
        };
        let heard = machine.call(Verb::TreeOut(tree)).await;
        let expected = if fine { Failure::None } else { refused };
        assert_eq!(heard.failure(), expected, "{name}");
    }
}

#[tokio::test]
async fn replacing_keeps_the_mode_and_appending_adds() {
    let machine = Machine::start().await;
    std::fs::write(machine.file("x"), "old").unwrap();
    std::fs::set_permissions(machine.file("x"), std::fs::Permissions::from_mode(0o751)).unwrap();
    machine
        .call_with(
            Verb::Write(Write {
                mode: 0o600,
                sync: true,
                ..write("/x")
            }),
            b"new",
        )
        .await
        .ok();
    assert_eq!(std::fs::read(machine.file("x")).unwrap(), b"new");
    assert_eq!(machine.file("x").metadata().unwrap().mode() & 0o7777, 0o751);
    machine
        .call_with(
            Verb::Write(Write {
                append: true,
                ..write("/x")
            }),
            b"er",
        )
        .await
        .ok();
    machine
        .call_with(
            Verb::Write(Write {
                append: true,
                ..write("/y")
            }),
            b"fresh",
        )
        .await
        .ok();
    assert_eq!(std::fs::read(machine.file("x")).unwrap(), b"newer");
    assert_eq!(std::fs::read(machine.file("y")).unwrap(), b"fresh");
    machine
        .call_with(
            Verb::Write(Write {
                create_new: true,
                ..write("/x")
            }),
            b"",
        )
        .await
        .fails(Failure::Exists);
    machine
        .call_with(Verb::Write(write("/no/parent")), b"")
        .await
        .fails(Failure::NotFound);
    std::fs::create_dir(machine.file("dir")).unwrap();
    machine
        .call_with(Verb::Write(write("/dir")), b"")
        .await
        .fails(Failure::Invalid);
    machine
        .call_with(Verb::Write(write("/")), b"")
        .await
        .fails(Failure::Invalid);
}

#[tokio::test]
async fn an_abandoned_write_leaves_nothing() {
    let machine = Machine::start().await;
    std::fs::write(machine.file("x"), "old").unwrap();
    let stream = machine.open(Verb::Write(write("/x"))).await;
    stream
        .tx
        .data(0, Bytes::from(vec![1; 100_000]))
        .await
        .unwrap();
    eventually("it has begun", async || {
        std::fs::read_dir(machine.root()).unwrap().count() == 2
    })
    .await;
    drop(stream);
    eventually("it is gone", async || {
        std::fs::read_dir(machine.root()).unwrap().count() == 1
    })
    .await;
    assert_eq!(std::fs::read(machine.file("x")).unwrap(), b"old");
}

#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let machine = Machine::start().await;
    let outside = machine.place.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    symlink("/etc/shadow", machine.file("shadow")).unwrap();
    symlink("../outside", machine.file("up")).unwrap();
    symlink(&outside, machine.file("absolute")).unwrap();
    symlink("/proc/self/root/etc/passwd", machine.file("magic")).unwrap();
    for name in [
        "/shadow",
        "/magic",
        "/up/secret",
        "/absolute/secret",
        "/../outside/secret",
        "/../../../../etc/passwd",
        "/up/../../etc/passwd",
    ] {
        read(&machine, name).await.fails(Failure::NotFound);
        let stat = Stat {
            path: path(name),
            follow: true,
            ..Default::default()
        };
        machine
            .call(Verb::Stat(stat))
            .await
            .fails(Failure::NotFound);
        machine
            .call(Verb::Hash(Hash { path: path(name) }))
            .await
            .fails(Failure::NotFound);
        let chmod = Chmod {
            path: path(name),
            mode: 0o777,
        };
        machine
            .call(Verb::Chmod(chmod))
            .await
            .fails(Failure::NotFound);
    }
    // A symlink out of the root resolves to the same path inside it.
    machine
        .call_with(
            Verb::Write(Write {
                parents: false,
                ..write("/up/secret")
            }),
            b"mine",
        )
        .await
        .fails(Failure::NotFound);
    machine
        .call_with(Verb::Write(write("/shadow")), b"mine")
        .await
        .fails(Failure::NotFound);
    std::fs::create_dir(machine.file("etc")).unwrap();
    machine
        .call_with(Verb::Write(write("/shadow")), b"mine")
        .await
        .ok();
    assert_eq!(std::fs::read(machine.file("etc/shadow")).unwrap(), b"mine");
    assert!(machine.file("shadow").is_symlink());
    machine
        .call(Verb::Remove(Remove {
            path: path("/up"),
            recursive: true,
        }))
        .await
        .ok();
    machine
        .call(Verb::Remove(Remove {
            path: path("/absolute"),
            recursive: true,
        }))
        .await
        .ok();
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"secret");
    for bad in ["relative", "", "/nul\0", "../x"] {
        read(&machine, bad).await.fails(Failure::Invalid);
    }
    read(&machine, &"/x".repeat(3000))
        .await
        .fails(Failure::Invalid);
}

#[tokio::test]
async fn only_regular_files_are_read() {
    let machine = Machine::start().await;
    std::fs::create_dir(machine.file("dir")).unwrap();
    read(&machine, "/dir").await.fails(Failure::Invalid);
    let fifo = machine.file("fifo");
    machine
        .shell(&format!("mkfifo {}", fifo.display()))
        .await
        .ok();
    read(&machine, "/fifo").await.fails(Failure::Invalid);
    machine
        .call_with(Verb::Write(write("/fifo")), b"x")
        .await
        .fails(Failure::Invalid);
    read(&machine, "/none").await.fails(Failure::NotFound);
    machine
        .call_with(Verb::Write(write("/file")), b"x")
        .await
        .ok();
    read(&machine, "/file/below").await.fails(Failure::Invalid);
}

#[tokio::test]
async fn directories_are_made_moved_and_removed() {
    let machine = Machine::start().await;
    let mkdir = |name: &str, parents| {
        Verb::Mkdir(Mkdir {
            path: path(name),
            parents,
            mode: 0o750,
            ..Mkdir::default()
        })
    };
    machine
        .call(mkdir("/x/y/z", false))
        .await
        .fails(Failure::NotFound);
    let said = machine.call(mkdir("/x/y/z", true)).await.ok();
    assert_eq!(said.entries()[0].mode, 0o750);
    machine.call(mkdir("/x/y/z", true)).await.ok();
    machine
        .call(mkdir("/x/y/z", false))
        .await
        .fails(Failure::Exists);
    machine
        .call_with(Verb::Write(write("/x/y/z/file")), b"data")
        .await
        .ok();
    let rename = |from: &str, to: &str, overwrite| {
        Verb::Move(Move {
            from: path(from),
            to: path(to),
            overwrite,
        })
    };
    machine.call(rename("/x/y", "/moved", false)).await.ok();
    machine
        .call_with(Verb::Write(write("/other")), b"other")
        .await
        .ok();
    machine
        .call(rename("/other", "/moved/z/file", false))
        .await
        .fails(Failure::Exists);
    let said = machine
        .call(rename("/other", "/moved/z/file", true))
        .await
        .ok();
    assert_eq!(&said.entries()[0].path[..], b"/moved/z/file");
    assert_eq!(
        std::fs::read(machine.file("moved/z/file")).unwrap(),
        b"other"
    );
    machine
        .call(rename("/missing", "/new", false))
        .await
        .fails(Failure::NotFound);
    let remove = |name: &str, recursive| {
        Verb::Remove(Remove {
            path: path(name),
            recursive,
        })
    };
    machine
        .call(remove("/moved", false))
        .await
        .fails(Failure::Exists);
    machine.call(remove("/moved", true)).await.ok();
    machine
        .call(remove("/moved", true))
        .await
        .fails(Failure::NotFound);
    machine.call(remove("/", true)).await.fails(Failure::Denied);
    machine
        .call(remove("/x/..", true))
        .await
        .fails(Failure::Invalid);
    assert!(!machine.file("moved").exists() && machine.file("x").exists());
}

#[tokio::test]
async fn a_very_deep_tree_is_removed() {
    use rustix::fs::{Mode, OFlags};
    let machine = Machine::start().await;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = rustix::fs::open(machine.root(), flags, Mode::empty()).unwrap();
    // Deeper than the maximum length of a path.
    for _ in 0..700 {
        rustix::fs::mkdirat(&at, "directory", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "directory", flags, Mode::empty()).unwrap();
        rustix::fs::openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    }
    let remove = Remove {
        path: path("/directory"),
        recursive: true,
    };
    machine.call(Verb::Remove(remove)).await.ok();
    assert_eq!(std::fs::read_dir(machine.root()).unwrap().count(), 0);
}

#[tokio::test]
async fn moving_between_filesystems_copies() {
    let machine = Machine::start().await;
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no second filesystem");
        return;
    };
    if other.path().metadata().unwrap().dev() == machine.root().metadata().unwrap().dev() {
        eprintln!("skipped: no second filesystem");
        return;
    }
    let init = Init {
        file_root: path("/"),
        ..Init::default()
    };
    machine.call(Verb::Init(init)).await.ok();
    std::fs::create_dir_all(machine.file("tree/sub")).unwrap();
    std::fs::write(machine.file("tree/sub/file"), "data").unwrap();
    symlink("sub/file", machine.file("tree/link")).unwrap();
    let target = other.path().join("arrived");
    let rename = Move {
        from: bytes_of(&machine.file("tree")),
        to: bytes_of(&target),
        overwrite: false,
    };
    machine.call(Verb::Move(rename.clone())).await.ok();
    assert_eq!(std::fs::read(target.join("link")).unwrap(), b"data");
    assert!(!machine.file("tree").exists());
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
    std::fs::write(machine.file("tree"), "file").unwrap();
    machine
        .call(Verb::Move(rename))
        .await
        .fails(Failure::Exists);
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn links_and_modes_change() {
    let machine = Machine::start().await;
    machine
        .call_with(Verb::Write(write("/file")), b"abc")
        .await
        .ok();
    let link = Symlink {
        path: path("/link"),
        target: path("file"),
        user: String::new(),
    };
    let said = machine.call(Verb::Symlink(link.clone())).await.ok();
    assert_eq!(&said.entries()[0].symlink_target[..], b"file");
    machine
        .call(Verb::Symlink(link))
        .await
        .fails(Failure::Exists);
    let said = machine
        .call(Verb::Chmod(Chmod {
            path: path("/link"),
            mode: 0o4711,
        }))
        .await
        .ok();
    assert_eq!(said.entries()[0].mode, 0o4711);
    let stat = |follow| {
        Verb::Stat(Stat {
            path: path("/link"),
            follow,
            ..Default::default()
        })
    };
    assert_eq!(
        machine.call(stat(false)).await.ok().entries()[0].kind,
        FileType::Symlink as i32
    );
    let followed = machine.call(stat(true)).await.ok().entries().remove(0);
    assert_eq!(
        (followed.kind, followed.size, followed.mode),
        (FileType::File as i32, 3, 0o4711)
    );
    assert!(
        machine
            .call(Verb::Stat(Stat {
                path: path("/"),
                follow: false,
                ..Default::default()
            }))
            .await
            .ok()
            .entries()[0]
            .kind
            == FileType::Directory as i32
    );
}

#[tokio::test]
async fn a_hash_is_the_hash() {
    let machine = Machine::start().await;
    std::fs::write(machine.file("abc"), "abc").unwrap();
    let said = machine
        .call(Verb::Hash(Hash { path: path("/abc") }))
        .await
        .ok();
    let Some(Said::Digest(digest)) = said.notes.last() else {
        panic!()
    };
    assert_eq!(digest.size, 3);
    assert_eq!(digest.sha256[..4], [0xba, 0x78, 0x16, 0xbf]);
}

#[tokio::test]
async fn owners_are_given() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let machine = Machine::start().await;
    let user = "12345:12346".to_string();
    machine
        .call_with(
            Verb::Write(Write {
                parents: true,
                user: user.clone(),
                ..write("/a/b")
            }),
            b"x",
        )
        .await
        .ok();
    for name in ["a", "a/b"] {
        let found = machine.file(name).metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (12345, 12346));
    }
    machine
        .call(Verb::Symlink(Symlink {
            path: path("/l"),
            target: path("a"),
            user,
        }))
        .await
        .ok();
    assert_eq!(machine.file("l").symlink_metadata().unwrap().uid(), 12345);
    machine
        .call_with(
            Verb::Write(Write {
                user: "0".into(),
                ..write("/a/b")
            }),
            b"y",
        )
        .await
        .ok();
    assert_eq!(
        machine.file("a/b").metadata().unwrap().uid(),
        12345,
        "a replaced file keeps its owner"
    );
    assert_eq!(machine.file("a").as_os_str().as_bytes().last(), Some(&b'a'));
}
