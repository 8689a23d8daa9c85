//! Reference pages generated from the code they describe.

use crate::cli::Cli;
use clap::CommandFactory;
use motu_core::{ErrorKind, limits};
use std::fmt::Write as _;

const GENERATED: &str = "<!-- Generated; `MOTU_UPDATE=1 cargo test -p motu --test stories docs::` writes it again. -->\n";

/// The reference of the command line.
pub fn cli() -> String {
    let mut text = format!("# The command line\n\n{GENERATED}");
    let mut root = Cli::command().term_width(100);
    root.build();
    section(&mut text, &mut root, "motu");
    text
}

fn section(text: &mut String, command: &mut clap::Command, name: &str) {
    let help = command.render_long_help().to_string();
    let help: String = help
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    for inner in command.get_subcommands_mut() {
        if inner.get_name() != "help" && !inner.is_hide_set() {
            let name = format!("{name} {}", inner.get_name());
            section(text, inner, &name);
        }
    }
}

/// The exit codes.
pub fn exit_codes() -> String {
    let mut text = format!(
        "# Exit codes\n\n{GENERATED}\n\
         `motu run`, `motu exec` and `motu workspace exec` exit with the code of the command they ran, or\n\
         with 128 plus the signal that ended it. 124 means that its time was up. 141 means that nobody read the output any\n\
         more. `motu terminal run` does the same; 123 means that the command has not ended and asks for something\n\
         first. Everything else below is motu's own and the `kind` of the error, which `--json` prints.\n\n\
         | code | kind | HTTP status |\n|---|---|---|\n| 0 | success | 200 |\n"
    );
    for kind in ErrorKind::ALL {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} |",
            kind.exit_code(),
            kind.as_str(),
            kind.http_status()
        );
    }
    text.push_str("\nArguments that cannot be understood are `invalid`.\n");
    text
}

/// The limits.
pub fn limits() -> String {
    let mut text = format!(
        "# Limits\n\n{GENERATED}\n\
         Every call is bounded. A value out of bounds is refused, never adjusted.\n\n\
         | limit | default | least | most | unit | what it bounds |\n|---|---|---|---|---|---|\n"
    );
    for limit in limits::TABLE {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            limit.name, limit.default, limit.min, limit.max, limit.unit, limit.meaning
        );
    }
    text
}
