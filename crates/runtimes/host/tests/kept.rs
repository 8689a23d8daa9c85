//! A workspace on the host that outlives its machine, with the real guest.

#![expect(
    clippy::unwrap_used,
    reason = "a failed step ends the test, and should"
)]

use bytes::Bytes;
use motu_core::runtime::{Ask, Kept, Machine, MachineLimits, MachineSpec};
use motu_core::{ErrorKind, Runtime, SandboxId};
use motu_host::{Host, Settings};
use motu_link::message::{Changes, Note, Outcome, ReadBase, Request, Said, Verb};
use motu_link::{Event, Link};
use prost::Message as _;
use std::path::{Path, PathBuf};

fn guest_program() -> PathBuf {
    if let Some(path) = std::env::var_os("MOTU_GUEST_BIN") {
        return path.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    workspace.join("target/guest/x86_64-unknown-linux-gnu/guest/motu-guest")
}

fn host() -> Host {
    let program = guest_program();
    let guest = std::fs::read(&program).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; build motu first, or set MOTU_GUEST_BIN",
            program.display()
        )
    });
    Host::new(Settings {
        guest: guest.into(),
        files: None,
    })
    .unwrap()
}

fn spec(home: &Path, kept: &Kept) -> MachineSpec {
    let id = SandboxId::generate();
    let dir = home.join(id.as_str());
    std::fs::create_dir(&dir).unwrap();
    let ask = |value| Ask {
        value,
        explicit: false,
    };
    MachineSpec {
        hostname: id.to_string(),
        id,
        dir,
        environment: "test".into(),
        root: "/".into(),
        wants_sudo: false,
        limits: MachineLimits {
            vcpu_count: ask(1),
            mem_mib: ask(64),
            disk_mib: ask(64),
            pids_max: ask(64),
            nofile: ask(256),
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        },
        accel: motu_core::Accel::Auto,
        kept: Some(kept.clone()),
        network: None,
    }
}

/// All notes and data of a guest's answer to one request.
async fn ask(host: &Host, machine: &Machine, verb: Verb) -> (Vec<u8>, Vec<Said>) {
    let connection = host.connect(machine).await.unwrap();
    let mut io = tokio::io::join(connection.read, connection.write);
    motu_link::hello::host(&mut io, [7; 16]).await.unwrap();
    let (read, write) = io.into_inner();
    let (link, _incoming) = Link::start(read, write, false);
    let request = Request::from(verb).encode_to_vec();
    let mut stream = link.open(Bytes::from(request)).await.unwrap();
    let (mut data, mut notes) = (Vec::new(), Vec::new());
    let outcome = loop {
        match stream.rx.recv().await.unwrap() {
            Event::Data { bytes, .. } => data.extend_from_slice(&bytes),
            Event::Message(bytes) => notes.extend(Note::decode(bytes).unwrap().said),
            Event::Eof => {}
            Event::End(bytes) => break Outcome::decode(bytes).unwrap(),
            Event::Reset => panic!("the guest reset the stream"),
        }
    };
    assert_eq!(outcome.kind, 0, "{}", outcome.message);
    link.close();
    (data, notes)
}

async fn changed(host: &Host, machine: &Machine) -> Vec<String> {
    let (_, notes) = ask(host, machine, Verb::Changes(Changes::default())).await;
    let pages = notes.into_iter().map(|note| match note {
        Said::Changed(page) => page.entries,
        other => panic!("{other:?}"),
    });
    let paths = pages.flatten().map(|entry| entry.path);
    paths
        .map(|path| String::from_utf8_lossy(&path).into_owned())
        .collect()
}

#[tokio::test]
async fn a_workspace_is_copied_once_and_found_again() {
    let home = tempfile::tempdir().unwrap();
    let kept = Kept {
        dir: home.path().join("kept"),
        baseline: home.path().join("baseline"),
    };
    std::fs::create_dir(&kept.dir).unwrap();
    std::fs::create_dir_all(kept.baseline.join("dir")).unwrap();
    for index in 0..200 {
        std::fs::write(kept.baseline.join(format!("dir/{index}")), "same").unwrap();
    }
    std::fs::write(kept.baseline.join("file"), "first").unwrap();
    let host = host();
    assert!(host.capabilities().keep);

    let first = spec(home.path(), &kept);
    let machine = host.create(&first).await.unwrap();
    let workspace = PathBuf::from(host.surroundings(&machine).workdir.unwrap());
    assert!(workspace.starts_with(&kept.dir), "{}", workspace.display());
    assert_eq!(changed(&host, &machine).await, [""; 0]);
    // Right after the copy, with the same size and the old time.
    let time = std::fs::metadata(workspace.join("file")).unwrap();
    let time = time.modified().unwrap();
    std::fs::write(workspace.join("file"), "FIRST").unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(workspace.join("file"));
    file.unwrap().set_modified(time).unwrap();
    std::fs::remove_file(workspace.join("dir/7")).unwrap();
    std::fs::write(workspace.join("new"), "new").unwrap();
    let expected = ["dir/7", "file", "new"];
    assert_eq!(changed(&host, &machine).await, expected);
    let read = ReadBase {
        path: Bytes::from_static(b"file"),
        ..ReadBase::default()
    };
    let (data, _) = ask(&host, &machine, Verb::ReadBase(read)).await;
    assert_eq!(data, b"first");

    let second = spec(home.path(), &kept);
    let error = host.create(&second).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    host.destroy(&machine).await.unwrap();
    assert_eq!(std::fs::read_dir(&first.dir).unwrap().count(), 0);

    let machine = host.create(&second).await.unwrap();
    assert_eq!(std::fs::read(workspace.join("new")).unwrap(), b"new");
    assert_eq!(changed(&host, &machine).await, expected);
    host.destroy(&machine).await.unwrap();
    assert_eq!(std::fs::read(kept.baseline.join("file")).unwrap(), b"first");
}
