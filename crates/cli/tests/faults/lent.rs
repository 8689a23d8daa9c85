//! Files that a machine lends to a caller of this host.

use motu_core::files::{LendDirectory, LendFile, Returned};
use motu_core::runtime::Connection;
use motu_core::{ErrorKind, SandboxId, Service};
use motu_testkit::world::{World, at, refused};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LARGE: usize = 3 * 1024 * 1024 + 5;
const MOMENT: Duration = Duration::new(1_700_000_000, 123_456_789);

fn noise() -> Vec<u8> {
    let numbers = (0..).scan(7u32, |state, _: u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    });
    numbers.take(LARGE).collect()
}

fn ask(path: &str, write: bool) -> LendFile {
    LendFile {
        path: at(path),
        write,
        mode: write.then_some(0o640),
        modified_unix_ns: None,
    }
}

async fn lent(world: &World, id: &SandboxId, ask: LendFile) -> (Connection, File) {
    let mut connection = world.client().lend_file(id, ask).await.unwrap();
    let file = connection.file.take().unwrap();
    (connection, file.into())
}

#[tokio::test]
async fn large_files_are_copied_from_file_to_file() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let (here, bytes) = (world.path().join("large"), noise());
    std::fs::write(&here, &bytes).unwrap();
    std::fs::set_permissions(&here, PermissionsExt::from_mode(0o640)).unwrap();
    let file = File::options().write(true).open(&here).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + MOMENT).unwrap();
    // To a new name, into a directory, and over a file with other bits.
    world
        .sh(
            &id,
            "mkdir /work; echo old > /work/over; chmod 600 /work/over",
        )
        .await;
    for to in ["/work/new", "/work", "/work/over"] {
        let told = world.motu(&["cp", "large", &format!("{id}:{to}")]);
        assert_eq!(told.code, 0, "{told:?}");
    }
    let look = "cd /work; ls -A; stat -c '%a %Y %s' new large over; cmp new large && cmp new over";
    let said = world.sh(&id, look).await;
    let line = format!("640 1700000000 {LARGE}\n").repeat(3);
    assert_eq!(said.stdout, format!("large\nnew\nover\n{line}"), "{said:?}");

    let told = world.motu(&["cp", &format!("{id}:/work/new"), "back"]);
    assert_eq!(told.code, 0, "{told:?}");
    let told = world.motu(&["cp", &format!("{id}:/work/new"), "back"]);
    assert_eq!(told.code, 105, "it is there already: {told:?}");
    let back = world.path().join("back");
    assert!(std::fs::read(&back).unwrap() == bytes);
    let found = std::fs::metadata(&back).unwrap();
    assert_eq!(
        (found.mode() & 0o777, found.mtime_nsec()),
        (0o640, 123_456_789)
    );

    // That was not done by archives.
    let listed = world.motu(&["audit", "list", "--json"]);
    for (verb, wanted) in [
        ("lend_file", true),
        ("write_tree", false),
        ("read_tree", false),
    ] {
        assert_eq!(listed.stdout.contains(verb), wanted, "{verb}: {listed:?}");
    }
}

#[tokio::test]
async fn a_caller_who_leaves_has_written_nothing() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    world.sh(&id, "mkdir /work; echo old > /work/file").await;
    let (connection, mut file) = lent(&world, &id, ask("/work/file", true)).await;
    file.write_all(b"half").unwrap();
    let said = world.sh(&id, "cat /work/file; ls -A /work | wc -l").await;
    assert_eq!(
        said.stdout, "old\n2\n",
        "it is written beside its place: {said:?}"
    );
    drop((connection, file));
    let gone = "while [ $(ls -A /work | wc -l) != 1 ]; do sleep 0.05; done; cat /work/file";
    assert_eq!(world.sh(&id, gone).await.stdout, "old\n");

    // One who says that it is whole has.
    let (mut connection, mut file) = lent(&world, &id, ask("/work/file", true)).await;
    file.write_all(b"whole\n").unwrap();
    connection.write.write_all(b"+").await.unwrap();
    connection.write.shutdown().await.unwrap();
    let mut line = String::new();
    connection.read.read_to_string(&mut line).await.unwrap();
    let Returned::Entry(entry) = serde_json::from_str(&line).unwrap() else {
        panic!("{line}");
    };
    assert_eq!((entry.size_bytes, entry.path.as_str()), (6, "/work/file"));
    let said = world.sh(&id, "cat /work/file; stat -c %a /work/file").await;
    assert_eq!(said.stdout, "whole\n640\n", "{said:?}");
}

#[tokio::test]
async fn only_plain_files_are_lent_and_only_as_asked() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let make = "mkdir /work; cd /work; echo content > file; mkfifo pipe; ln -s /etc/passwd link; \
                ln -s /proc/self/status status";
    world.sh(&id, make).await;
    let client = world.client();
    for (path, kind) in [
        ("/work", ErrorKind::Invalid),
        ("/work/pipe", ErrorKind::Invalid),
        ("/work/nothing", ErrorKind::NotFound),
        ("/dev/null", ErrorKind::Invalid),
        // Something in the machine could stand behind a file that is not on its disk.
        ("/work/status", ErrorKind::Unsupported),
        ("/proc/self/status", ErrorKind::Unsupported),
    ] {
        refused(kind, client.lend_file(&id, ask(path, false)).await);
    }
    // A link means what it means inside.
    let (_, link) = lent(&world, &id, ask("/work/link", false)).await;
    let mut text = [0; 5];
    link.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"root:");
    // To be read is not to be written.
    let (_, file) = lent(&world, &id, ask("/work/file", false)).await;
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    assert_eq!(world.sh(&id, "cat /work/file").await.stdout, "content\n");
}

/// Hands a file over, and gives what is said then.
async fn handed(connection: Connection, file: File) -> Returned {
    let Connection {
        mut read,
        write: _write,
        takes,
        ..
    } = connection;
    takes.unwrap().send(file.into()).unwrap();
    let mut line = String::new();
    read.read_to_string(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

#[tokio::test]
async fn only_a_directory_that_is_handed_over_is_shown() {
    let Some(world) = World::new() else { return };
    let id = world.create().await;
    let client = world.client();
    let show = |path: &str| {
        let ask = LendDirectory { path: at(path) };
        client.lend_directory(&id, ask)
    };
    if !rustix::process::geteuid().is_root() {
        refused(ErrorKind::Unsupported, show("/work").await);
        return;
    }
    let dir = world.path().join("here");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), "content\n").unwrap();

    // A caller who leaves has shown nothing.
    drop(show("/work").await.unwrap());
    // Nor has one whose file is no directory.
    let file = File::open(dir.join("file")).unwrap();
    let Returned::Error(error) = handed(show("/work").await.unwrap(), file).await else {
        panic!("a file was attached");
    };
    assert_eq!(error.kind, ErrorKind::Invalid, "{error:?}");
    let said = world.sh(&id, "ls -A /work | wc -l").await;
    assert_eq!(said.stdout, "0\n", "{said:?}");

    let Returned::Entry(entry) =
        handed(show("/work").await.unwrap(), File::open(&dir).unwrap()).await
    else {
        panic!("it was not attached");
    };
    assert_eq!(entry.path.as_str(), "/work");
    let said = world.sh(&id, "cat /work/file; echo x > /work/file").await;
    assert_eq!(said.stdout, "content\n", "{said:?}");
    assert_ne!(said.exit_code, 0, "{said:?}");
    // The daemon may go: the mount is the machine's.
    assert_eq!(
        std::fs::read_to_string(dir.join("file")).unwrap(),
        "content\n"
    );
    client.destroy_sandbox(&id).await.unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
