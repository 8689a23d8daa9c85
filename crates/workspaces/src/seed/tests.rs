use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
        net::UnixListener,
    },
};

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::tarball::{Attributes, Meta, TarWriter};

const META: Meta = Meta {
    mode: 0o4751,
    uid: 0,
    gid: 0,
    modified_unix_ns: 1_600_000_000_000_000_000,
};

fn archive(fill: impl FnOnce(&mut TarWriter<Vec<u8>>)) -> Vec<u8> {
    let mut tar = TarWriter::new(Vec::new());
    fill(&mut tar);
    tar.finish().unwrap()
}

fn file(tar: &mut TarWriter<Vec<u8>>, path: &str, contents: &[u8]) {
    let size = contents.len() as u64;
    tar.file(path.as_bytes(), META, &Attributes::new(), size, &mut {
        contents
    })
    .unwrap();
}

/// Seeds from archive bytes; returns the tree.
fn unpack(bytes: &[u8], limits: Limits) -> (TempDir, Result<Seeded, SeedError>) {
    let directory = TempDir::new().unwrap();
    let source = directory.path().join("archive");
    fs::write(&source, bytes).unwrap();
    let options = Options {
        root: false,
        owner: None,
        limits,
    };
    let seeded = seed(Some(&source), &directory.path().join("base"), options);
    assert!(!directory.path().join("base.staging").exists());
    assert_eq!(directory.path().join("base").exists(), seeded.is_ok());
    (directory, seeded)
}

#[test]
fn a_directory_is_copied_as_it_is() {
    let directory = TempDir::new().unwrap();
    let source = directory.path().join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("deep/er/text"), "text").unwrap();
    fs::write(source.join("large"), vec![7; 300_000]).unwrap();
    fs::write(source.join("empty"), "").unwrap();
    fs::set_permissions(source.join("large"), fs::Permissions::from_mode(0o4750)).unwrap();
    fs::hard_link(source.join("large"), source.join("deep/second")).unwrap();
    symlink("/etc/passwd", source.join("link")).unwrap();
    symlink("nowhere", source.join("deep/broken")).unwrap();
    let _socket = UnixListener::bind(source.join("socket")).unwrap();
    fs::set_permissions(source.join("deep"), fs::Permissions::from_mode(0o500)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_500_000_000, 123_456_789);
    File::open(source.join("deep"))
        .unwrap()
        .set_modified(time)
        .unwrap();

    let base = directory.path().join("base");
    let seeded = seed(Some(&source), &base, Options::default()).unwrap();
    assert_eq!(
        seeded,
        Seeded {
            mode: Mode::Directory,
            source_path: Some(source.display().to_string()),
            entry_count: 8,
            bytes: 300_004,
            skipped: 1,
        }
    );
    assert_eq!(fs::read(base.join("deep/er/text")).unwrap(), b"text");
    assert_eq!(fs::read(base.join("large")).unwrap(), vec![7; 300_000]);
    let meta = |path: &str| base.join(path).symlink_metadata().unwrap();
    assert_eq!(meta("large").ino(), meta("deep/second").ino());
    assert_eq!(meta("large").mode() & 0o7777, 0o750);
    assert_eq!(meta("deep").mode() & 0o7777, 0o500);
    assert_eq!(meta("deep").modified().unwrap(), time);
    let large = source.join("large").metadata().unwrap();
    assert_eq!(meta("large").mtime_nsec(), large.mtime_nsec());
    assert_eq!(
        fs::read_link(base.join("link")).unwrap(),
        Path::new("/etc/passwd")
    );
    assert_eq!(
        fs::read_link(base.join("deep/broken")).unwrap(),
        Path::new("nowhere")
    );
    // A second time fails: the tree is immutable.
    let again = seed(Some(&source), &base, Options::default());
    assert!(matches!(again, Err(SeedError::Exists { .. })));
}

