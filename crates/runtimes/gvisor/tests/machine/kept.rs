//! Disks that outlive machines.

use crate::support::{World, eventually};
use motu_core::Runtime;
use motu_core::runtime::Kept;
use std::path::Path;

/// A baseline as an import would leave it.
fn baseline(home: &Path) -> std::path::PathBuf {
    let dir = home.join("baseline");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::write(dir.join("a"), "one\n").unwrap();
    std::fs::write(dir.join("sub/b"), "two\n").unwrap();
    for path in ["", "a", "sub", "sub/b"] {
        std::os::unix::fs::chown(dir.join(path), Some(1000), Some(1000)).unwrap();
    }
    dir
}

#[tokio::test]
async fn what_a_kept_machine_wrote_is_there_again() {
    let world = World::new();
    let home = world.home.path();
    let kept = Kept {
        dir: home.join("kept"),
        baseline: baseline(home),
    };
    std::fs::create_dir(&kept.dir).unwrap();
    let mut spec = world.spec();
    spec.kept = Some(kept.clone());
    let (machine, guest) = world.create_from(&spec).await;
    let said = guest
        .sh("user", "cd /workspace; stat -c %u .; cat a sub/b; echo new > c; echo more >> a; rm sub/b; rmdir sub")
        .await;
    assert_eq!((said.code, &*said.out), (0, "1000\none\ntwo\n"), "{said:?}");
    assert_eq!(guest.sh("root", "echo root > /etc/mark").await.code, 0);
    // The descriptors that the guest holds: both sides as on the host, none of them writable.
    let sides = "for fd in /proc/1/fd/*; do test -e $fd/a -o -e $fd/c && \
                 (cd $fd/ && stat -c '%n %F' * && touch x 2>&1); done; true";
    // Newer releases show nobody what pid 1 holds.
    if guest.sh("root", "readlink /proc/1/fd/0").await.code == 0 {
        let said = guest.sh("root", sides).await.out;
        assert!(said.contains("sub character special file\n"), "{said}");
        assert!(said.contains("sub directory\n"), "{said}");
        assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
        // The third is /workspace itself, which any program may open.
        assert_eq!(guest.sh("root", "rm /workspace/x").await.code, 0);
    }
    assert_eq!(guest.sh("root", "ls -A /dev/motu/upper").await.out, "");
    drop(guest);
    world.runtime.destroy(&machine).await.unwrap();
    let root = std::fs::read_to_string(kept.baseline.join("a")).unwrap();
    assert_eq!(root, "one\n", "the baseline was changed");
    assert!(kept.baseline.join("sub/b").exists());

    // The directory may be moved between starts.
    let moved = Kept {
        dir: home.join("moved"),
        ..kept.clone()
    };
    std::fs::rename(&kept.dir, &moved.dir).unwrap();
    let mut spec = world.spec();
    spec.kept = Some(moved.clone());
    let (machine, guest) = world.create_from(&spec).await;
    let said = guest
        .sh(
            "user",
            "cd /workspace; cat a c; ls; cat /etc/mark; stat -c %u c",
        )
        .await;
    assert_eq!(said.out, "one\nmore\nnew\na\nc\nroot\n1000\n", "{said:?}");

    // One image is never used by two machines.
    let mut second = world.spec();
    second.kept = Some(moved.clone());
    let error = world.runtime.create(&second).await.unwrap_err();
    assert!(error.message.contains("in use"), "{error}");
    guest.ping().await;
    world.runtime.destroy(&machine).await.unwrap();
    assert!(moved.dir.join("disk.img").exists());
    eventually(5, "the image is released", || {
        !motu_needs::command("grep")
            .args([
                "-rqs",
                "moved/disk.img",
                "/sys/block/",
                "--include=backing_file",
            ])
            .status()
            .unwrap()
            .success()
    })
    .await;
}
