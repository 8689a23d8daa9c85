//! Hints are structured data in the engine, and each interface (CLI, REST, MCP) has its own wording
//! for them.

mod sources;

use motu_cli::{verbs, wording};
use motu_core::hint::{Field, Verb, Wording, field, verb};
use motu_core::verb::{self as list, Info};
use motu_mcp::{Profile, Tools};
use serde_json::Value;
use sources::{Source, Step, is_word, literals, steps};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The steps that the sources construct, with their file.
fn written(function: &str) -> Vec<(String, Step)> {
    let makes =
        |source: &Source| source.text.contains("hint::") && source.path != "core/src/hint.rs";
    let found = sources::all().into_iter().filter(makes).flat_map(|source| {
        let steps = steps(&source.text, function).into_iter();
        steps.map(move |step| (source.path.clone(), step))
    });
    found.collect()
}

fn info(name: &str) -> Option<&'static Info> {
    list::all().find(|info| info.name == name)
}

/// The field names of each call's request: in its path, its query and its body.
fn request_fields() -> BTreeMap<String, BTreeSet<String>> {
    let document = motu_server::openapi();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let paths = document["paths"].as_object().expect("paths");
    for entry in paths.values().flat_map(|path| path.as_object()).flatten() {
        let Some(name) = entry.1["operationId"].as_str() else {
            continue;
        };
        let fields = all.entry(name.to_string()).or_default();
        for one in entry.1["parameters"].as_array().into_iter().flatten() {
            fields.extend(one["name"].as_str().map(str::to_string));
        }
        let content = entry.1["requestBody"]["content"].as_object();
        for body in content.into_iter().flatten() {
            gather(&document, &body.1["schema"], fields);
        }
    }
    all
}

/// The field names of a schema and of the schemas it refers to; nested requests count too.
fn gather(document: &Value, schema: &Value, into: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return gather(document, &document["components"]["schemas"][name], into);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if into.insert(name.clone()) {
            gather(document, inner, into);
        }
    }
    for word in ["allOf", "oneOf", "anyOf"] {
        for part in schema[word].as_array().into_iter().flatten() {
            gather(document, part, into);
        }
    }
}

/// The reference of the command line.
static PAGE: LazyLock<String> = LazyLock::new(motu_cli::docs::cli);

/// The flags of one command, or of all.
fn flags(command: Option<&str>) -> BTreeSet<String> {
    let heading = command.map(|command| format!("motu {command}\n"));
    let sections = PAGE.split("\n## ").filter(|section| {
        let wanted = heading.as_deref();
        wanted.is_none_or(|heading| section.starts_with(heading))
    });
    let words = sections.flat_map(|section| section.split(|c: char| !is_word(c) && c != '-'));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(str::to_string)
        .collect()
}

fn is_flag_of(field: &str, command: Option<&str>) -> bool {
    let spelled = wording::flag(field);
    !spelled.starts_with("--") || spelled.starts_with("-- ") || flags(command).contains(&spelled)
}

/// The wording of another interface must have nothing of the command line.
fn assert_not_the_command_lines(said: &str) {
    assert!(!said.contains("motu ") && !said.contains("--"), "{said}");
}

#[test]
fn every_verb_in_a_hint_has_words_on_every_face() {
    let requests = request_fields();
    let found = written("verb");
    assert!(found.len() > 50, "only {} hints name a verb", found.len());
    for (file, step) in found {
        let name = &step.name;
        let info = info(name).unwrap_or_else(|| panic!("{file}: there is no verb {name}"));
        let command = verbs::command(name);
        let command = command.unwrap_or_else(|| panic!("{file}: no command does {name}"));
        let mut said = verb(name);
        for (_, argument) in step.then.iter().filter(|(method, _)| method == "with") {
            let argument = argument.as_deref().expect("arguments have names");
            assert!(
                requests[name].contains(argument),
                "{file}: {name} has no {argument}"
            );
            let part = info.parts().any(|part| part == argument);
            let joined = name == "explain_policy";
            assert!(
                part || joined || is_flag_of(argument, Some(command)),
                "{file}: `motu {command}` has no flag for {argument}"
            );
            said = said.with(argument, "it");
        }
        assert_everywhere(&said, command);
    }
}

