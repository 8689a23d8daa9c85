//! Images and root filesystems that are files of this host.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use motu_environments::EnvironmentError;
use serde_json::json;
use tar::EntryType;

use crate::{
    Home, text, watch,
    writer::{Image, Layer, gzip, gzipped, plain, write, zstd},
};

fn image() -> Image {
    let passwd = "root:x:0:0::/root:/bin/sh\napp:x:100:101::/srv:/bin/sh\n";
    let base = Layer::new()
        .dir("etc")
        .file("etc/passwd", passwd)
        .file("etc/hosts", "from the image")
        .symlink("etc/resolv.conf", "../run/resolv.conf")
        .dir("d")
        .file("d/gone", "")
        .file("d/kept", "one");
    let middle = Layer::new()
        .file("d/.wh.gone", "")
        .file("d/kept", "two")
        .owned(EntryType::Regular, "d/own", "", b"x", (0o4711, 7, 8))
        .dir("dev")
        .entry(EntryType::Char, "dev/null", "", b"");
    let top = Layer::new().link("d/link", "d/kept").file("usr/bin/x", "");
    Image::with(
        vec![gzip(base), zstd(middle), plain(top)],
        json!({
            "User": "app", "WorkingDir": "/srv/work", "Env": ["A=b", "PATH=/p"],
            "Entrypoint": ["/init"], "Cmd": ["run", "it"], "Labels": { "k": "v" },
            "ExposedPorts": { "80/tcp": {} },
        }),
    )
}

