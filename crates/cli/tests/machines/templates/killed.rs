//! Daemons killed in the middle of an operation.

use super::{Story, says, template, until, value, world};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};

/// Kills the daemon, as in a crash, and waits until it has ended.
pub fn kill(story: &Story) {
    let version = value(&story.motu(&["version", "--json"]));
    let pid = version["daemon"]["pid"]
        .as_i64()
        .or(version["pid"].as_i64());
    let pid = i32::try_from(pid.unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    until("the daemon's end", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
            || !fs::exists(&stat).unwrap()
    });
}

fn entries(story: &Story, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(story.home().join(dir)).into_iter().flatten();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_daemon_that_is_killed_in_a_setup_leaves_nothing_half_made() {
    let Some(story) = world() else { return };
    let args = [
        "t",
        "--from",
        "busybox",
        "--setup",
        "echo first > /first",
        "--setup",
    ];
    template(
        &story,
        &["t", "--from", "busybox", "--setup", "echo old > /first"],
    );
    let create = ["template", "create"];
    let slow = [&create[..], &args, &["echo begun; sleep 600"]].concat();
    let mut building = story
        .command(&slow)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(building.stderr.take().unwrap());
    let begun = said.lines().map(Result::unwrap).any(|line| line == "begun");
    assert!(begun);
    kill(&story);
    assert!(!building.wait().unwrap().success());
    // The template is unchanged, and works.
    let shown = value(&story.motu(&["template", "show", "t", "--json"]));
    assert_eq!(shown["version"], 1);
    for dir in ["environments/staging", "machines/container", "kept", "lost"] {
        assert_eq!(entries(&story, dir), [""; 0], "{dir}");
    }
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/first"]),
        "old",
    );
    // Finished steps are not run again.
    let again = [&create[..], &["--json"], &args, &["cat /first"]].concat();
    let again = story.motu(&again);
    assert_eq!(again.code, 0, "{again}");
    let cached = again
        .stdout
        .lines()
        .filter(|line| line.contains("\"cached\""));
    assert_eq!(cached.count(), 1, "{again}");
    assert_eq!(value(&again)["version"], json!(2));
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/first"]),
        "first",
    );
}

#[test]
fn a_daemon_that_is_killed_beside_a_full_pool_fills_it_again() {
    let Some(story) = world() else { return };
    let pooled = [
        "t",
        "--from",
        "busybox",
        "--mem-mib",
        "64",
        "--pool-size",
        "2",
    ];
    template(&story, &pooled);
    let ready = || {
        let shown = value(&story.motu(&["template", "show", "t", "--json"]));
        shown["pool"]["ready"].as_u64().unwrap()
    };
    until("a full pool", || ready() == 2);
    let before = entries(&story, "machines/container");
    assert_eq!(before.len(), 2, "{before:?}");
    kill(&story);
    until("a full pool", || ready() == 2);
    let after = entries(&story, "machines/container");
    assert_eq!(after.len(), 2, "{after:?}");
    assert!(
        after.iter().all(|id| !before.contains(id)),
        "{before:?} {after:?}"
    );
    assert_eq!(story.motu(&["template", "rm", "t"]).code, 0);
    assert_eq!(entries(&story, "machines/container"), [""; 0]);
}
