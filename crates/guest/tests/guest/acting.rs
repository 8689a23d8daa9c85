//! Requests for files that are done as a user, and programs with input of their own.

use crate::support::*;
use bytes::Bytes;
use motu_link::message::*;
use prost::Message as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

const USER: u32 = 4321;

fn as_user(verb: Verb) -> Verb {
    Verb::DoneAs(DoneAs {
        user: format!("{USER}:{USER}"),
        request: Request::from(verb).encode_to_vec().into(),
    })
}

fn write(name: &str) -> Verb {
    as_user(Verb::Write(Write {
        path: path(name),
        user: format!("{USER}:{USER}"),
        parents: true,
        ..Write::default()
    }))
}

fn read(name: &str) -> Verb {
    let path = path(name);
    as_user(Verb::Read(Read {
        path,
        ..Read::default()
    }))
}

/// A machine with a directory for everybody and one of root, a file of root's in the first and one
/// of the user's in the second; `None` where nobody else can be.
async fn shared() -> Option<Machine> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let machine = Machine::start().await;
    let mode = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(machine.file(name), permissions).unwrap();
    };
    std::fs::create_dir(machine.file("open")).unwrap();
    std::fs::create_dir(machine.file("closed")).unwrap();
    std::fs::write(machine.file("open/roots"), "root").unwrap();
    std::fs::write(machine.file("closed/theirs"), "old").unwrap();
    chown(machine.file("closed/theirs"), Some(USER), Some(USER)).unwrap();
    mode("", 0o755);
    mode("open", 0o777);
    mode("closed", 0o755);
    mode("open/roots", 0o600);
    mode("closed/theirs", 0o640);
    Some(machine)
}

#[tokio::test]
async fn files_are_written_and_read_with_the_rights_of_a_user() {
    let Some(machine) = shared().await else {
        return;
    };
    machine.call_with(write("/open/a/mine"), b"new").await.ok();
    for name in ["open/a", "open/a/mine"] {
        let made = std::fs::metadata(machine.file(name)).unwrap();
        assert_eq!((made.uid(), made.gid()), (USER, USER), "{name}");
    }
    // Whose file it is may write it, wherever it is.
    machine
        .call_with(write("/closed/theirs"), b"new")
        .await
        .ok();
    let written = std::fs::metadata(machine.file("closed/theirs")).unwrap();
    assert_eq!((written.uid(), written.mode() & 0o777), (USER, 0o640));
    assert_eq!(machine.call(read("/closed/theirs")).await.ok().file, b"new");
    for name in ["/closed/new", "/closed/a/new", "/open/roots"] {
        let refused = machine.call_with(write(name), b"x").await;
        refused.fails(Failure::Denied);
    }
    machine
        .call(read("/open/roots"))
        .await
        .fails(Failure::Denied);
    let left = std::fs::read_dir(machine.file("closed")).unwrap().count();
    assert_eq!(left, 1, "something temporary is left");
    assert_eq!(std::fs::read(machine.file("open/roots")).unwrap(), b"root");
}

