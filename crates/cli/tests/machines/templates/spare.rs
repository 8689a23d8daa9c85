//! The machine that waits for the next one-shot.

use super::pooled::machines;
use super::{Story, until, value, world};

/// Runs a command in a sandbox of its own, and returns the sandbox's id.
fn run(story: &Story) -> String {
    let run = ["run", "--json", "--mem-mib", "64", "busybox", "--", "true"];
    let told = value(&story.motu(&run));
    assert_eq!(told["exit_code"], 0, "{told}");
    told["sandbox_id"].as_str().unwrap().to_string()
}

/// Runs twice, and returns the id of the machine that waits then.
fn spare(story: &Story) -> String {
    run(story);
    // The run's own machine goes after its answer; a spare one would stay.
    until("no machine after the first run", || {
        machines(story).is_empty()
    });
    let last = run(story);
    until("a spare machine alone", || {
        let there = machines(story);
        there.len() == 1 && !there.contains(&last)
    });
    machines(story).pop_first().unwrap()
}

#[test]
fn the_third_run_finds_a_machine_that_waits_and_it_goes_when_nobody_comes() {
    let Some(story) = world() else { return };
    story.configure("runtime = \"container\"\nspare_seconds = 4\n");
    let waits = spare(&story);
    let listed = value(&story.motu(&["ps", "--json"]));
    assert_eq!(listed["sandboxes"], serde_json::json!([]), "{listed}");
    assert_eq!(run(&story), waits);
    until("the next spare machine", || {
        machines(&story).iter().any(|id| *id != waits)
    });
    // A run of another kind does not get it.
    let before = machines(&story);
    let other = ["run", "--json", "busybox", "--", "true"];
    let other = value(&story.motu(&other));
    assert!(!before.contains(other["sandbox_id"].as_str().unwrap()));
    until("no machine at all", || machines(&story).is_empty());
}

#[test]
fn a_spare_machine_is_in_nobodys_way() {
    let Some(story) = world() else { return };
    spare(&story);
    // Its environment is free to go.
    let gone = story.motu(&["env", "rm", "busybox"]);
    assert_eq!(gone.code, 0, "{gone}");
    until("no machine at all", || machines(&story).is_empty());
}

#[test]
fn who_wants_none_has_none() {
    let Some(story) = world() else { return };
    story.configure("runtime = \"container\"\nspare_seconds = 0\n");
    for _ in 0..3 {
        run(&story);
        until("no machine after a run", || machines(&story).is_empty());
    }
}

#[test]
fn a_run_does_not_wait_for_its_machines_end_and_the_next_one_has_its_place() {
    let Some(story) = world() else { return };
    story.configure("runtime = \"container\"\nspare_seconds = 0\nmax_sandboxes = 1\n");
    for _ in 0..10 {
        run(&story);
    }
    // Whoever looks sees what there will be in a moment.
    let listed = value(&story.motu(&["ps", "--json"]));
    assert_eq!(listed["sandboxes"], serde_json::json!([]), "{listed}");
    let gone = story.motu(&["env", "rm", "busybox"]);
    assert_eq!(gone.code, 0, "{gone}");
    assert!(machines(&story).is_empty());
}
