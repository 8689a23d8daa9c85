//! Sandboxes that become templates: with their memory, or their files.

use super::killed::kill;
use crate::templates::{says, template, value, world};
use motu_testkit::story::Story;
use serde_json::Value;
use std::fs;

fn made(story: &Story, args: &[&str]) -> String {
    let made = value(&story.motu(&[&["create", "--json"], args].concat()));
    made["sandbox_id"].as_str().unwrap().to_string()
}

fn inside(story: &Story, id: &str, script: &str) -> String {
    let told = story.motu(&["exec", id, "--", "sh", "-c", script]);
    assert_eq!(told.code, 0, "{told}");
    told.stdout.trim().to_string()
}

fn save(story: &Story, args: &[&str]) -> Value {
    value(&story.motu(&[&["template", "save", "--json"], args].concat()))
}

fn refused(story: &Story, args: &[&str], kind: &str, word: &str) {
    let told = story.motu(args);
    assert_ne!(told.code, 0, "{told}");
    let said = format!("{}{}", told.stdout, told.stderr);
    assert!(said.contains(kind) && said.contains(word), "{told}");
}

fn saved(story: &Story) -> Vec<String> {
    let entries = fs::read_dir(story.home().join("saved"));
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let entries = entries.into_iter().flatten();
    entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

#[test]
fn the_files_of_a_sandbox_become_a_template() {
    let Some(story) = world() else { return };
    let id = made(&story, &["busybox", "--keep", "--mem-mib", "96"]);
    inside(
        &story,
        &id,
        "echo precious > /kept; sleep 600 >/dev/null 2>&1 & echo",
    );
    refused(
        &story,
        &["template", "save", &id, "t", "--memory", "--json"],
        "unsupported",
        "memory",
    );
    let made_of = save(&story, &[&id, "t"]);
    assert_eq!(made_of["saved"]["memory"], false);
    assert!(made_of["saved"]["size_bytes"].as_u64().unwrap() > 0);
    // It goes on, with a machine of its own.
    assert_eq!(inside(&story, &id, "cat /kept"), "precious");
    let run = ["run", "--template", "t", "--", "cat", "/kept"];
    says(&story.motu(&run), "precious");
    refused(
        &story,
        &["template", "save", &id, "t", "--json"],
        "conflict",
        "exists already",
    );
    // It starts from the same files when only its size is another.
    let larger = ["t", "--from", "snapshot-t:1", "--mem-mib", "128"];
    assert_eq!(template(&story, &larger)["saved"]["memory"], false);
    says(&story.motu(&run), "precious");
    // Its environment goes with it.
    assert_eq!(story.motu(&["template", "rm", "t"]).code, 0);
    let listed = story.motu(&["env", "list"]);
    assert!(!listed.stdout.contains("snapshot-t"), "{listed}");

    // One that somebody made by hand stays, whatever it is called.
    assert_eq!(story.motu(&["commit", &id, "snapshot-own:1"]).code, 0);
    template(&story, &["own", "--from", "snapshot-own:1"]);
    assert_eq!(story.motu(&["template", "rm", "own"]).code, 0);
    let kept = ["run", "snapshot-own:1", "--", "cat", "/kept"];
    says(&story.motu(&kept), "precious");

    save(&story, &[&id, "t", "--then", "destroy"]);
    assert_ne!(story.motu(&["exec", &id, "--", "true"]).code, 0);
    says(&story.motu(&run), "precious");
}

#[test]
fn what_runs_goes_on_in_machines_of_a_template_with_memory() {
    let Some(story) = world() else { return };
    let id = made(
        &story,
        &["busybox", "--runtime", "qemu", "--mem-mib", "192"],
    );
    let counts = "(i=0; while true; do i=$((i+1)); echo $i > /dev/shm/m; mv /dev/shm/m /dev/shm/n; \
                  sleep 0.02; done) >/dev/null 2>&1 & until [ -s /dev/shm/n ]; do sleep 0.02; done; \
                  cat /dev/shm/n";
    let at: u64 = inside(&story, &id, counts).parse().unwrap();
    let stop = ["template", "save", &id, "warm", "--then", "stop", "--json"];
    refused(&story, &stop, "conflict", "stopped");
    let made_of = save(&story, &[&id, "warm"]);
    assert_eq!(made_of["saved"]["memory"], true, "{made_of}");
    assert_eq!(made_of["definition"]["runtime"], "qemu");
    let goes_on = |id: &str| {
        let first: u64 = inside(&story, id, "cat /dev/shm/n").parse().unwrap();
        assert!(first >= at, "{first} after {at}");
        let more = format!("until [ $(cat /dev/shm/n) -gt {first} ]; do sleep 0.02; done");
        inside(&story, id, &more);
    };
    goes_on(&id);
    assert_eq!(story.motu(&["rm", &id]).code, 0);

    // The daemon dies; what was saved is on the disk.
    fs::create_dir(story.home().join("saved/half@1.new")).unwrap();
    kill(&story);
    let copies = [0, 1].map(|_| made(&story, &["--template", "warm"]));
    copies.iter().for_each(|id| goes_on(id));
    assert_eq!(saved(&story).len(), 1, "{:?}", saved(&story));
    let names = copies.clone().map(|id| inside(&story, &id, "hostname"));
    assert_ne!(names[0], names[1]);
    let run = [
        "run",
        "--template",
        "warm",
        "--runtime",
        "auto",
        "--",
        "test",
        "-s",
        "/dev/shm/n",
    ];
    assert_eq!(story.motu(&run).code, 0);

    // A backup has it too.
    let backup = story.path().join("backup");
    assert_eq!(story.motu(&["backup", backup.to_str().unwrap()]).code, 0);
    let Some(other) = world() else { return };
    let restored = other.motu(&["restore", backup.to_str().unwrap()]);
    assert_eq!(restored.code, 0, "{restored}");
    let again = made(&other, &["--template", "warm"]);
    let number: u64 = inside(&other, &again, "cat /dev/shm/n").parse().unwrap();
    assert!(number >= at, "{number} after {at}");
    drop(other);

    // What cannot be is refused, and nothing is lost by it.
    let create = ["create", "--template", "warm", "--json"];
    for (args, kind, word) in [
        (&["--mem-mib", "256"][..], "invalid", "mem_mib"),
        (&["--runtime", "container"], "unsupported", "container"),
        (&["--keep"], "unsupported", "kept"),
        (&["--policy", "public"], "invalid", "network"),
    ] {
        refused(&story, &[&create[..], args].concat(), kind, word);
    }
    let workspace = ["workspace", "create", "--template", "warm", "--json"];
    refused(&story, &workspace, "unsupported", "memory");
    refused(
        &story,
        &["template", "build", "warm", "--json"],
        "unsupported",
        "built",
    );
    refused(
        &story,
        &["template", "rm", "warm", "--json"],
        "conflict",
        "used by",
    );
    for id in &copies {
        assert_eq!(story.motu(&["rm", id]).code, 0);
    }
    // Another definition under the name is another template, and the memory goes.
    template(&story, &["warm", "--from", "busybox"]);
    assert_eq!(saved(&story), Vec::<String>::new());
}
