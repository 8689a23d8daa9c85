//! Every line of the list is one that `tools/setup` understands, with a version where there is one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::path::Path;

const PURPOSES: [&str; 8] = [
    "demo", "test", "bench", "dist", "arm64", "quick", "fuzz", "mutants",
];

fn read(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(name),
    )
    .unwrap()
}

fn lines(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "@/_.+-:[]".contains(c))
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
}

/// Whether this is a name and a pinned version, `sign` between them.
fn pinned(package: &str, sign: &str) -> bool {
    package
        .rsplit_once(sign)
        .is_some_and(|(name, version)| is_name(name) && is_version(version))
}

/// Whether the package is what its registry calls one.
fn known(need: &str, package: &str) -> bool {
    let place = need.starts_with("target/");
    match package.split_once(':') {
        Some(("crate", one)) => !place && pinned(one, "="),
        Some(("go", one)) => !place && pinned(one, "@v"),
        Some(("pypi", all)) => place && all.split(',').all(|one| pinned(one, "==")),
        Some(("npm", all)) => place && all.split(',').all(|one| pinned(one, "@")),
        Some(_) => false,
        None => {
            let (name, at_least) = package.split_once(">=").unwrap_or((package, "0"));
            !place && is_name(name) && !name.contains(['=', '@']) && is_version(at_least)
        }
    }
}

/// What is wrong with a line.
fn wrong(line: &str) -> Option<&'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [need, package, purposes] = words[..] else {
        return Some("three columns: program, where it is from, purposes");
    };
    if !purposes.split(',').all(|word| PURPOSES.contains(&word)) {
        return Some("a purpose is unknown");
    }
    (!known(need, package)).then_some("a registry is unknown, or a version is missing")
}

#[test]
fn every_line_is_understood() {
    let list = read("tools/needs");
    for line in lines(&list) {
        assert_eq!(wrong(line), None, "{line}");
    }
    for registry in ["crate", "pypi", "npm"] {
        let of = format!(" {registry}:");
        assert!(list.contains(&of), "nothing of {registry}");
    }
}

#[test]
fn a_line_of_no_registry_or_without_a_version_is_refused() {
    for line in [
        "busybox busybox-static test",
        "cargo ->=1.94 demo",
        "tool crate:tool=1.2.3 test,fuzz",
        "tool go:example.org/tool@v1.2.3 test",
        "target/clients/one pypi:one[extra]==1.0,two==2 test",
        "target/clients/one npm:alias@npm:@scope/name@1.0.0-alpha.1,two@2.0 test",
    ] {
        assert_eq!(wrong(line), None, "{line}");
    }
    for line in [
        "busybox busybox-static",
        "busybox busybox-static tests",
        "busybox busybox-static>= test",
        "busybox busybox=1.35 test",
        "tool crates:tool=1.2.3 test",
        "tool crate:tool test",
        "tool crate:tool= test",
        "tool crate:tool=latest test",
        "tool crate:=1.2.3 test",
        "tool go:example.org/tool@latest test",
        "tool pypi:tool==1.0 test",
        "target/clients/one pypi:one==1.0,two test",
        "target/clients/one pypi:one>=1.0 test",
        "target/clients/one npm:@scope/name test",
        "target/clients/one npm:name@next test",
        "target/clients/one one test",
    ] {
        assert!(wrong(line).is_some(), "{line}");
    }
}

#[test]
fn the_toolchain_is_that_of_the_workspace() {
    let rust = concat!("->=", env!("CARGO_PKG_RUST_VERSION"));
    for need in motu_needs::list().filter(|need| ["cargo", "rustc"].contains(&need.name)) {
        assert_eq!(need.package, rust, "{}", need.name);
    }
}

#[test]
fn every_place_of_a_registry_is_used() {
    let users: String = [
        "benches/src/service/sdk.rs",
        "crates/cli/tests/machines/border/aws.rs",
        "crates/cli/tests/stories/grpc.rs",
        "crates/cli/tests/stories/mcp_clients.rs",
        "crates/cli/tests/stories/python.rs",
        "crates/cli/tests/stories/service.rs",
        "crates/mcp/src/conformance/mod.rs",
        "tools/setup.d/pypi",
    ]
    .map(read)
    .concat();
    let places: BTreeSet<_> = motu_needs::list()
        .filter_map(|need| need.name.strip_prefix("target/clients/"))
        .collect();
    assert!(!places.is_empty());
    for place in places {
        let named = [
            format!("\"{place}\""),
            format!("\"{place}/"),
            format!("/{place}"),
        ];
        assert!(named.iter().any(|name| users.contains(name)), "{place}");
    }
}
