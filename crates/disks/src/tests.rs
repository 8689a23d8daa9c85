use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn run(program: &str, arguments: &[&str]) {
    let output = motu_needs::command(program)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A raw ext4 disk with `tree` in it.
fn ext4(directory: &Path, tree: &Path) -> PathBuf {
    let disk = directory.join("disk.raw");
    run(
        "mke2fs",
        &[
            "-q",
            "-F",
            "-t",
            "ext4",
            "-d",
            text(tree),
            text(&disk),
            "16M",
        ],
    );
    disk
}

fn tree() -> TempDir {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("usr/bin")).unwrap();
    fs::write(path("usr/bin/tool"), "tool").unwrap();
    symlink("usr/bin", path("bin")).unwrap();
    symlink("/usr/bin/tool", path("absolute")).unwrap();
    symlink("loop", path("loop")).unwrap();
    fs::write(
        path("large"),
        (0..300_000).map(|n| (n % 251) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    directory
}

fn names(listing: &Listing) -> Vec<&str> {
    listing
        .entries
        .iter()
        .map(|entry| entry.path.as_str())
        .collect()
}

fn check(mut view: Merged) {
    let top = view.list(b"/", false, 100).unwrap();
    let top: Vec<_> = names(&top)
        .into_iter()
        .filter(|name| *name != "/lost+found")
        .collect();
    assert_eq!(top, ["/absolute", "/bin", "/large", "/loop", "/usr"]);
    let all = view.list(b"/usr", true, 100).unwrap();
    assert_eq!(names(&all), ["/usr/bin", "/usr/bin/tool"]);
    assert!(view.list(b"/", true, 3).unwrap().truncated);
    for path in [
        "/bin/tool",
        "absolute",
        "/usr/../bin/./tool",
        "/../absolute",
    ] {
        assert_eq!(
            view.read(path.as_bytes(), 100).unwrap().bytes,
            b"tool",
            "{path}"
        );
    }
    let part = view.read(b"large", 1000).unwrap();
    assert!(part.truncated && part.bytes.len() == 1000 && part.size == 300_000);
    let whole = view.read(b"large", 1 << 20).unwrap();
    assert_eq!(whole.bytes[250_999], (250_999 % 251) as u8);
    assert!(matches!(view.read(b"loop", 1), Err(DiskError::Loop { .. })));
    assert!(matches!(
        view.read(b"usr", 1),
        Err(DiskError::NotFile { .. })
    ));
    assert!(matches!(
        view.read(b"none", 1),
        Err(DiskError::NotFound { .. })
    ));
    assert!(matches!(
        view.read(b"large/x", 1),
        Err(DiskError::NotDirectory { .. })
    ));
}

fn ext4_view(chain: &[&Path]) -> Merged {
    let layer = Ext4Layer::whole(open_disk(chain).unwrap()).unwrap();
    Merged::new(vec![Box::new(layer)])
}

#[test]
fn every_kind_of_disk_shows_the_same_tree() {
    let directory = TempDir::new().unwrap();
    let tree = tree();
    check(Merged::new(vec![Box::new(
        DirectoryLayer::open(tree.path()).unwrap(),
    )]));
    let raw = ext4(directory.path(), tree.path());
    check(ext4_view(&[&raw]));
    let full = directory.path().join("full.qcow2");
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            text(&raw),
            text(&full),
        ],
    );
    check(ext4_view(&[&full]));
    let overlay = directory.path().join("overlay.qcow2");
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "-b",
            text(&raw),
            text(&overlay),
        ],
    );
    check(ext4_view(&[&overlay, &raw]));
    // The image neither chooses its backing file nor works without it.
    assert!(open_disk(&[&overlay]).is_err());
    assert!(open_disk(&[&full, &raw]).is_err());
}

#[test]
fn an_image_over_another_shows_what_was_written() {
    let directory = TempDir::new().unwrap();
    let base = directory.path().join("base.raw");
    fs::write(&base, vec![1; 300_000]).unwrap();
    let top = directory.path().join("top.qcow2");
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "-b",
            text(&base),
            text(&top),
            "1M",
        ],
    );
    run(
        "qemu-io",
        &[
            "-c",
            "write -P 7 65536 1000",
            "-c",
            "write -z 131072 65536",
            text(&top),
        ],
    );
    let disk = open_disk(&[&top, &base]).unwrap();
    let mut bytes = vec![9; 1 << 20];
    disk.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes[65_535], 1);
    assert_eq!((bytes[65_536], bytes[66_535], bytes[66_600]), (7, 7, 1));
    assert!(bytes[131_072..196_608].iter().all(|byte| *byte == 0));
    assert_eq!((bytes[200_000], bytes[400_000]), (1, 0));
    assert!(disk.read_at(1 << 20, &mut [0]).is_err());
}