async fn check(home: &Home, name: &str) {
    let environment = home.environments.resolve(name).await.unwrap();
    assert_eq!(environment.default_user, "app");
    assert_eq!(environment.default_workdir, "/srv/work");
    assert_eq!(environment.env["A"], "b");
    assert_eq!(environment.entrypoint, ["/init"]);
    assert_eq!(environment.cmd, ["run", "it"]);
    let root = environment.root;
    assert_eq!(text(root.join("d/kept")), "two");
    assert!(!root.join("d/gone").exists());
    let inode = |path: &str| fs::metadata(root.join(path)).unwrap().ino();
    assert_eq!(inode("d/kept"), inode("d/link"));
    let own = fs::metadata(root.join("d/own")).unwrap();
    assert_eq!(own.mode() & 0o7777, 0o4711);
    for dir in ["proc", "sys", "dev", "run", "tmp", "workspace", "srv/work"] {
        assert!(
            fs::symlink_metadata(root.join(dir)).unwrap().is_dir(),
            "{dir}"
        );
    }
    // The machine's own files are regular files, whatever the image had there.
    for file in [
        "etc/hosts",
        "etc/resolv.conf",
        "etc/hostname",
        "etc/machine-id",
    ] {
        let meta = fs::symlink_metadata(root.join(file)).unwrap();
        assert!(meta.is_file(), "{file}");
    }
    assert!(text(root.join("etc/hosts")).starts_with("127.0.0.1"));
    assert!(!root.join("dev/null").exists());
    if motu_environments::Privilege::detect() == motu_environments::Privilege::Root {
        let workspace = fs::metadata(root.join("workspace")).unwrap();
        assert_eq!((workspace.uid(), workspace.gid()), (100, 101));
        assert_eq!((own.uid(), own.gid()), (7, 8));
    }
    home.environments.verify(name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layout_is_imported_and_described() {
    let dir = tempfile::tempdir().unwrap();
    let image = image();
    image.layout(dir.path(), "v1");
    let home = Home::new();
    let name = format!("oci:{}:v1", dir.path().display());
    let info = home.pull(&name).await.unwrap();
    check(&home, &name).await;
    let said = info.image.unwrap();
    assert_eq!(said.manifest_digest, Some(image.digest()));
    assert_eq!(said.exposed_ports, ["80/tcp"]);
    assert_eq!(said.labels["k"], "v");
    let diff_ids: Vec<_> = said.layers.iter().map(|layer| &layer.diff_id).collect();
    let expected: Vec<_> = image.layers.iter().map(|layer| &layer.diff_id).collect();
    assert_eq!(diff_ids, expected);
    assert_eq!(info.source, format!("{name}@{}", image.digest()));
    // Without a tag the same image gets another name.
    let short = format!("oci:{}", dir.path().display());
    assert_eq!(home.pull(&short).await.unwrap().digest, info.digest);
    let missing = format!("oci:{}:v2", dir.path().display());
    let error = home.pull(&missing).await.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::Malformed { .. }),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = image();
    image.layout(dir.path(), "v1");
    let blobs = dir.path().join("blobs/sha256");
    let name = crate::writer::digest(&image.layers[1].bytes);
    let path = blobs.join(name.trim_start_matches("sha256:"));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let home = Home::new();
    let error = home.pull(&format!("oci:{}", dir.path().display())).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, EnvironmentError::DigestMismatch { .. }),
        "{error}"
    );
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_archives_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let archive = image().docker_archive();
    let plain = write(dir.path(), "Saved image.tar", &archive);
    let packed = write(dir.path(), "image.tar.gz", &gzipped(&archive));
    let home = Home::new();
    let mut digests = Vec::new();
    for path in [plain, packed] {
        let name = format!("docker-archive:{}", path.display());
        digests.push(home.pull(&name).await.unwrap().digest);
        check(&home, &name).await;
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_of_a_root_are_imported_again_only_when_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let tar = |contents| Layer::new().dir("./a").file("./a/b", contents).tar();
    let path = write(dir.path(), "root.tar.gz", &gzipped(&tar("one")));
    let name = format!("tar:{}", path.display());
    let home = Home::new();
    let first = home.pull(&name).await.unwrap();
    assert_eq!(first.default_user, "root");
    assert_eq!(first.default_workdir, "/");
    let (progress, events) = watch();
    home.environments.pull(&name, progress).await.unwrap();
    assert!(
        events
            .lock()
            .unwrap()
            .iter()
            .all(|event| event.stage != "unpack")
    );
    write(dir.path(), "root.tar.gz", &gzipped(&tar("two")));
    let second = home.pull(&name).await.unwrap();
    assert_ne!(first.digest, second.digest);
    assert_eq!(text(home.root(&name).await.join("a/b")), "two");
    home.environments.verify(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/file"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/shadow", dir.path().join("out")).unwrap();
    let name = format!("dir:{}", dir.path().display());
    let home = Home::new();
    home.pull(&name).await.unwrap();
    let root = home.root(&name).await;
    assert_eq!(text(root.join("d/file")), "x");
    let link = fs::read_link(root.join("out")).unwrap();
    assert_eq!(link, Path::new("/etc/shadow"));
    assert!(root.join("workspace").is_dir());
    let error = home.pull("dir:/nonexistent/motu").await.unwrap_err();
    assert!(matches!(error, EnvironmentError::Io { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_names_are_stored_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("ä".repeat(60)).join("b".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let path = write(&deep, "c.tar", &Layer::new().file("a", "").tar());
    let name = format!("tar:{}", path.display());
    let home = Home::new();
    home.pull(&name).await.unwrap();
    let list = home.environments.list().await.unwrap();
    assert!(list.iter().any(|info| info.name == name));
    let removed = home.environments.remove(&name, &Default::default()).await;
    assert_eq!(removed.unwrap().names, [name]);
    home.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_with_the_same_files_keep_their_own_settings() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new();
    let mut digests = Vec::new();
    for user in ["one", "two"] {
        let path = dir.path().join(user);
        let layer = gzip(Layer::new().file("a", ""));
        Image::with(vec![layer], json!({ "User": user })).layout(&path, "t");
        let name = format!("oci:{}", path.display());
        home.pull(&name).await.unwrap();
        let environment = home.environments.resolve(&name).await.unwrap();
        assert_eq!(environment.default_user, user);
        digests.push(environment.digest);
    }
    assert_eq!(digests[0], digests[1]);
}
