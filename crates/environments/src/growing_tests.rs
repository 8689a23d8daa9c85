//! A tree grows by layers and is what a pull of the same files would be.

use super::*;
use crate::{privilege::Privilege, progress::Progress, tree::Meta};
use std::os::unix::fs::symlink;

struct Fixture {
    home: tempfile::TempDir,
    environments: Environments,
    base: String,
    image: ImageInfo,
}

impl Fixture {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        for dir in ["usr/lib", "etc", "opt/old/deep"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
        }
        symlink("usr/lib", tree.join("lib")).unwrap();
        fs::write(tree.join("etc/passwd"), "root:x:0:0::/:\n").unwrap();
        fs::write(tree.join("usr/lib/one"), "one").unwrap();
        fs::write(tree.join("opt/old/deep/file"), "gone").unwrap();
        let environments = Environments::open(home.path(), Privilege::detect()).unwrap();
        let name = format!("dir:{}", tree.display());
        let made = environments.pull(&name, Progress::none()).await.unwrap();
        Self {
            home,
            environments,
            base: made.digest.unwrap(),
            image: ImageInfo {
                reference: "built:1".into(),
                ..made.image.unwrap()
            },
        }
    }

    fn layer(&self, fill: impl FnOnce(&mut LayerWriter)) -> (PathBuf, String) {
        let cache = self.environments.build_cache(None).unwrap();
        let (new, mut writer) = cache.new_layer().unwrap();
        fill(&mut writer);
        let (digest, _) = cache.keep_layer(new, writer).unwrap().unwrap();
        (cache.layer(&digest), digest)
    }
}

use crate::layer::write::LayerWriter;

fn file(layer: &mut LayerWriter, path: &str, text: &str) {
    let contents = (text.len() as u64, &mut text.as_bytes() as &mut dyn io::Read);
    let none = Default::default();
    layer
        .file(path.as_bytes(), Meta::root(0o644), &none, contents)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_replace_remove_and_add_and_the_base_stays() {
    let mut fixture = Fixture::new().await;
    let first = fixture.layer(|layer| {
        file(layer, "usr/lib/one", "changed");
        layer.whiteout(b"opt/old").unwrap();
        layer.directory(b"srv", Meta::root(0o700)).unwrap();
        file(layer, "srv/two", "two");
    });
    let second = fixture.layer(|layer| {
        // Through a symbolic link of the base, and a file in place of a directory.
        file(layer, "lib/three", "three");
        file(layer, "opt/old", "now a file");
    });
    let mut place = fixture
        .environments
        .workplace(Some(&fixture.base))
        .await
        .unwrap();
    let installed = place.root();
    place.apply(&[first], &mut fixture.image).unwrap();
    place.apply(&[second], &mut fixture.image).unwrap();
    let root = place.root();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("usr/lib/one"), "changed");
    assert_eq!(read("usr/lib/three"), "three");
    assert_eq!(
        (read("opt/old"), read("srv/two")),
        ("now a file".into(), "two".into())
    );
    assert_eq!(
        fs::read_to_string(installed.join("usr/lib/one")).unwrap(),
        "one"
    );
    assert!(installed.join("opt/old/deep/file").exists());
    assert!(matches!(
        place.at(b"lib").unwrap().found,
        Found::Symlink(b"usr/lib")
    ));
    let passwd = fs::metadata(root.join("etc/passwd")).unwrap();
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(passwd.nlink(), 2, "contents were copied");
    let title = Title::of_host("built:1");
    let held = place.seal(title, fixture.image.clone(), "test".into());
    let digest = held.unwrap().digest().to_owned();
    fixture.environments.verify("built:1").await.unwrap();
    assert_eq!(
        fixture
            .environments
            .resolve("built:1")
            .await
            .unwrap()
            .digest,
        digest
    );
    // Nothing of the build is left, and removing the base does no harm.
    let left = fs::read_dir(fixture.home.path().join("environments/staging")).unwrap();
    assert_eq!(left.count(), 0);
    let name = format!("dir:{}", fixture.home.path().join("tree").display());
    fixture
        .environments
        .remove(&name, &Default::default())
        .await
        .unwrap();
    // The list of what was in it is gone, too; that of the other stays.
    let lists = fixture.home.path().join("cache/build/trees");
    let left: Vec<_> = fs::read_dir(lists)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, [digest.replace(':', "-")]);
    fixture.environments.verify("built:1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layer_is_not_used() {
    let mut fixture = Fixture::new().await;
    let (path, digest) = fixture.layer(|layer| file(layer, "srv", "x"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[512] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut place = fixture
        .environments
        .workplace(Some(&fixture.base))
        .await
        .unwrap();
    let refused = place
        .apply(&[(path, digest)], &mut fixture.image)
        .unwrap_err();
    assert!(
        matches!(refused, EnvironmentError::DigestMismatch { .. }),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_can_begin_as_nothing() {
    let mut fixture = Fixture::new().await;
    let layer = fixture.layer(|layer| file(layer, "app/tool", "x"));
    let mut place = fixture.environments.workplace(None).await.unwrap();
    place.apply(&[layer], &mut fixture.image).unwrap();
    let title = Title::of_host("built:1");
    let sealed = place.seal(title, fixture.image.clone(), "test".into());
    drop(sealed.unwrap());
    fixture.environments.verify("built:1").await.unwrap();
    let names = fixture.environments.resolve("built:1").await.unwrap().root;
    assert!(names.join("proc").is_dir() && names.join("app/tool").is_file());
}