fn assert_everywhere(said: &Verb, command: &str) {
    let person = wording::Commands.verb(said);
    assert!(person.starts_with(&format!("`motu {command}")), "{person}");
    let caller = motu_server::Routes.verb(said);
    assert!(caller.contains(" /v1/"), "{caller}");
    assert_not_the_command_lines(&caller);
    for profile in Profile::ALL {
        let model = Tools(profile).verb(said);
        assert_not_the_command_lines(&model);
        // A tool is given every known argument.
        let tool = !model.contains("no tool here does it");
        let values = model.matches("\"it\"").count();
        assert!(!tool || values == said.arguments.len(), "{model}");
    }
}

#[test]
fn every_field_in_a_hint_is_one_and_has_a_flag() {
    let requests = request_fields();
    let found = written("field");
    assert!(found.len() > 20, "only {} hints name a field", found.len());
    for (file, step) in found {
        let of = step.then.iter().find(|(method, _)| method == "of");
        let of = of.and_then(|(_, verb)| verb.clone());
        let known = match &of {
            Some(verb) => requests[verb].contains(&step.name),
            None => requests.values().any(|fields| fields.contains(&step.name)),
        };
        assert!(known, "{file}: no request has a field {}", step.name);
        let command = of.as_deref().and_then(verbs::command);
        assert!(
            is_flag_of(&step.name, command),
            "{file}: {} has no flag",
            step.name
        );
        let said = Field {
            verb: of,
            ..field(&step.name)
        };
        assert_not_the_command_lines(&motu_server::Routes.field(&said));
        for profile in Profile::ALL {
            assert_not_the_command_lines(&Tools(profile).field(&said));
        }
    }
}

/// Texts that look like the command line but are not hints, and why.
const NO_HINTS: &[(&str, &str)] = &[
    ("engine/src/doctor.rs", "a fix is for the shell of the host"),
    (
        "runtimes/container/src/check.rs",
        "a fix is for the shell of the host",
    ),
    (
        "runtimes/docker/src/check.rs",
        "a fix is for the shell of the host",
    ),
    (
        "runtimes/gvisor/src/check.rs",
        "a fix is for the shell of the host",
    ),
    (
        "runtimes/http/src/check.rs",
        "a fix is for the shell of the host",
    ),
    ("dockerfile/src/flags.rs", "flags of RUN in a Dockerfile"),
    (
        "core/src/limits.rs",
        "the documentation of a limit says where it is met",
    ),
    ("environments/src/build/debian.rs", "flags of useradd"),
    (
        "environments/src/export.rs",
        "who made a layer, in the history of an image",
    ),
    ("audit/src/key.rs", "the first line of a file"),
    ("audit/src/record.rs", "what a signature begins with"),
    (
        "mcp/src/http.rs",
        "the operator's own command line, and an answer to who has no token of it",
    ),
    ("provider/src/lib.rs", "the operator's own command line"),
    ("runtimes/docker/src/api/error.rs", "flags of systemctl"),
];

/// Whether a text contains one of our commands, or one of their flags between other words.
fn is_of_the_command_line(text: &str, commands: &[String], flags: &BTreeSet<String>) -> bool {
    let named = text.match_indices("motu ").any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = &text[at + 5..];
        let word: String = after.chars().take_while(|c| is_word(*c)).collect();
        !before.is_some_and(is_word) && (commands.contains(&word) || after.starts_with("--"))
    });
    let mut words = text.split(|c: char| !is_word(c) && c != '-');
    named || (text.contains(' ') && words.any(|word| flags.contains(word)))
}

#[test]
fn below_the_command_line_no_hint_has_its_words() {
    let headings = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("## motu "));
    let commands: Vec<String> = headings
        .filter(|command| !command.contains(' '))
        .map(str::to_string)
        .collect();
    let flags = flags(None);
    assert!(commands.len() > 20 && flags.len() > 50);
    let mut unused: BTreeSet<&str> = NO_HINTS.iter().map(|(path, _)| *path).collect();
    let mut wrong = Vec::new();
    for source in sources::all() {
        if source.path.starts_with("cli/") || source.path.starts_with("guest/") {
            continue;
        }
        for one in literals(&source.text) {
            // Texts meant for the host's shell are marked so.
            if one.before != "host" && is_of_the_command_line(&one.text, &commands, &flags) {
                match NO_HINTS.iter().any(|(path, _)| *path == source.path) {
                    true => drop(unused.remove(source.path.as_str())),
                    false => wrong.push(format!("{}: {:?}", source.path, one.text)),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "name a verb, a field or host(…) instead (docs/contributing.md):\n{}",
        wrong.join("\n")
    );
    assert!(unused.is_empty(), "these need no exception: {unused:?}");
}