#[tokio::test]
async fn every_other_request_for_files_has_the_rights_of_a_user() {
    let Some(machine) = shared().await else {
        return;
    };
    let chmod = |name: &str| {
        as_user(Verb::Chmod(Chmod {
            path: path(name),
            mode: 0o600,
        }))
    };
    let moved = |from: &str, to: &str| {
        as_user(Verb::Move(Move {
            from: path(from),
            to: path(to),
            overwrite: false,
        }))
    };
    let made = |name: &str| {
        as_user(Verb::Mkdir(Mkdir {
            path: path(name),
            user: USER.to_string(),
            ..Mkdir::default()
        }))
    };
    let removed = |name: &str| {
        as_user(Verb::Remove(Remove {
            path: path(name),
            recursive: true,
        }))
    };
    let secret = machine.file("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("file"), "x").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o700)).unwrap();
    let place = || path("/secret");
    let of_others = [
        chmod("/open/roots"),
        moved("/closed/theirs", "/open/theirs"),
        made("/closed/new"),
        removed("/closed/theirs"),
        as_user(Verb::List(List {
            path: place(),
            ..List::default()
        })),
        as_user(Verb::Stat(Stat {
            path: path("/secret/file"),
            ..Stat::default()
        })),
        as_user(Verb::Hash(Hash {
            path: path("/open/roots"),
        })),
        as_user(Verb::Watch(Watch {
            path: place(),
            ..Watch::default()
        })),
        as_user(Verb::TreeOut(TreeOut {
            path: place(),
            ..TreeOut::default()
        })),
    ];
    for request in of_others {
        let said = machine.call(request.clone()).await;
        assert_eq!(said.failure(), Failure::Denied, "{request:?}");
    }
    let found = as_user(Verb::Glob(Glob {
        pattern: path("/secret/*"),
        limit: 0,
    }));
    assert!(machine.call(found).await.ok().entries().is_empty());
    for own in [
        made("/open/new"),
        chmod("/closed/theirs"),
        moved("/open/new", "/open/newer"),
        removed("/open/newer"),
    ] {
        machine.call(own).await.ok();
    }
    // The guest is itself again, on every thread.
    for _ in 0..32 {
        let plain = Verb::Read(Read {
            path: path("/open/roots"),
            ..Read::default()
        });
        assert_eq!(machine.call(plain).await.ok().file, b"root");
    }
}

#[tokio::test]
async fn who_is_not_there_and_what_is_no_file_is_refused() {
    let machine = Machine::start().await;
    let stat = Verb::Stat(Stat {
        path: path("/"),
        ..Stat::default()
    });
    let nobody = Verb::DoneAs(DoneAs {
        user: "nobody-of-this-name".to_string(),
        request: Request::from(stat).encode_to_vec().into(),
    });
    machine.call(nobody).await.fails(Failure::NoUser);
    let start = as_user(Verb::Start(argv(&["true"])));
    machine.call(start).await.fails(Failure::Unsupported);
}

#[tokio::test]
async fn a_program_has_its_input_and_its_end() {
    let machine = Machine::start().await;
    let counted = Start {
        input: Bytes::from_static(b"one\ntwo\n"),
        ..sh("cat; echo end")
    };
    let said = machine.call(Verb::Start(counted)).await.ok();
    assert_eq!(said.out, b"one\ntwo\nend\n");
    // One that runs on has it too, although nobody stays.
    let alone = Start {
        input: Bytes::from_static(b"alone"),
        tag: "alone".to_string(),
        follow: false,
        ..sh("cat")
    };
    machine.call(Verb::Start(alone)).await.ok();
    let attach = Attach {
        process: by_tag("alone"),
        from_oldest: true,
        ..Attach::default()
    };
    assert_eq!(machine.call(Verb::Attach(attach)).await.ok().out, b"alone");
}

#[tokio::test]
async fn a_request_longer_than_a_frame_comes_as_data() {
    let machine = Machine::start().await;
    let words: Vec<String> = (0..9000).map(|at| format!("{at:0>200}")).collect();
    let mut all = vec!["sh", "-c", "printf %s \"$@\" | wc -c; wc -c", "sh"];
    all.extend(words.iter().map(String::as_str));
    let start = Start {
        input: vec![b'x'; 3_000_000].into(),
        ..argv(&all)
    };
    let request = Request::from(Verb::Start(start)).encode_to_vec();
    let bytes = request.len() as u64;
    assert!(bytes > 4_000_000);
    let long = Verb::Long(Long { bytes });
    let said = machine.call_with(long, &request).await.ok();
    assert_eq!(String::from_utf8(said.out).unwrap(), "1800000\n3000000\n");
    let huge = Verb::Long(Long { bytes: u64::MAX });
    machine.call(huge).await.fails(Failure::Limit);
}
