//! An environment goes out as an archive and comes back the same.

use super::*;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::Path,
};

use crate::{privilege::Privilege, store::NameRecord};

/// A small system with what archives are known to lose: owners, special bits, links, attributes.
fn root(at: &Path) {
    for dir in ["etc", "usr/bin", "home/app"] {
        fs::create_dir_all(at.join(dir)).unwrap();
    }
    fs::write(at.join("etc/passwd"), "root:x:0:0::/:\napp:x:7:8::/:\n").unwrap();
    fs::write(at.join("usr/bin/tool"), "#!/bin/sh\n").unwrap();
    let mode = |path: &str, mode| {
        fs::set_permissions(at.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("usr/bin/tool", 0o4755);
    mode("home/app", 0o1750);
    if Privilege::detect() == Privilege::Root {
        chown(at.join("home/app"), Some(7), Some(8)).unwrap();
    }
    symlink("tool", at.join("usr/bin/alias")).unwrap();
    fs::hard_link(at.join("usr/bin/tool"), at.join("usr/bin/twin")).unwrap();
    rustix::fs::setxattr(
        at.join("etc/passwd"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
}

/// Everything an image can say of itself.
fn described(info: &ImageInfo) -> ImageInfo {
    let word = |text: &str| vec![text.to_owned()];
    ImageInfo {
        default_user: "app".into(),
        default_workdir: "/home/app".into(),
        env: BTreeMap::from([
            ("PATH".into(), "/usr/bin".into()),
            ("A".into(), "b=c".into()),
        ]),
        entrypoint: word("/usr/bin/tool"),
        cmd: word("--help"),
        labels: BTreeMap::from([("a.b".into(), "c".into())]),
        exposed_ports: word("8080/tcp"),
        stop_signal: Some("SIGINT".into()),
        volumes: word("/data"),
        healthcheck: Some(json!({ "Test": ["CMD", "true"] })),
        on_build: word("RUN true"),
        shell: vec!["/bin/bash".into(), "-c".into()],
        ..info.clone()
    }
}

async fn archive(environments: &Environments, name: &str) -> Vec<u8> {
    let export = environments.export(name).await.unwrap();
    let mut archive = Vec::new();
    export.write_to(&mut archive).unwrap();
    archive
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_out_comes_back_the_same() {
    let home = tempfile::tempdir().unwrap();
    let tree = home.path().join("tree");
    root(&tree);
    let environments = Environments::open(home.path(), Privilege::detect()).unwrap();
    let origin = format!("dir:{}", tree.display());
    let made = environments.pull(&origin, Progress::none()).await.unwrap();
    let store = environments.store();
    let record = store.name(&origin).unwrap().unwrap();
    let image = described(record.image.as_ref().unwrap());
    let guard = store.lock().unwrap();
    store
        .write_name(&NameRecord {
            name: "mine:1".into(),
            image: Some(image.clone()),
            ..record
        })
        .unwrap();
    drop(guard);
    let bytes = archive(&environments, "mine:1").await;
    assert_eq!(
        bytes,
        archive(&environments, "mine:1").await,
        "not the same twice"
    );

    let other = tempfile::tempdir().unwrap();
    let elsewhere = Environments::open(other.path(), Privilege::detect()).unwrap();
    let arriving = elsewhere.arriving().await.unwrap();
    arriving.fill(bytes.as_slice()).unwrap();
    let back = elsewhere
        .import(
            arriving,
            None,
            |name| Title::of_host(name),
            Progress::none(),
        )
        .await
        .unwrap();
    assert_eq!(back.name, "mine:1");
    assert_eq!(back.digest, made.digest, "the files differ");
    elsewhere.verify("mine:1").await.unwrap();
    let found = back.image.unwrap();
    let kept = ImageInfo {
        reference: found.reference.clone(),
        manifest_digest: found.manifest_digest.clone(),
        layers: found.layers.clone(),
        ..image
    };
    assert_eq!(found, kept);

    let file = home.path().join("archive.tar");
    fs::write(&file, &bytes).unwrap();
    let file = format!("oci-archive:{}", file.display());
    let pulled = elsewhere.pull(&file, Progress::none());
    assert_eq!(pulled.await.unwrap().digest, made.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_of_strangers_are_refused_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    let environments = Environments::open(home.path(), Privilege::detect()).unwrap();
    for (bytes, name) in [
        (&b"nonsense"[..], Some("mine:1")),
        (&[0; 1024][..], Some("mine:1")),
        (&[0; 1024][..], None),
    ] {
        let arriving = environments.arriving().await.unwrap();
        arriving.fill(bytes).unwrap();
        let refused = environments
            .import(
                arriving,
                name,
                |name| Title::of_host(name),
                Progress::none(),
            )
            .await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, EnvironmentError::Malformed { .. }),
            "{refused}"
        );
    }
    let arriving = environments.arriving().await.unwrap();
    let taken = environments
        .import(
            arriving,
            Some("debian:12"),
            |name| Title::of_host(name),
            Progress::none(),
        )
        .await;
    assert!(matches!(taken, Err(EnvironmentError::NameTaken { .. })));
    let left = fs::read_dir(home.path().join("environments/staging")).unwrap();
    assert_eq!(left.count(), 0, "something is left");
}
