//! POSIX conformance of a machine's file systems on every runtime: pjdfstest on `/` and on
//! `/workspace`. Known failures are listed beside this file, with the reason.

use motu_testkit::story::Story;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
# More than a tick of the clock that stamps files.
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["user", "user"]]
"#;

/// All tests but one, which creates the maximum of hard links to a file: 65,000 take an emulated
/// machine a minute, and test nothing of ours.
pub const ALL: [&str; 14] = [
    "tests::c",
    "tests::f",
    "tests::m",
    "tests::o",
    "tests::p",
    "tests::r",
    "tests::s",
    "tests::t",
    "tests::u",
    "tests::link::c",
    "tests::link::e",
    "tests::link::r",
    "tests::link::s",
    "tests::link::u",
];
/// The tests that run on an emulated machine by default; `make pjdfstest` runs all.
const SOME: [&str; 3] = ["tests::rename", "tests::link::c", "tests::link::s"];

fn root() -> std::path::PathBuf {
    motu_testkit::root()
}

/// The known failures in a place, among the selected tests.
pub fn listed(runtime: &str, place: &str, patterns: &[&str]) -> BTreeSet<String> {
    let list = root().join(format!("crates/cli/tests/machines/pjdfstest/{runtime}.txt"));
    let list = std::fs::read_to_string(list).unwrap();
    let lines = list.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut found = BTreeSet::new();
    for line in lines {
        let (at, test) = line.split_once(' ').unwrap();
        assert!(["*", "/", "/workspace"].contains(&at), "{line}");
        let full = format!("tests::{test}");
        let asked = patterns.iter().any(|pattern| full.starts_with(pattern));
        if asked && (at == "*" || at == place) {
            assert!(
                found.insert(test.to_string()),
                "{runtime}: {test} is listed twice"
            );
        }
    }
    found
}

/// Runs the tests in a directory of the machine; returns the names of those that fail.
fn run(story: &Story, id: &str, directory: &str, patterns: &[&str]) -> (BTreeSet<String>, String) {
    let command = format!(
        "/workspace/pjdfstest -c /workspace/settings.toml -p {directory} -s /dev/shm {}",
        patterns.join(" ")
    );
    let mut arguments = vec!["exec", "--user", "root", "--timeout-seconds", "300", id];
    arguments.extend(["--env", "NO_COLOR=1", "--", "sh", "-c", &command]);
    let told = story.motu(&arguments);
    let mut failed = BTreeSet::new();
    for line in told.stdout.lines() {
        if let [test, "FAILED"] = line.split_whitespace().collect::<Vec<_>>()[..] {
            failed.insert(test.to_string());
        }
    }
    let summary = told.stdout.lines().find(|line| line.starts_with("Summary"));
    let summary = summary.unwrap_or_else(|| panic!("{told}")).to_string();
    (failed, summary)
}

fn pjdfstest(runtime: &str, patterns: &[&str]) {
    let Some(story) = Story::with_debian(runtime) else {
        return;
    };
    let made = std::process::Command::new(root().join("tools/pjdfstest")).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
    let seed = story.path().join("seed");
    std::fs::create_dir(&seed).unwrap();
    let program = String::from_utf8(made.stdout).unwrap();
    std::fs::copy(program.trim(), seed.join("pjdfstest")).unwrap();
    std::fs::write(seed.join("settings.toml"), SETTINGS).unwrap();
    let mut create = vec!["workspace", "create", "debian:12", "--runtime", runtime];
    create.extend(["--seed-path", seed.to_str().unwrap(), "--id-only"]);
    let created = story.motu(&create);
    assert_eq!(created.code, 0, "{created}");
    let mut wrong = String::new();
    for (place, directory) in [("/", "/srv"), ("/workspace", "/workspace")] {
        let (failed, summary) = run(&story, created.stdout.trim(), directory, patterns);
        println!("{runtime} {place}: {summary}");
        let known = listed(runtime, place, patterns);
        for test in failed.difference(&known) {
            writeln!(wrong, "{place} {test} fails and is not listed").unwrap();
        }
        for test in known.difference(&failed) {
            writeln!(wrong, "{place} {test} passes and is listed").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{runtime}:\n{wrong}");
}

#[test]
fn in_a_container() {
    pjdfstest("container", &ALL);
}

#[test]
fn in_gvisor() {
    pjdfstest("gvisor", &ALL);
}

#[test]
fn in_a_virtual_machine() {
    let patterns = match std::env::var_os("MOTU_PJDFSTEST") {
        Some(all) if all == "all" => &ALL[..],
        _ => &SOME[..],
    };
    pjdfstest("qemu", patterns);
}