#[test]
fn a_source_may_contain_its_copy() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("f"), "f").unwrap();
    let base = directory.path().join("base");
    let seeded = seed(Some(directory.path()), &base, Options::default()).unwrap();
    assert_eq!(seeded.entry_count, 1);
}

#[test]
fn owners_are_the_ones_given() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("f"), "f").unwrap();
    symlink("f", source.join("l")).unwrap();
    let base = directory.path().join("base");
    let options = Options {
        root: false,
        owner: Some((1234, 5678)),
        ..Options::default()
    };
    seed(Some(&source), &base, options).unwrap();
    for path in ["", "f", "l"] {
        let meta = base.join(path).symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1234, 5678), "{path}");
    }
}

#[test]
fn archives_are_told_by_their_contents() {
    let tar = archive(|tar| {
        file(tar, "./a/b", b"text");
        file(tar, "long/".repeat(60).as_str().trim_end_matches('/'), b"x");
        tar.symlink(b"a/l", META, b"../../etc").unwrap();
        tar.hard_link(b"h", META, b"a/b").unwrap();
        tar.directory(
            b"a",
            Meta {
                mode: 0o700,
                ..META
            },
            &Attributes::new(),
        )
        .unwrap();
        file(tar, "a/b2", b"one");
        file(tar, "a/b2", b"two");
    });
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).unwrap();
    for bytes in [tar.clone(), gzip.finish().unwrap()] {
        let (directory, seeded) = unpack(&bytes, Limits::default());
        let seeded = seeded.unwrap();
        assert_eq!(seeded.mode, Mode::TarArchive);
        assert_eq!(seeded.entry_count, 5 + 60);
        let base = directory.path().join("base");
        assert_eq!(fs::read(base.join("h")).unwrap(), b"text");
        assert_eq!(fs::read(base.join("a/b2")).unwrap(), b"two");
        let meta = |path: &str| base.join(path).metadata().unwrap();
        assert_eq!(meta("h").ino(), meta("a/b").ino());
        assert_eq!(meta("a/b").mode() & 0o7777, 0o751);
        assert_eq!(meta("a").mode() & 0o7777, 0o700);
        assert_eq!(meta("a").mtime(), 1_600_000_000);
    }
}

#[test]
fn hostile_archives_are_refused() {
    let none = Attributes::new();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("absolute", archive(|tar| file(tar, "/etc/passwd", b"x"))),
        ("absolute", archive(|tar| file(tar, "/workspace/f", b"x"))),
        ("`..`", archive(|tar| file(tar, "a/../../b", b"x"))),
        (
            "hard link to what",
            archive(|tar| tar.hard_link(b"h", META, b"etc/shadow").unwrap()),
        ),
        (
            "`..`",
            archive(|tar| tar.hard_link(b"h", META, b"../x").unwrap()),
        ),
        (
            "no directory",
            archive(|tar| {
                tar.symlink(b"out", META, b"/tmp").unwrap();
                file(tar, "out/f", b"x");
            }),
        ),
        (
            "hard link to what",
            archive(|tar| {
                tar.symlink(b"out", META, b"/etc/passwd").unwrap();
                tar.hard_link(b"h", META, b"out").unwrap();
            }),
        ),
        (
            "takes the place",
            archive(|tar| {
                tar.directory(b"d", META, &none).unwrap();
                tar.symlink(b"d", META, b"/tmp").unwrap();
            }),
        ),
        (
            "takes the place",
            archive(|tar| {
                file(tar, "d", b"");
                tar.directory(b"d", META, &none).unwrap();
            }),
        ),
        (
            "longer than",
            archive(|tar| file(tar, &"n".repeat(300), b"x")),
        ),
        (
            "itself",
            archive(|tar| {
                file(tar, "f", b"x");
                tar.hard_link(b"f", META, b"f").unwrap();
            }),
        ),
        ("no tar archive", b"PK\x03\x04 something else".repeat(100)),
        ("no tar archive", Vec::new()),
        (
            "too early",
            archive(|tar| file(tar, "f", &[1; 5000]))[..3000].to_vec(),
        ),
    ];
    for (wanted, bytes) in cases {
        let (_directory, seeded) = unpack(&bytes, Limits::default());
        let error = seeded.unwrap_err();
        assert!(error.to_string().contains(wanted), "{wanted}: {error}");
        assert_eq!(Error::from(error).kind, ErrorKind::Invalid);
    }
}

