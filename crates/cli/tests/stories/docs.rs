//! The reference pages in `docs/` match the code.

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

/// The value of a constant in a crate that does not use the table: `16 << 30`, `64 * 1024`.
fn constant(file: &str, name: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = std::fs::read_to_string(path).expect("sources can be read");
    let lines = text.lines().find_map(|line| {
        let (_, rest) = line.split_once(&format!("const {name}: "))?;
        rest.split_once("= ")?.1.strip_suffix(';')
    });
    let value = lines.unwrap_or_else(|| panic!("{file} has no {name}"));
    let number = |text: &str| -> u64 {
        let digits = text.trim().replace('_', "");
        digits.parse().unwrap_or_else(|_| panic!("{file}: {value}"))
    };
    match value.split_once("<<") {
        Some((left, right)) => number(left) << number(right),
        None => value.split('*').map(number).product(),
    }
}

/// The guest does not link the table; its constants must be the same.
#[test]
fn the_guest_keeps_the_limits_of_the_table() {
    use motu_core::limits::*;
    let same = [
        ("guest/src/files/list.rs", "MAX_PAGE", LIST_ENTRIES.max),
        (
            "guest/src/running/ring.rs",
            "DEFAULT_BYTES",
            OUTPUT_RING_BYTES.default,
        ),
        (
            "guest/src/running/ring.rs",
            "MAX_BYTES",
            OUTPUT_RING_BYTES.max,
        ),
        (
            "guest/src/running/ring.rs",
            "MIN_BYTES",
            OUTPUT_RING_BYTES.min,
        ),
        ("guest/src/workspace/inside.rs", "MAX_PATH", PATH_BYTES.max),
        (
            "guest/src/files/unpack/limits.rs",
            "DEFAULT_MAX_BYTES",
            EXPORT_BYTES.default,
        ),
        (
            "guest/src/files/unpack/limits.rs",
            "DEFAULT_MAX_ENTRIES",
            SEED_ENTRIES.max,
        ),
    ];
    for (file, name, limit) in same {
        assert_eq!(constant(file, name), limit, "{file}: {name}");
    }
}

/// Flags whose default is the default of a limit with another name.
const ALIASES: &[(&str, &str, &str)] = &[
    ("workspace create", "ttl-seconds", "workspace_ttl_seconds"),
    ("workspace file read", "max-bytes", "file_text_bytes"),
    ("workspace disk read", "max-bytes", "file_text_bytes"),
    ("workspace diff", "max-bytes", "diff_bytes"),
    ("workspace snapshot diff", "max-bytes", "diff_bytes"),
    ("workspace export", "max-bytes", "export_bytes"),
    ("workspace disk export", "max-bytes", "export_bytes"),
    ("workspace exec", "timeout", "timeout_seconds"),
    ("workspace service logs", "tail-lines", "service_tail_lines"),
    ("workspace shell read", "max-chars", "shell_chars"),
    ("workspace shell read", "wait-for-idle-ms", "shell_idle_ms"),
    ("env build", "timeout", "build_step_seconds"),
    ("run", "timeout", "timeout_seconds"),
    ("exec", "timeout", "timeout_seconds"),
];

/// `30`, `16 GiB`, `262144 on a terminal`.
fn number(text: &str) -> Option<u64> {
    let mut words = text.split(' ');
    let number: u64 = words.next()?.parse().ok()?;
    Some(match words.next() {
        Some("GiB") => number << 30,
        _ => number,
    })
}

