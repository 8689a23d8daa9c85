//! Refused requests, and what they leave.

use super::{Told, says, template, value, world};
use serde_json::Value;

/// The exit code and the error of a refused command.
fn refused(told: &Told) -> (i32, Value) {
    let begins = told.stdout.find("{\n").unwrap_or(0);
    let error: Value =
        serde_json::from_str(&told.stdout[begins..]).unwrap_or_else(|_| panic!("no error: {told}"));
    let error = error["error"].clone();
    (told.code, error)
}

#[test]
fn a_setup_that_fails_says_why_and_leaves_nothing() {
    let Some(story) = world() else { return };
    let create = ["template", "create", "t", "--from", "busybox", "--json"];
    let fails = ["--setup", "true", "--setup", "echo the last words; exit 7"];
    let fails = [&create[..], &fails].concat();
    let (code, error) = refused(&story.motu(&fails));
    assert_eq!(code, 102, "{error}");
    assert_eq!(error["details"]["exit_code"], 7, "{error}");
    assert_eq!(error["details"]["log"], "the last words", "{error}");
    assert_eq!(error["details"]["line"], 2, "{error}");
    assert_eq!(story.motu(&["template", "show", "t"]).code, 104);
    let left = story.motu(&["env", "list", "--json"]);
    assert!(!left.stdout.contains("template-t"), "{left}");
    // An existing template stays unchanged.
    let before = template(
        &story,
        &["t", "--from", "busybox", "--setup", "echo one > /etc/one"],
    );
    assert_eq!(story.motu(&fails).code, 102);
    assert_eq!(
        value(&story.motu(&["template", "show", "t", "--json"])),
        before
    );
    says(
        &story.motu(&["run", "--template", "t", "--", "cat", "/etc/one"]),
        "one",
    );
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let Some(story) = world() else { return };
    let wrong: &[(&[&str], i32, &str)] = &[
        (&["T", "--from", "busybox"], 102, "no name of a template"),
        (
            &["t", "--from", "busybox", "--allow-host", "a b"],
            102,
            "not a host",
        ),
        (
            &["t", "--from", "busybox", "--allow-host", "10.0.0.0/8"],
            102,
            "not a host",
        ),
        (
            &["t", "--from", "busybox", "--allow-host", "127.0.0.1"],
            103,
            "does not allow",
        ),
        (
            &[
                "t",
                "--from",
                "busybox",
                "--allow-host",
                "a.example",
                "--pool-size",
                "1",
            ],
            108,
            "cannot wait",
        ),
        (
            &["t", "--from", "busybox", "--policy", "nowhere"],
            104,
            "no policy",
        ),
        (
            &["t", "--from", "busybox", "--runtime", "nothing"],
            102,
            "nothing",
        ),
        (
            &["t", "--from", "busybox", "--mem-mib", "1"],
            102,
            "mem_mib",
        ),
        (
            &["t", "--from", "busybox", "--pool-size", "65"],
            102,
            "template_pool_size",
        ),
        (&["t", "--from", "tar:/nowhere/there.tar"], 104, "there.tar"),
        (
            &["t", "--from", "busybox", "--setup", " "],
            102,
            "setup command",
        ),
        (
            &[
                "t",
                "--from",
                "busybox",
                "--policy",
                "public",
                "--secret-ref",
                "KEY=nowhere",
            ],
            104,
            "no secret of the name that \"KEY\" refers to",
        ),
    ];
    for (args, code, said) in wrong {
        let told = story.motu(&[&["template", "create"][..], args].concat());
        assert_eq!(told.code, *code, "{args:?}: {told}");
        assert!(told.stderr.contains(said), "{args:?}: {told}");
    }
    let listed = value(&story.motu(&["template", "list", "--json"]));
    assert_eq!(listed["count"], 0, "{listed}");
    let many = vec!["--setup"; 130].into_iter().enumerate();
    let many: Vec<&str> = many.map(|(at, flag)| [flag, "true"][at % 2]).collect();
    let many = story.motu(&[&["template", "create", "t", "--from", "busybox"][..], &many].concat());
    assert_eq!(many.code, 106, "{many}");
    assert!(many.stderr.contains("template_setup_commands"), "{many}");
}

#[test]
fn a_template_that_is_not_there_is_told_with_those_that_are_near() {
    let Some(story) = world() else { return };
    template(&story, &["python-dev", "--from", "busybox"]);
    for args in [
        &["run", "--template", "pyton-dev", "--", "true"][..],
        &["create", "--template", "pyton-dev"],
        &["workspace", "create", "--template", "pyton-dev"],
        &["template", "show", "pyton-dev"],
        &["template", "build", "pyton-dev"],
        &["template", "rm", "pyton-dev"],
    ] {
        let told = story.motu(args);
        assert_eq!(told.code, 104, "{args:?}: {told}");
        assert!(told.stderr.contains("python-dev"), "{args:?}: {told}");
    }
}
