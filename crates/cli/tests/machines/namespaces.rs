//! Namespaces that programs make for themselves, as browsers do for the sandboxes of their own.

use motu_testkit::story::{Story, Told};

/// What Chromium asks for before it shows a page.
const SANDBOX: &str = "unshare --user --map-root-user --pid --net --fork true";

fn tried(runtime: &str, script: &str) -> Option<Told> {
    let story = Story::with_debian(runtime)?;
    let run = ["run", "debian:12", "--runtime", runtime];
    let flags = ["--timeout-seconds", "120", "--user", "user", "--"];
    let words = [&run[..], &flags[..], &["sh", "-c", script][..]].concat();
    Some(story.motu(&words))
}

/// There they would be of the host's kernel.
#[test]
fn a_container_makes_none() {
    for script in [SANDBOX, "unshare --user true", "unshare --net true"] {
        let Some(told) = tried("container", script) else {
            return;
        };
        assert_ne!(told.code, 0, "{script}: {told}");
        assert!(told.stderr.contains("Operation not permitted"), "{told}");
    }
}

#[test]
fn gvisor_makes_its_own() {
    if let Some(told) = tried("gvisor", SANDBOX) {
        assert_eq!(told.code, 0, "{told}");
    }
}

#[test]
fn a_virtual_machine_makes_its_own() {
    if let Some(told) = tried("qemu", SANDBOX) {
        assert_eq!(told.code, 0, "{told}");
    }
}
