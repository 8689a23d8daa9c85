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