#[test]
fn layers_hide_and_cover() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let lower = tree();
    let upper = TempDir::new().unwrap();
    let up = |name: &str| upper.path().join(name);
    fs::create_dir_all(up("usr/bin")).unwrap();
    fs::write(up("usr/bin/new"), "new").unwrap();
    fs::write(up("large"), "small now").unwrap();
    let whiteout = |path: PathBuf| run("mknod", &[text(&path), "c", "0", "0"]);
    whiteout(up("absolute"));
    let view = |upper: &Path| {
        Merged::new(vec![
            Box::new(DirectoryLayer::open(upper).unwrap()),
            Box::new(DirectoryLayer::open(lower.path()).unwrap()),
        ])
    };
    let mut merged = view(upper.path());
    assert!(!merged.may_show_removed());
    let all = merged.list(b"/", true, 100).unwrap();
    assert_eq!(
        names(&all),
        [
            "/bin",
            "/large",
            "/loop",
            "/usr",
            "/usr/bin",
            "/usr/bin/new",
            "/usr/bin/tool"
        ]
    );
    assert_eq!(merged.read(b"large", 100).unwrap().bytes, b"small now");
    // The same from an ext4 disk, whose directory `data/up` is the upper layer.
    let disk = TempDir::new().unwrap();
    fs::create_dir_all(disk.path().join("tree/data")).unwrap();
    run(
        "cp",
        &[
            "-a",
            text(upper.path()),
            text(&disk.path().join("tree/data/up")),
        ],
    );
    let raw = ext4(disk.path(), &disk.path().join("tree"));
    let layer = Ext4Layer::upper(open_disk(&[&raw]).unwrap(), b"data/up").unwrap();
    let mut merged = Merged::new(vec![
        Box::new(layer),
        Box::new(DirectoryLayer::open(lower.path()).unwrap()),
    ]);
    assert!(!merged.may_show_removed());
    assert_eq!(merged.list(b"/", true, 100).unwrap().entries.len(), 7);
    // Make it opaque.
    rustix::fs::setxattr(
        up("usr/bin"),
        "trusted.overlay.opaque",
        b"y",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let all = view(upper.path()).list(b"/usr", true, 100).unwrap();
    assert_eq!(names(&all), ["/usr/bin", "/usr/bin/new"]);
    // The same on a disk image, where attributes are in the inode or, with a large second one, in a
    // separate block.
    for note in [1, 40, 60, 600] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(up("usr/bin"), "user.a", &vec![b'n'; note], flags).unwrap();
        let disk = TempDir::new().unwrap();
        let tree = disk.path().join("tree");
        fs::create_dir(&tree).unwrap();
        run("cp", &["-a", text(upper.path()), text(&tree.join("up"))]);
        let raw = ext4(disk.path(), &tree);
        let layer = Ext4Layer::upper(open_disk(&[&raw]).unwrap(), b"up").unwrap();
        let lower = DirectoryLayer::open(lower.path()).unwrap();
        let mut merged = Merged::new(vec![Box::new(layer), Box::new(lower)]);
        let all = merged.list(b"/usr", true, 100).unwrap();
        assert_eq!(names(&all), ["/usr/bin", "/usr/bin/new"], "{note}");
    }
}

#[test]
fn a_view_is_exported_as_one_disk() {
    let directory = TempDir::new().unwrap();
    let tree = tree();
    let staging = directory.path().join("staging");
    fs::create_dir(&staging).unwrap();
    let output = directory.path().join("out.raw");
    let mut view = Merged::new(vec![Box::new(DirectoryLayer::open(tree.path()).unwrap())]);
    fs::File::create_new(&output).unwrap();
    let size = export_ext4(&mut view, &staging, &output, u64::MAX).unwrap();
    assert_eq!(output.metadata().unwrap().size(), size);
    run("e2fsck", &["-fn", text(&output)]);
    check(ext4_view(&[&output]));
    let again = export_ext4(&mut view, &directory.path().join("none"), &output, u64::MAX);
    assert!(again.is_err());
    let staging = directory.path().join("again");
    fs::create_dir(&staging).unwrap();
    let limited = export_ext4(&mut view, &staging, &output, 1);
    assert!(matches!(limited, Err(DiskError::Limit { .. })));
}

/// Reads everything a disk shows; it only must not panic or hang.
fn survive(disk: &Path) {
    let Ok(blocks) = open_disk(&[disk]) else {
        return;
    };
    let Ok(layer) = Ext4Layer::upper(blocks, b"") else {
        return;
    };
    let mut view = Merged::new(vec![Box::new(layer)]);
    if let Ok(listing) = view.list(b"/", true, 1000) {
        for entry in listing.entries {
            let _ = view.read(entry.path.as_bytes(), 1000);
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_survived() {
    let directory = TempDir::new().unwrap();
    let tree = tree();
    let raw = ext4(directory.path(), tree.path());
    let image = directory.path().join("image.qcow2");
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            text(&raw),
            text(&image),
        ],
    );
    let whole = fs::read(&image).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
    let flips = prop::collection::vec((0..whole.len().min(400_000), any::<u8>()), 1..6);
    let broken = directory.path().join("broken.qcow2");
    runner
        .run(&flips, |flips| {
            let mut bytes = whole.clone();
            for (at, value) in flips {
                bytes[at] = value;
            }
            fs::write(&broken, &bytes).unwrap();
            survive(&broken);
            Ok(())
        })
        .unwrap();
    for length in [0, 3, 71, 72, 103, 104, 5000, 70_000, 200_000] {
        fs::write(&broken, &whole[..length]).unwrap();
        survive(&broken);
    }
}
