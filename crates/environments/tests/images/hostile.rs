//! Malicious archives.

use std::{fs, io, io::Read as _, path::Path};

use flate2::{Compression, GzBuilder};
use motu_environments::EnvironmentError;
use tar::EntryType;

use crate::{
    Home,
    writer::{Image, Layer, gzip, write},
};

/// Imports one layer as a root filesystem.
async fn import(home: &Home, layer: Layer) -> Result<String, EnvironmentError> {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "root.tar", &layer.tar());
    let name = format!("tar:{}", path.display());
    home.pull(&name).await?;
    Ok(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_outside_the_root() {
    let home = Home::new();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    // Absolute paths and links that lead away resolve inside the root.
    let layer = Layer::new()
        .symlink("a", target)
        .file("a/one", "inside")
        .symlink("b", "../../../../../../../..")
        .file(&format!("b{target}/two"), "inside")
        .file(&format!("{target}/three"), "inside");
    let name = import(&home, layer).await.unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let root = home.root(&name).await;
    let inside = root.join(target.trim_start_matches('/'));
    for file in ["one", "two", "three"] {
        assert_eq!(fs::read_to_string(inside.join(file)).unwrap(), "inside");
    }
    home.environments.verify(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_entries_are_refused_before_anything_is_written() {
    let layers: [(&str, Layer); 9] = [
        ("path with ..", Layer::new().file("../x", "")),
        ("path with ..", Layer::new().file("a/../../x", "")),
        ("path with ..", Layer::new().link("x", "../../etc/shadow")),
        (
            "hard link to something outside or later",
            Layer::new().link("x", "etc/shadow"),
        ),
        (
            "device outside /dev",
            Layer::new().entry(EntryType::Block, "sda", "", b""),
        ),
        (
            "its parent is not a directory",
            Layer::new().file("a", "").file("a/b", ""),
        ),
        (
            "too many links lead to it",
            Layer::new()
                .symlink("a", "b")
                .symlink("b", "a")
                .file("a/x", ""),
        ),
        ("whiteout of nothing", Layer::new().file("d/.wh...", "")),
        (
            "neither file, directory nor link",
            Layer::new().entry(EntryType::new(b'Z'), "x", "", b""),
        ),
    ];
    let home = Home::new();
    for (expected, layer) in layers {
        match import(&home, layer).await {
            Err(EnvironmentError::Refused { reason, .. }) => assert_eq!(reason, expected),
            other => panic!("{expected}: {other:?}"),
        }
        home.assert_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_stopped_early() {
    let dir = tempfile::tempdir().unwrap();
    let size: u64 = 450 << 20;
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    let contents = header.as_bytes().chain(io::repeat(0).take(size + 1024));
    let path = dir.path().join("bomb.tar.gz");
    let mut out = GzBuilder::new().write(fs::File::create(&path).unwrap(), Compression::new(4));
    io::copy(
        &mut io::BufReader::with_capacity(1 << 20, contents),
        &mut out,
    )
    .unwrap();
    out.finish().unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
    let home = Home::new();
    let error = home
        .pull(&format!("tar:{}", path.display()))
        .await
        .unwrap_err();
    assert!(
        matches!(error, EnvironmentError::TooLarge { .. }),
        "{error}"
    );
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_archives_are_malformed() {
    let home = Home::new();
    let dir = tempfile::tempdir().unwrap();
    let good = Layer::new().bytes("a", &[7; 5000]).tar();
    let packed = crate::writer::gzipped(&good);
    let mut flipped = packed.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0xff;
    for bytes in [
        &good[..2000],
        &packed[..packed.len() / 2],
        &flipped,
        b"this is no archive at all, whatever its name says".as_slice(),
    ] {
        let path = write(dir.path(), "broken", bytes);
        let error = home.pull(&format!("tar:{}", path.display())).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, EnvironmentError::Malformed { .. }),
            "{error}"
        );
    }
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_but_harmless_archives_are_taken() {
    let home = Home::new();
    let layer = Layer::new()
        .file("a", "first")
        .file("a", "second")
        .file("d", "")
        .dir("d")
        .file("d/x", "")
        .file("d", "file again")
        .entry(EntryType::Fifo, "run/pipe", "", b"")
        .noted(
            "ping",
            &[
                ("user.note", b"kept"),
                ("user.overlay.opaque", b"y"),
                ("trusted.overlay.opaque", b"y"),
            ],
        );
    let name = import(&home, layer).await.unwrap();
    let root = home.root(&name).await;
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "second");
    assert_eq!(fs::read_to_string(root.join("d")).unwrap(), "file again");
    assert!(!root.join("run/pipe").exists());
    let attribute = |name: &str| {
        let mut buffer = [0; 64];
        rustix::fs::lgetxattr(root.join("ping"), name, &mut buffer)
            .map(|length| buffer[..length].to_vec())
    };
    assert_eq!(attribute("user.note").unwrap(), b"kept");
    assert!(attribute("user.overlay.opaque").is_err());
    assert!(attribute("trusted.overlay.opaque").is_err());
    home.environments.verify(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_cannot_trick_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let target = outside.path().to_str().unwrap();
    // A symbolic link in one layer; a whiteout and a write through it in the next.
    let image = Image::new(vec![
        gzip(Layer::new().symlink("l", target)),
        gzip(
            Layer::new()
                .file("l/.wh.precious", "")
                .file("l/.wh..wh..opq", "")
                .file("l/new", ""),
        ),
    ]);
    image.layout(dir.path(), "t");
    let home = Home::new();
    home.pull(&format!("oci:{}", dir.path().display()))
        .await
        .unwrap();
    let left: Vec<_> = fs::read_dir(outside.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1);
    assert!(Path::new(&left[0].path()).ends_with("precious"));
}
