//! Nothing is collected that somebody holds, and nobody gets what is somebody else's.

use super::*;
use crate::{Privilege, Title, store::tests::install};

struct Fixture {
    home: tempfile::TempDir,
    environments: Environments,
}

impl Fixture {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let environments = Environments::open(home.path(), Privilege::detect()).unwrap();
        Self { home, environments }
    }

    fn install(&self, name: &str, text: &str) -> String {
        install(self.environments.store(), name, text)
    }

    /// A name as a version without owners wrote it.
    fn install_older(&self, name: &str, text: &str) {
        self.install(name, text);
        let path = self.environments.store().name_file(name);
        let mut record: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["format_version"] = 2.into();
        record.as_object_mut().unwrap().remove("owner");
        fs::write(&path, record.to_string()).unwrap();
    }
}

fn of_acme(short: &str) -> Title {
    Title {
        name: format!("acme--{short}"),
        short: short.to_owned(),
        owner: "project:acme".to_owned(),
        made_for: None,
    }
}

#[tokio::test]
async fn what_is_held_is_not_collected_by_anybody() {
    let fixture = Fixture::new();
    let environments = &fixture.environments;
    let (kept, gone) = (
        fixture.install("kept", "one"),
        fixture.install("gone", "two"),
    );
    let held = environments.hold(&kept).await.unwrap();
    assert_eq!(environments.held(), std::slice::from_ref(&kept));
    let refused = environments
        .remove("kept", &HashSet::new())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, EnvironmentError::InUse { .. }),
        "{refused}"
    );
    let pruned = environments.prune(&HashSet::new(), true).await.unwrap();
    assert_eq!(
        (pruned.names, pruned.digests),
        (vec!["gone".to_owned()], vec![gone])
    );
    environments.resolve("kept").await.unwrap();
    drop(held);
    let pruned = environments.prune(&HashSet::new(), true).await.unwrap();
    assert_eq!(pruned.digests, [kept]);
}

#[tokio::test]
async fn a_workplace_keeps_what_it_begins_with() {
    let fixture = Fixture::new();
    let base = fixture.install("base", "one");
    let Ok(place) = fixture.environments.workplace(Some(&base)).await else {
        // The list of this hand-made tree may not be its digest's; the hold is what is tried.
        let held = fixture.environments.held();
        assert!(held.is_empty(), "{held:?}");
        return;
    };
    let pruned = fixture.environments.prune(&HashSet::new(), true).await;
    assert!(pruned.unwrap().digests.is_empty());
    drop(place);
}

#[tokio::test]
async fn caches_that_builds_hold_stay() {
    let fixture = Fixture::new();
    let environments = &fixture.environments;
    let own = environments.build_cache(Some("project:acme")).unwrap();
    let theirs = environments.build_cache(Some("project:beta")).unwrap();
    let hosts = environments.build_cache(None).unwrap();
    assert_ne!(own.key(), theirs.key());
    assert_ne!(own.key(), hosts.key());
    let key = own.key().to_vec();
    for cache in [&own, &theirs, &hosts] {
        let (new, _) = cache.new_mount().unwrap();
        cache.keep_mount("m", new).unwrap();
    }
    let context = theirs.new_context();
    fs::write(&context, "x").unwrap();
    drop((theirs, hosts));
    environments.prune(&HashSet::new(), true).await.unwrap();
    let mount = |project: Option<&str>| {
        let cache = environments.build_cache(project).unwrap();
        cache.mount("m").is_some()
    };
    assert!(own.mount("m").is_some());
    assert!(!mount(Some("project:beta")) && !mount(None));
    // What waits for a build is no cache. It is found by builds of its owner alone.
    let id = context.file_name().unwrap().to_str().unwrap();
    let others = environments.build_cache(Some("project:beta")).unwrap();
    assert!(others.context(id).is_some() && own.context(id).is_none());
    let hour = std::time::Duration::from_secs(3600);
    let waiting = others.waiting(hour);
    assert_eq!((waiting.contexts, waiting.bytes), (1, 1));
    assert_eq!(others.waiting(std::time::Duration::ZERO).contexts, 0);
    assert!(!context.exists() && others.waiting(hour).contexts == 0);
    let again = environments.build_cache(Some("project:acme")).unwrap();
    assert_eq!(again.key(), key);
    let left = fs::read_dir(fixture.home.path().join("cache")).unwrap();
    let mut left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.all(|name| !name.starts_with(REMOVED)));
}

#[tokio::test]
async fn a_name_is_one_owners() {
    let fixture = Fixture::new();
    let environments = &fixture.environments;
    fixture.install("base", "one");
    fixture.install("other", "one");
    let made = environments
        .tag("base", of_acme("team/py:1"))
        .await
        .unwrap();
    assert_eq!(
        (made.name.as_str(), made.owner.as_str()),
        ("acme--team/py:1", "project:acme")
    );
    let whose = |name: &'static str| async move { environments.whose(name).await.unwrap() };
    assert_eq!(
        whose("acme--team/py:1").await.as_deref(),
        Some("project:acme")
    );
    assert_eq!(whose("base").await.as_deref(), Some(""));
    assert_eq!(whose("nothing").await, None);
    let stolen = Title {
        owner: "project:beta".to_owned(),
        ..of_acme("team/py:1")
    };
    let refused = environments.tag("other", stolen).await.unwrap_err();
    assert!(
        matches!(refused, EnvironmentError::NameTaken { .. }),
        "{refused}"
    );
    // Names that state where something comes from are nobody's to choose.
    for explicit in ["ghcr.io/a/b:1", "oci:/x", "localhost:5000/x"] {
        let refused = environments
            .tag("base", of_acme(explicit))
            .await
            .unwrap_err();
        assert!(
            matches!(refused, EnvironmentError::NameTaken { .. }),
            "{refused}"
        );
    }
    // Removing one tells of that one alone.
    fixture.install("orphan", "two");
    let removed = environments
        .remove("acme--team/py:1", &HashSet::new())
        .await
        .unwrap();
    assert_eq!(removed.names, ["acme--team/py:1"]);
    assert_eq!(removed.owners, ["project:acme"]);
    assert!(removed.digests.is_empty());
}

#[tokio::test]
async fn older_names_get_owners_by_the_rule() {
    let fixture = Fixture::new();
    let environments = &fixture.environments;
    fixture.install_older("acme--team/py:1", "one");
    fixture.install_older("ghcr.io/a--b/c:1", "one");
    environments.read_older_by(|name, came_from_elsewhere| {
        let acmes = !came_from_elsewhere && name.starts_with("acme--");
        (if acmes { "project:acme" } else { "" }.to_owned(), false)
    });
    let list = environments.list().await.unwrap();
    let mut owners: Vec<_> = list
        .iter()
        .filter(|one| one.installed)
        .map(|one| (one.name.as_str(), one.owner.as_str()))
        .collect();
    owners.sort_unstable();
    assert_eq!(
        owners,
        [
            ("acme--team/py:1", "project:acme"),
            ("ghcr.io/a--b/c:1", "")
        ]
    );
    // What is written anew has its owner in the record.
    environments
        .tag("acme--team/py:1", of_acme("again"))
        .await
        .unwrap();
    let path = environments.store().name_file("acme--again");
    let record = fs::read_to_string(path).unwrap();
    assert!(
        record.contains("project:acme") && record.contains("\"format_version\": 3"),
        "{record}"
    );
}
