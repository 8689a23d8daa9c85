//! Tests of the rules for listing, resolving, removing and pruning.

use super::*;
use crate::store::tests::install;
use std::collections::HashSet;

struct Fixture {
    _home: tempfile::TempDir,
    environments: Environments,
}

impl Fixture {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let environments = Environments::open(home.path(), Privilege::detect()).unwrap();
        Self {
            _home: home,
            environments,
        }
    }

    fn install(&self, name: &str, text: &str) -> String {
        install(&self.environments.inner.store, name, text)
    }

    async fn installed(&self) -> Vec<String> {
        let list = self.environments.list().await.unwrap();
        let installed = list.into_iter().filter(|info| info.installed);
        installed.map(|info| info.name).collect()
    }
}

fn using(digests: &[&String]) -> HashSet<String> {
    digests.iter().map(|digest| (*digest).clone()).collect()
}

#[tokio::test]
async fn the_list_is_the_catalog_and_what_is_installed_beyond_it() {
    let fixture = Fixture::new();
    fixture.install("own", "x");
    fixture.install("debian:12", "y");
    let list = fixture.environments.list().await.unwrap();
    let names: Vec<_> = list
        .iter()
        .map(|info| (info.name.as_str(), info.installed, info.outdated))
        .collect();
    assert_eq!(
        names,
        [
            ("busybox", false, false),
            ("debian:12-base", false, false),
            ("debian:12", true, true),
            ("own", true, false)
        ]
    );
}

#[tokio::test]
async fn resolving_tells_unknown_from_not_installed() {
    let environments = Fixture::new().environments;
    let error = environments.resolve("debian:12").await.unwrap_err();
    assert!(matches!(error, EnvironmentError::NotInstalled { .. }));
    assert_eq!(error.pullable().as_deref(), Some("debian:12"));
    let error = environments.resolve("debian:1").await.unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean debian:12?"));
    let error = environments.resolve("../x").await.unwrap_err();
    assert!(matches!(error, EnvironmentError::InvalidName { .. }));
    // A name with a registry can be pulled; others may be typos.
    let error = environments.resolve("ghcr.io/a/b").await.unwrap_err();
    assert!(matches!(error, EnvironmentError::NotInstalled { .. }));
    let error = environments.resolve("python:3.12").await.unwrap_err();
    assert!(matches!(error, EnvironmentError::Unknown { .. }));
    assert_eq!(
        error.pullable().as_deref(),
        Some("docker.io/library/python:3.12")
    );
}

#[tokio::test]
async fn resolving_gives_the_root_and_its_defaults() {
    let fixture = Fixture::new();
    let digest = fixture.install("own", "x");
    let environment = fixture.environments.resolve("own").await.unwrap();
    assert_eq!(environment.digest, digest);
    assert_eq!(
        std::fs::read_to_string(environment.root.join("text")).unwrap(),
        "x"
    );
    assert_eq!(environment.default_workdir, "/workspace");
    assert!(!environment.root.to_str().unwrap().contains(':'));
}

#[tokio::test]
async fn prune_removes_only_what_no_name_means() {
    let fixture = Fixture::new();
    let old = fixture.install("own", "old");
    let used = fixture.install("own", "used");
    let new = fixture.install("own", "new");
    let pruned = fixture
        .environments
        .prune(&using(&[&used]), false)
        .await
        .unwrap();
    assert_eq!(pruned.digests, [old]);
    assert!(pruned.names.is_empty() && pruned.bytes > 0);
    assert_eq!(
        fixture.environments.resolve("own").await.unwrap().digest,
        new
    );
    let pruned = fixture
        .environments
        .prune(&HashSet::new(), false)
        .await
        .unwrap();
    assert_eq!(pruned.digests, [used]);
}

#[tokio::test]
async fn prune_all_spares_what_is_in_use() {
    let fixture = Fixture::new();
    let kept = fixture.install("kept", "kept");
    let gone = fixture.install("gone", "gone");
    let pruned = fixture
        .environments
        .prune(&using(&[&kept]), true)
        .await
        .unwrap();
    assert_eq!(
        (pruned.names, pruned.digests),
        (vec!["gone".to_owned()], vec![gone])
    );
    assert_eq!(fixture.installed().await, ["kept"]);
    fixture
        .environments
        .prune(&HashSet::new(), true)
        .await
        .unwrap();
    assert!(fixture.installed().await.is_empty());
}

#[tokio::test]
async fn a_tag_is_a_second_name_of_the_same_thing() {
    let fixture = Fixture::new();
    let digest = fixture.install("debian:12", "one");
    let environments = &fixture.environments;
    let tagged = environments
        .tag("debian:12", Title::of_host("mine:1"))
        .await
        .unwrap();
    assert_eq!(
        (tagged.name.as_str(), tagged.digest),
        ("mine:1", Some(digest.clone()))
    );
    let taken = |new: &'static str| async move {
        let refused = environments
            .tag("debian:12", Title::of_host(new))
            .await
            .unwrap_err();
        assert!(
            matches!(refused, EnvironmentError::NameTaken { .. }),
            "{refused}"
        );
    };
    taken("busybox").await;
    taken("ghcr.io/a/b:1").await;
    fixture.install("other", "two");
    taken("other").await;
    // One of two names can be removed while sandboxes use the tree, but not the last one.
    let used = using(&[&digest]);
    environments.remove("debian:12", &used).await.unwrap();
    assert_eq!(environments.resolve("mine:1").await.unwrap().digest, digest);
    let last = environments.remove("mine:1", &used).await.unwrap_err();
    assert!(matches!(last, EnvironmentError::InUse { .. }), "{last}");
}

#[tokio::test]
async fn removing_one_name_keeps_a_blob_another_name_means() {
    let fixture = Fixture::new();
    let digest = fixture.install("one", "same");
    fixture.install("two", "same");
    let removed = fixture
        .environments
        .remove("one", &HashSet::new())
        .await
        .unwrap();
    assert_eq!(removed.names, ["one"]);
    assert!(removed.digests.is_empty());
    assert_eq!(
        fixture.environments.resolve("two").await.unwrap().digest,
        digest
    );
}

#[tokio::test]
async fn verifying_notices_a_changed_file() {
    let fixture = Fixture::new();
    fixture.install("own", "x");
    let root = fixture.environments.resolve("own").await.unwrap().root;
    // The fixture writes its tree by hand; make it match its digest first.
    let set = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&root, 0o755);
    set(&root.join("text"), 0o644);
    fixture.environments.verify("own").await.unwrap();
    std::fs::write(root.join("text"), "y").unwrap();
    let error = fixture.environments.verify("own").await.unwrap_err();
    assert!(matches!(error, EnvironmentError::Corrupt { .. }), "{error}");
}
