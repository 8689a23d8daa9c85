//! The reference pages in `docs/` say what the code says.

use std::path::Path;

fn check(name: &str, current: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("MOTU_UPDATE").is_some() {
        std::fs::write(&path, current).expect("docs can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == current,
        "docs/{name} is out of date; run with MOTU_UPDATE=1"
    );
}

#[test]
fn the_command_line() {
    check("cli.md", &motu_cli::docs::cli());
}

#[test]
fn exit_codes() {
    check("exit-codes.md", &motu_cli::docs::exit_codes());
}

#[test]
fn limits() {
    check("limits.md", &motu_cli::docs::limits());
}

/// A limit nobody looks at is a promise nobody keeps.
#[test]
fn every_limit_is_kept_somewhere() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = String::new();
    let mut waiting = vec![crates];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).expect("sources can be read") {
            let path = entry.expect("sources can be read").path();
            let rust = path.extension().is_some_and(|end| end == "rs");
            if path.is_dir() {
                waiting.push(path);
            } else if rust && !path.ends_with("core/src/limits.rs") {
                sources += &std::fs::read_to_string(path).expect("sources are text");
            }
        }
    }
    for limit in motu_core::limits::TABLE {
        let constant = limit.name.to_ascii_uppercase();
        let used = sources.contains(&format!("limits::{constant}"));
        assert!(used, "{} is in the table, and nothing keeps it", limit.name);
    }
}
