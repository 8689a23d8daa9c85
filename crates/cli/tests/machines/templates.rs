//! Templates on real machines: every field takes effect, and nothing is left incomplete.

mod created;
mod killed;
mod mistakes;
mod pooled;
mod reaching;
mod saved;
mod spare;

use motu_testkit::builds::world_of_its_own as world;
use motu_testkit::story::{Story, Told};
use serde_json::{Value, json};

/// The JSON answer of a successful command, from its last line.
fn value(told: &Told) -> Value {
    assert_eq!(told.code, 0, "{told}");
    let whole = serde_json::from_str(&told.stdout);
    whole.unwrap_or_else(|_| serde_json::from_str(told.stdout.lines().last().unwrap()).unwrap())
}

/// Creates a template and returns its description.
fn template(story: &Story, args: &[&str]) -> Value {
    let create = ["template", "create", "--json"];
    value(&story.motu(&[&create[..], args].concat()))
}

fn says(told: &Told, expected: &str) {
    assert_eq!((told.code, told.stdout.trim()), (0, expected), "{told}");
}

/// Polls for a condition, and fails the test after a deadline.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let late = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !so() {
        assert!(std::time::Instant::now() < late, "{what} did not come");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The value of a sandbox's limit, and whether it is enforced.
fn limit(sandbox: &Value, name: &str) -> (u64, bool) {
    let limits = sandbox["limits"].as_array().unwrap();
    let found = limits.iter().find(|limit| limit["name"] == name).unwrap();
    (
        found["value"].as_u64().unwrap(),
        found["enforced"].as_bool().unwrap(),
    )
}

const GREETER: &[&str] = &[
    "greeter",
    "--from",
    "busybox",
    "--env",
    "GREETING=hello",
    "--setup",
    "echo \"$GREETING of the setup\" > /etc/greeting",
    "--setup",
    "cat /etc/greeting",
    "--vcpu-count",
    "2",
    "--mem-mib",
    "96",
    "--disk-mib",
    "64",
    "--ttl-seconds",
    "77",
    "--runtime",
    "container",
    "--isolation",
    "container",
    "--label",
    "team=web",
];

#[test]
fn every_field_of_a_template_has_its_effect() {
    let Some(story) = world() else { return };
    let made = template(&story, GREETER);
    assert_eq!(
        (&made["name"], &made["version"]),
        (&json!("greeter"), &json!(1))
    );
    assert!(
        made["owner"].as_str().unwrap().starts_with("uid:"),
        "{made}"
    );
    let run = |more: &[&str]| story.motu(&[&["run", "--template", "greeter"][..], more].concat());
    let script = "cat /etc/greeting; echo $GREETING; pwd";
    says(
        &run(&["--", "sh", "-c", script]),
        "hello of the setup\nhello\n/workspace",
    );
    let sandbox = value(&story.motu(&["create", "--template", "greeter", "--json"]));
    assert_eq!(sandbox["template"]["name"], "greeter");
    assert_eq!(sandbox["template"]["version"], 1);
    assert_eq!(sandbox["template"]["digest"], made["digest"]);
    assert_eq!(sandbox["template"]["labels"], json!({"team": "web"}));
    assert_eq!(sandbox["digest"], made["built"]["digest"]);
    assert_eq!(sandbox["runtime"], "container");
    assert_eq!(
        (&sandbox["ttl_seconds"], &sandbox["vcpu_count"]),
        (&json!(77), &json!(2))
    );
    assert_eq!(limit(&sandbox, "mem_mib"), (96, true));
    assert_eq!(limit(&sandbox, "vcpu_count"), (2, true));
    // The limits apply to the machine: a program that needs more memory is killed, and a larger
    // file does not fit.
    let large = run(&[
        "--json",
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=300M",
        "count=1",
    ]);
    let large: Value = serde_json::from_str(&large.stdout).unwrap();
    assert_eq!(large["out_of_memory"], true, "{large}");
    let full = run(&["--", "dd", "if=/dev/zero", "of=/big", "bs=1M", "count=80"]);
    assert_ne!(full.code, 0, "{full}");
}

#[test]
fn what_a_caller_says_wins_over_the_template() {
    let Some(story) = world() else { return };
    template(&story, GREETER);
    let args = ["--mem-mib", "128", "--ttl-seconds", "99", "--json"];
    let create = ["create", "--template", "greeter"];
    let sandbox = value(&story.motu(&[&create[..], &args].concat()));
    assert_eq!(
        (&sandbox["mem_mib"], &sandbox["ttl_seconds"]),
        (&json!(128), &json!(99))
    );
    assert_eq!(sandbox["vcpu_count"], 2);
    let run = ["run", "--template", "greeter", "--env", "GREETING=bye"];
    let told = story.motu(&[&run[..], &["--", "sh", "-c", "echo $GREETING"]].concat());
    says(&told, "bye");
    // An environment and a template together are contradictory.
    let both = story.motu(&["run", "busybox", "--template", "greeter", "--", "true"]);
    assert_eq!(both.code, 102, "{both}");
}

