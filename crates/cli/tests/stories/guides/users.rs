//! The tour of README.md as somebody who is not root.

use crate::guides::{PATIENCE_SECONDS, blocks, read, tell_in};
use motu_testkit::user::User;

/// The tour of somebody who is not root, with ids and control groups of their own.
#[test]
fn readme_for_an_ordinary_user() {
    let Some(user) = User::new() else { return };
    for environment in ["busybox", "debian:12"] {
        let Some(()) = user.installs(environment) else {
            return;
        };
    }
    tell_in("README.md", &user.own(), |script| {
        user.give(script.parent().unwrap());
        let mut command = user.command("timeout");
        command
            .args(["-k", "5", PATIENCE_SECONDS, "bash"])
            .arg(script);
        command
    });
    // What their groups limit is limited, and every answer says what is not.
    let run = [
        "run",
        "busybox",
        "--mem-mib",
        "64",
        "--pids-max",
        "50",
        "--json",
        "--",
        "id",
        "-u",
    ];
    let told = user.motu(&run);
    assert_eq!(told.code, 0, "{told}");
    let answer: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(answer["stdout"], "0\n", "{told}");
    assert_eq!(
        answer["not_enforced"],
        serde_json::json!(["disk_mib"]),
        "{told}"
    );
    let create = ["create", "busybox", "--id", "mine", "--mem-mib", "64"];
    // What follows takes gVisor, which they would get, more than a minute on a busy host.
    let told = user.motu(&[&create[..], &["--runtime", "container"]].concat());
    assert_eq!(told.code, 0, "{told}");
    let told = user.motu(&["ps"]);
    assert!(
        told.stdout.contains("\nmine: not enforced: disk_mib\n"),
        "{told}"
    );
    let eats = "x=$(head -c 300000000 /dev/zero | tr '\\0' a)";
    let told = user.motu(&["exec", "mine", "--json", "--", "sh", "-c", eats]);
    let answer: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(answer["out_of_memory"], true, "{told}");
    let told = user.motu(&["run", "busybox", "--disk-mib", "64", "--", "true"]);
    assert_eq!(told.code, 108, "{told}");
}

/// What a line of the tour comes to for a user without a range of ids, by how it begins.
#[derive(Clone, Copy, Debug)]
enum Comes {
    Works,
    /// No environment can be installed, and the command that helps is named.
    NoRange,
    /// It is about a machine that was not made.
    Nothing,
}

const WITHOUT_A_RANGE: [(&str, Comes); 12] = [
    ("motu env list", Comes::Works),
    ("motu env pull", Comes::NoRange),
    ("motu run", Comes::NoRange),
    ("cat notes.txt | motu run", Comes::NoRange),
    ("id=$(motu", Comes::NoRange),
    ("motu ps", Comes::Works),
    ("motu mcp config", Comes::Works),
    ("motu doctor", Comes::NoRange),
    ("motu terminal open", Comes::NoRange),
    ("motu terminal", Comes::Nothing),
    ("motu pause", Comes::Nothing),
    ("motu ", Comes::Nothing),
];

/// Somebody to whom nobody has given ids: every line says what is missing and the one command that helps.
#[test]
fn readme_for_an_ordinary_user_without_a_range() {
    let Some(user) = User::new() else { return };
    let user = user.without_ids();
    std::fs::write(user.own().join("notes.txt"), "one\n").unwrap();
    let blocks = blocks(&read("README.md"));
    let lines = blocks.iter().filter(|b| b.is_told() && b.language == "sh");
    let mut count = 0;
    for line in lines.flat_map(|block| &block.text) {
        if line.is_empty() {
            continue;
        }
        let known = WITHOUT_A_RANGE
            .iter()
            .find(|(begin, _)| line.starts_with(begin));
        let (_, comes) = known.unwrap_or_else(|| panic!("README.md says {line:?}"));
        let (code, said) = match comes {
            Comes::Nothing => continue,
            Comes::Works => (0, ""),
            Comes::NoRange => (107, "usermod --add-subuids"),
        };
        let mut command = user.command("/bin/bash");
        command.args(["-c", line]);
        let told = user.story.told(command);
        assert_eq!(told.code, code, "{line}: {told}");
        let text = format!("{}{}", told.stdout, told.stderr);
        assert!(text.contains(said), "{line}: {told}");
        if matches!(comes, Comes::NoRange) {
            assert!(
                text.contains("no range of subordinate ids"),
                "{line}: {told}"
            );
            assert!(text.contains(" someone"), "{line}: {told}");
        }
        // `unshare` words this fault with the number of an error that did not happen.
        assert!(!text.contains(": Success"), "{line}: {told}");
        count += 1;
    }
    assert!(count > 10, "only {count} lines of the tour were tried");
}
