//! Pools of templates.

use super::{Story, says, template, until, value, world};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn pool(story: &Story, name: &str) -> Value {
    value(&story.motu(&["template", "show", name, "--json"]))["pool"].clone()
}

/// Waits until the pool has this many machines.
fn full(story: &Story, name: &str, ready: u64) {
    until("a full pool", || pool(story, name)["ready"] == ready);
}

/// The existing machines, by their directories.
pub fn machines(story: &Story) -> BTreeSet<String> {
    let dir = story.home().join("machines/container");
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect()
}

const POOLED: &[&str] = &[
    "t",
    "--from",
    "busybox",
    "--setup",
    "echo one > /etc/one",
    "--env",
    "WHO=me",
    "--mem-mib",
    "64",
    "--pool-size",
    "2",
];

#[test]
fn a_sandbox_takes_a_machine_that_waits_and_another_is_made() {
    let Some(story) = world() else { return };
    template(&story, POOLED);
    full(&story, "t", 2);
    let waiting = machines(&story);
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    let made = value(&story.motu(&["create", "--template", "t", "--json"]));
    let id = made["sandbox_id"].as_str().unwrap();
    assert!(waiting.contains(id), "{id} is none of {waiting:?}");
    assert_eq!(pool(&story, "t")["taken"], 1);
    let told = story.motu(&["exec", id, "--", "sh", "-c", "cat /etc/one; echo $WHO"]);
    says(&told, "one\nme");
    full(&story, "t", 2);
    // A request with other limits does not take a machine from the pool.
    let run = ["run", "--template", "t", "--mem-mib", "80", "--", "true"];
    assert_eq!(story.motu(&run).code, 0);
    assert_eq!(pool(&story, "t")["taken"], 1);
    let run = ["run", "--template", "t", "--", "cat", "/etc/one"];
    says(&story.motu(&run), "one");
    assert_eq!(pool(&story, "t")["taken"], 2);
}

#[test]
fn a_template_that_goes_takes_its_waiting_machines_along_and_no_others() {
    let Some(story) = world() else { return };
    template(&story, POOLED);
    full(&story, "t", 2);
    let made = story.motu(&["create", "--template", "t"]);
    let id = made.stdout.trim().to_string();
    full(&story, "t", 2);
    assert_eq!(machines(&story).len(), 3);
    // One that something came from stays, and so do those that wait.
    let used = story.motu(&["template", "rm", "t"]);
    assert_eq!(used.code, 105, "{used}");
    assert!(used.stderr.contains(&id), "{used}");
    assert_eq!(machines(&story).len(), 3);
    says(&story.motu(&["exec", &id, "--", "cat", "/etc/one"]), "one");
    let other = story.motu(&["create", "busybox"]).stdout.trim().to_string();
    assert_eq!(story.motu(&["rm", &id]).code, 0);
    let gone = value(&story.motu(&["template", "rm", "t", "--json"]));
    assert_eq!(gone["pool"], json!({"ready": 2, "taken": 1}));
    assert_eq!(machines(&story), BTreeSet::from([other]));
    assert_eq!(story.motu(&["template", "show", "t"]).code, 104);
}

#[test]
fn a_changed_template_has_other_machines_waiting() {
    let Some(story) = world() else { return };
    template(&story, POOLED);
    full(&story, "t", 2);
    let before = machines(&story);
    let mut changed = POOLED.to_vec();
    changed[4] = "echo two > /etc/one";
    template(&story, &changed);
    full(&story, "t", 2);
    assert!(machines(&story).is_disjoint(&before));
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/etc/one"]),
        "two",
    );
    assert_eq!(pool(&story, "t")["taken"], 1);
    changed[10] = "0";
    template(&story, &changed);
    until("an empty pool", || machines(&story).is_empty());
}

#[test]
fn pools_that_have_no_memory_together_say_so() {
    let Some(story) = world() else { return };
    story.configure("runtime = \"container\"\npool_mem_mib = 160\n");
    let pooled = |name: &'static str, size: &'static str| {
        [
            "template",
            "create",
            name,
            "--from",
            "busybox",
            "--mem-mib",
            "64",
            "--pool-size",
            size,
        ]
    };
    let large = story.motu(&[&pooled("large", "3")[..], &["--json"]].concat());
    assert_eq!(large.code, 106, "{large}");
    assert!(large.stdout.contains("pool_mem_mib"), "{large}");
    assert_eq!(story.motu(&["template", "show", "large"]).code, 104);
    assert_eq!(story.motu(&pooled("a", "2")).code, 0);
    full(&story, "a", 2);
    // Both templates make the same kind of machine, so they share a pool, which has room for two.
    assert_eq!(story.motu(&pooled("b", "1")).code, 0);
    until("a reason", || {
        let problem = pool(&story, "b")["problem"].clone();
        problem
            .as_str()
            .is_some_and(|said| said.contains("pool_mem_mib"))
    });
    assert_eq!(pool(&story, "a")["ready"], 2);
}
