//! Every program that the sources run by name is on the list that `tools/setup` installs from.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The text before the name of a program of the host.
const CALLS: [&str; 9] = [
    "Command::new(",
    "needs::command(",
    "needs::find(",
    "tool::command(",
    "tool::find(",
    "Program::find(",
    "process::require(",
    ".contained(",
    ".mapped(",
];
/// Our own programs, programs that tests create, and names that must not exist.
const OWN: [&str; 4] = [
    "/proc/self/exe",
    "motu",
    "no-such-program",
    "no-such-runtime",
];
/// Tests that run programs which `tools/setup` installs in `target/clients`.
const CLIENTS: [&str; 5] = [
    "grpc.rs",
    "mcp_clients.rs",
    "network.rs",
    "python.rs",
    "service.rs",
];

/// A test service that runs whatever its clients request.
const SERVERS: [&str; 1] = ["e2b/process.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The arguments of all calls in a text, each from its first character on.
fn arguments<'t>(text: &'t str, call: &str) -> impl Iterator<Item = (usize, &'t str)> {
    text.match_indices(call).map(move |(at, found)| {
        let line = text[..at].matches('\n').count() + 1;
        (line, text[at + found.len()..].trim_start())
    })
}

/// The text of a plain string literal at the start of `text`.
fn literal(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.split('"').next()
}

/// A variable's name at the start of `text`, if the argument is nothing else.
fn variable(text: &str) -> Option<&str> {
    let argument = text.split(')').next()?.trim_start_matches('&');
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    (!argument.is_empty() && argument.chars().all(plain)).then_some(argument)
}

/// Whether this is a test, in which a variable could hide an unlisted name.
fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let directory = path
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "testkit");
    let told = SERVERS.iter().any(|server| path.ends_with(server));
    (directory && !told && !CLIENTS.iter().any(|client| name == *client))
        || path
            .file_stem()
            .is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
}

#[test]
fn every_program_that_is_called_by_name_is_listed() {
    let listed: BTreeSet<&str> = motu_needs::list().map(|need| need.name).collect();
    let mut files = Vec::new();
    for directory in ["crates", "benches", "fuzz"] {
        sources(&root().join(directory), &mut files);
    }
    assert!(files.len() > 300, "the sources are where they were");
    let this = Path::new("needs/tests/sources.rs");
    let mut wrong = Vec::new();
    let mut calls = 0;
    for file in files.iter().filter(|file| !file.ends_with(this)) {
        let text = std::fs::read_to_string(file).unwrap();
        let mut say = |line: usize, what: String| {
            wrong.push(format!("{}:{line}: {what}", file.display()));
        };
        for call in CALLS {
            for (line, argument) in arguments(&text, call) {
                if let Some(name) = literal(argument) {
                    calls += 1;
                    let base = name.rsplit('/').next().unwrap_or(name);
                    if !OWN.contains(&name) && !listed.contains(base) {
                        say(line, format!("{name} is not in tools/needs"));
                    }
                } else if call == "Command::new("
                    && is_test(file)
                    && let Some(name) = variable(argument)
                {
                    say(
                        line,
                        format!("`{name}` hides which program is meant: motu_needs::command"),
                    );
                }
            }
        }
    }
    assert!(calls > 50, "only {calls} calls were found");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_tools_read_the_same_list() {
    let needed = |purpose: &str| {
        let output = std::process::Command::new(root().join("tools/needed"))
            .arg(purpose)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let (demo, test) = (needed("demo"), needed("test"));
    assert!(demo.contains("mmdebstrap mmdebstrap demo\n"), "{demo}");
    assert!(!demo.contains("busybox"), "{demo}");
    for line in demo.lines().chain(["busybox busybox-static test"]) {
        assert!(test.lines().any(|other| other == line), "{line}");
    }
}