#[test]
fn limits_hold() {
    let small = Limits {
        bytes: 1000,
        entries: 3,
    };
    let many = archive(|tar| file(tar, "a/b/c/d", b"x"));
    let large = archive(|tar| file(tar, "f", &[0; 1001]));
    for bytes in [many, large] {
        let (_directory, seeded) = unpack(&bytes, small);
        assert_eq!(Error::from(seeded.unwrap_err()).kind, ErrorKind::Limit);
    }
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let long = archive(|tar| file(tar, "f", &[0; 100]));
    bomb.write_all(&long[..512]).unwrap();
    bomb.write_all(&vec![0; 10 << 20]).unwrap();
    let (_directory, seeded) = unpack(&bomb.finish().unwrap(), small);
    assert!(seeded.is_ok(), "what follows the end is not read");
    let directory = TempDir::new().unwrap();
    let source = directory.path().join("s");
    fs::create_dir(&source).unwrap();
    for number in 0..4 {
        fs::write(source.join(number.to_string()), "x").unwrap();
    }
    let options = Options {
        root: false,
        owner: None,
        limits: small,
    };
    let error = seed(Some(&source), &directory.path().join("base"), options).unwrap_err();
    assert!(matches!(error, SeedError::Limit { .. }), "{error}");
    fs::remove_file(source.join("3")).unwrap();
    fs::write(source.join("0"), vec![0; 1001]).unwrap();
    let error = seed(Some(&source), &directory.path().join("base"), options).unwrap_err();
    assert!(matches!(error, SeedError::Limit { .. }), "{error}");
}

#[test]
fn holes_take_no_room() {
    let zeros = archive(|tar| {
        let size = 200 << 20;
        tar.file(
            b"f",
            META,
            &Attributes::new(),
            size,
            &mut io::repeat(0).take(size),
        )
        .unwrap();
    });
    let (directory, seeded) = unpack(&zeros, Limits::default());
    assert_eq!(seeded.unwrap().bytes, 200 << 20);
    let meta = directory.path().join("base/f").metadata().unwrap();
    assert_eq!(meta.len(), 200 << 20);
    assert!(meta.blocks() < 100);
}

#[test]
fn nothing_and_nonsense() {
    let directory = TempDir::new().unwrap();
    let base = directory.path().join("base");
    let missing = seed(Some(Path::new("/nonexistent")), &base, Options::default());
    assert!(matches!(missing, Err(SeedError::Missing { .. })));
    let device = Path::new("/dev/null");
    assert!(device.metadata().unwrap().file_type().is_char_device());
    let neither = seed(Some(device), &base, Options::default());
    assert!(matches!(neither, Err(SeedError::Neither { .. })));
    let seeded = seed(None, &base, Options::default()).unwrap();
    assert_eq!((seeded.mode, seeded.entry_count), (Mode::Empty, 0));
    assert!(base.is_dir());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), at in 0..1024usize) {
        let mut tar = archive(|tar| { file(tar, "a/b", b"text"); tar.hard_link(b"h", META, b"a/b").unwrap(); });
        for (offset, byte) in bytes.iter().take(20).enumerate() {
            if let Some(place) = tar.get_mut(at + offset) {
                *place = *byte;
            }
        }
        let _ = unpack(&tar, Limits { bytes: 1 << 20, entries: 100 });
        let _ = unpack(&bytes, Limits { bytes: 1 << 20, entries: 100 });
    }
}