#[test]
fn a_workspace_starts_from_a_template_too() {
    let Some(story) = world() else { return };
    template(&story, GREETER);
    let args = [
        "workspace",
        "create",
        "--template",
        "greeter",
        "--label",
        "of=me",
        "--json",
    ];
    let made = value(&story.motu(&args));
    assert_eq!(made["template"]["version"], 1);
    assert_eq!(made["labels"], json!({"of": "me", "team": "web"}));
    assert_eq!(made["mem_mib"], 96);
    let id = made["workspace_id"].as_str().unwrap();
    let script = "cat /etc/greeting; echo $GREETING";
    let told = story.motu(&["workspace", "exec", id, "--", "sh", "-c", script]);
    says(&told, "hello of the setup\nhello");
}

#[test]
fn a_changed_template_is_a_new_version_and_sandboxes_keep_theirs() {
    let Some(story) = world() else { return };
    let first = template(
        &story,
        &["t", "--from", "busybox", "--setup", "echo one > /etc/one"],
    );
    let id = story.motu(&["create", "--template", "t"]);
    let id = id.stdout.trim().to_string();
    // The same definition, or one that makes the same machines, is the same version.
    let args = [
        "t",
        "--from",
        "busybox",
        "--setup",
        "echo one > /etc/one",
        "--label",
        "a=b",
    ];
    let same = template(&story, &args);
    assert_eq!(
        (&same["version"], &same["digest"]),
        (&json!(1), &first["digest"])
    );
    assert_eq!(same["built"]["digest"], first["built"]["digest"]);
    let second = template(
        &story,
        &["t", "--from", "busybox", "--setup", "echo two > /etc/one"],
    );
    assert_eq!(second["version"], 2);
    assert_ne!(second["digest"], first["digest"]);
    assert_ne!(second["built"]["digest"], first["built"]["digest"]);
    assert_eq!(second["created_at"], first["created_at"]);
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/etc/one"]),
        "two",
    );
    says(&story.motu(&["exec", &id, "--", "cat", "/etc/one"]), "one");
    let listed = value(&story.motu(&["ps", "--json"]));
    assert_eq!(listed["sandboxes"][0]["template"]["version"], 1, "{listed}");
    // It is the same after a crash and after a clean restart.
    killed::kill(&story);
    let show = ["template", "show", "t", "--json"];
    assert_eq!(value(&story.motu(&show)), second);
    assert_eq!(story.motu(&["serve", "--stop"]).code, 0);
    assert_eq!(value(&story.motu(&show)), second);
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/etc/one"]),
        "two",
    );
    let listed = value(&story.motu(&["ps", "--json"]));
    assert_eq!(listed["sandboxes"][0]["template"]["version"], 1, "{listed}");
    // A rebuild without the cache that has the same result is no new version.
    let again = value(&story.motu(&["template", "build", "t", "--no-cache", "--json"]));
    assert_eq!(again["digest"], second["digest"]);
    let changed = again["built"]["digest"] != second["built"]["digest"];
    assert_eq!(again["version"], json!(if changed { 3 } else { 2 }));
}

#[test]
fn what_a_setup_made_stays_while_its_template_does_and_is_made_again_if_it_is_lost() {
    let Some(story) = world() else { return };
    let made = template(
        &story,
        &["t", "--from", "busybox", "--setup", "echo one > /etc/one"],
    );
    let built = made["built"]["environment"].as_str().unwrap();
    let removed = story.motu(&["env", "rm", built]);
    assert_eq!(removed.code, 105, "{removed}");
    motu_needs::probes::own_machines(&story.home());
    assert_eq!(story.motu(&["env", "prune"]).code, 0);
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/etc/one"]),
        "one",
    );
    // A restored state directory has the template, but not its built environment.
    let backup = story.path().join("backup");
    let backup = backup.to_str().unwrap();
    assert_eq!(story.motu(&["backup", backup]).code, 0);
    let other = Story::new();
    assert_eq!(other.motu(&["restore", backup]).code, 0);
    other.configure("runtime = \"container\"\n");
    let _ = std::fs::remove_dir_all(other.home().join("environments"));
    motu_testkit::builds::own_environments(&other);
    says(
        &other.motu(&["run", "--template", "t", "--", "cat", "/etc/one"]),
        "one",
    );
    // It is removed with its template.
    assert_eq!(story.motu(&["template", "rm", "t"]).code, 0);
    let left = story.motu(&["env", "list", "--json"]);
    assert!(!left.stdout.contains(built), "{left}");
}

#[test]
fn the_setup_is_seen_under_every_runtime_that_works() {
    let Some(story) = world() else { return };
    template(
        &story,
        &["t", "--from", "busybox", "--setup", "echo one > /etc/one"],
    );
    let reports = motu_testkit::doctor();
    let works = |name: &&&str| {
        let reports = reports["runtimes"].as_array().unwrap();
        let mut named = reports.iter().filter(|report| report["name"] == **name);
        named.any(|report| report["works"] == true)
    };
    let runtimes = ["container", "gvisor", "qemu"];
    let runtimes: Vec<&&str> = runtimes.iter().filter(works).collect();
    assert!(!runtimes.is_empty());
    for runtime in runtimes {
        let run = ["run", "--template", "t", "--runtime", runtime];
        let command = ["--timeout-seconds", "300", "--", "cat", "/etc/one"];
        says(&story.motu(&[&run[..], &command].concat()), "one");
    }
}
