//! Environments committed from sandboxes.

use motu_testkit::builds::{able, says, world_of_its_own};

#[test]
fn a_sandbox_becomes_an_environment_on_every_runtime() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    for runtime in able() {
        let name = format!("made-in-{runtime}:1");
        let make = ["create", "busybox", "--keep", "--runtime", &runtime];
        let made = story.motu(&[&make[..], &["--id", "source"]].concat());
        assert_eq!(made.code, 0, "{made}");
        let change = "echo new > /etc/new; rm -r /root; chown 7:8 /etc/new; mkdir -p /workspace; \
                      echo kept > /workspace/file";
        says(&story, &["exec", "source", "--", "sh", "-c", change], "");
        says(&story, &["commit", "source", &name], &name);
        // The sandbox continues with its files.
        says(&story, &["exec", "source", "--", "cat", "/etc/new"], "new");
        says(
            &story,
            &["exec", "source", "--", "sh", "-c", "echo later > /etc/new"],
            "",
        );
        says(
            &story,
            &["run", &name, "--", "stat", "-c", "%u:%g", "/etc/new"],
            "7:8",
        );
        says(&story, &["run", &name, "--", "cat", "/etc/new"], "new");
        says(
            &story,
            &["run", &name, "--", "cat", "/workspace/file"],
            "kept",
        );
        let gone = story.motu(&["run", &name, "--", "test", "-e", "/root"]);
        assert_eq!(gone.code, 1, "{gone}");
        // Another commit under the same name replaces the first.
        says(
            &story,
            &["commit", "source", &name, "--then", "destroy"],
            &name,
        );
        says(&story, &["run", &name, "--", "cat", "/etc/new"], "later");
        let gone = story.motu(&["exec", "source", "--", "true"]);
        assert!(gone.stderr.contains("destroyed"), "{gone}");
    }
}

#[test]
fn what_cannot_become_an_environment_says_why() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let refused = |args: &[&str], code: i32, text: &str| {
        let told = story.motu(args);
        assert_eq!(told.code, code, "{told}");
        assert!(told.stderr.contains(text), "{told}");
    };
    says(&story, &["create", "busybox", "--id", "lost"], "lost");
    refused(
        &["commit", "lost", "mine:1"],
        105,
        "its disks go with its machine",
    );
    says(&story, &["exec", "lost", "--", "true"], "");
    says(
        &story,
        &["create", "busybox", "--keep", "--id", "kept"],
        "kept",
    );
    refused(&["commit", "kept", "debian:12"], 105, "debian:12");
    refused(&["commit", "kept", "No Name"], 102, "No Name");
    says(&story, &["exec", "kept", "--", "true"], "");
    says(&story, &["stop", "kept"], "kept is stopped");
    says(&story, &["commit", "kept", "mine:1"], "mine:1");
    let listed = story.motu(&["ps", "--json"]);
    assert!(listed.stdout.contains("\"stopped\""), "{listed}");
    refused(&["commit", "nobody", "mine:1"], 104, "nobody");
}