/// Defaults of flags in the help match the table.
#[test]
fn help_has_the_defaults_of_the_table() {
    let page = motu_cli::docs::cli();
    let mut compared = 0;
    for section in page.split("\n## motu ").skip(1) {
        let command = section.lines().next().unwrap_or_default();
        // A provider's defaults for its clients differ from motu's own.
        if command == "serve" {
            continue;
        }
        for part in section.split("\n      --").skip(1) {
            let flag = part.split([' ', '\n']).next().unwrap_or_default();
            let alias = ALIASES
                .iter()
                .find(|(of, named, _)| *of == command && *named == flag);
            let name = alias.map_or(flag.replace('-', "_"), |(_, _, limit)| limit.to_string());
            let name = match command.starts_with("terminal ") {
                true if flag == "max-output-bytes" => "terminal_output_bytes".to_string(),
                true if flag == "quiescence-ms" => "terminal_quiescence_ms".to_string(),
                true if flag == "timeout" => "terminal_timeout_seconds".to_string(),
                _ => name,
            };
            let limit = motu_core::limits::TABLE
                .iter()
                .find(|limit| limit.name == name);
            // Help is wrapped, so a number may be alone on its line.
            let help = part.split("\n\n  ").next().unwrap_or_default();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            let said = help.split_once("[default: ").map(|(_, rest)| rest);
            let said = said.and_then(|rest| number(rest.split(']').next()?));
            if let (Some(limit), Some(said)) = (limit, said) {
                assert_eq!(said, limit.default, "motu {command} --{flag}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 20, "only {compared} defaults were compared");
}

/// Every limit of the table must be used somewhere.
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

fn root() -> std::path::PathBuf {
    motu_testkit::root()
}

/// The names of what is in a directory, sorted.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("sources can be read");
    let names = entries.map(|entry| entry.expect("sources can be read").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into()).collect();
    names.sort();
    names
}

#[test]
fn every_crate_is_in_the_table_of_the_readme() {
    let page = std::fs::read_to_string(root().join("README.md")).expect("pages can be read");
    let rows: String = page
        .lines()
        .filter(|line| line.starts_with("| `crates/"))
        .collect();
    // One row stands for all runtimes.
    let wanted = names_in(&root().join("crates")).into_iter();
    let wanted: Vec<String> = wanted
        .map(|name| match name.as_str() {
            "runtimes" => "`crates/runtimes/*`".to_string(),
            name => format!("`crates/{name}`"),
        })
        .collect();
    for name in &wanted {
        assert!(rows.contains(name), "README.md has no row for {name}");
    }
    let named = rows.matches("`crates/").count();
    assert_eq!(named, wanted.len(), "README.md names crates that are gone");
}

/// The names of checks in a source file: the first word given to what makes a check, or `name`
/// where the check is built in place.
fn checks_in(source: &str) -> Vec<String> {
    // Tests make checks of their own.
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let makers = ["check(", "good(", "bad(", "failed(", "program("];
    let places = ["let name = ", "const NAME: &str = ", " name: "];
    let mut names = Vec::new();
    for begin in makers.iter().chain(&places) {
        for rest in source.split(begin).skip(1) {
            let name = rest.trim_start().strip_prefix('"');
            names.extend(name.and_then(|name| Some(name.split_once('"')?.0.to_string())));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The lines of the tables below a heading of docs/troubleshooting.md that names the runtime.
fn told_of(page: &str, runtime: &str) -> String {
    let sections = page.split("\n### ").skip(1);
    let named = sections.filter(|section| {
        let heading = section.lines().next().unwrap_or_default();
        heading.contains(&format!("`{runtime}`"))
    });
    let text: String = named.collect();
    assert!(!text.is_empty(), "no heading names the runtime {runtime}");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split(" | ").next().unwrap_or_default())
        .collect()
}

#[test]
fn every_line_of_doctor_is_told_in_troubleshooting() {
    let page = root().join("docs/troubleshooting.md");
    let page = std::fs::read_to_string(page).expect("pages can be read");
    let mut compared = 0;
    let mut compare = |runtime: &str, file: &Path| {
        let Ok(source) = std::fs::read_to_string(file) else {
            return;
        };
        let told = told_of(&page, runtime);
        for name in checks_in(&source) {
            let row = format!("`{name}`");
            assert!(told.contains(&row), "{runtime}: nothing is told of {row}");
            compared += 1;
        }
    };
    let runtimes = root().join("crates/runtimes");
    // `fake` is for tests, and `local` is what runtimes share.
    let real = |name: &String| !["fake", "local"].contains(&name.as_str());
    for runtime in names_in(&runtimes).into_iter().filter(real) {
        let place = match runtime.as_str() {
            "proot" => "src/tool.rs",
            "host" => "src/lib.rs",
            _ => "src/check.rs",
        };
        compare(&runtime, &runtimes.join(&runtime).join(place));
    }
    compare("host", &root().join("crates/engine/src/doctor.rs"));
    assert!(compared >= 35, "only {compared} lines were compared");
}
