//! Every call is complete: a path, an entry in the OpenAPI document, a permission, a command.

use motu_cli::verbs::{COMMANDS, WITHOUT};
use motu_core::verb::{self, Info, Shape};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

#[test]
fn every_verb_has_a_command_or_a_reason() {
    let page = motu_cli::docs::cli();
    let commands: HashSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## motu "))
        .collect();
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (verb, command) in COMMANDS {
        assert!(
            commands.contains(command),
            "{verb}: there is no `motu {command}`"
        );
        assert!(
            known.insert(verb, command).is_none(),
            "{verb} stands here twice"
        );
    }
    for (verb, reason) in WITHOUT {
        assert!(
            known.insert(verb, reason).is_none(),
            "{verb} stands here twice"
        );
    }
    for verb in verb::all() {
        let said = known.remove(verb.name);
        assert!(
            said.is_some(),
            "{} has neither a command nor a reason",
            verb.name
        );
    }
    assert!(known.is_empty(), "these are no verbs: {known:?}");
}

/// The entry of a call in the OpenAPI document.
fn entry<'a>(document: &'a Value, verb: &Info) -> &'a Value {
    match verb.shape {
        Shape::Open => &document["paths"][format!("{}/ws", verb.path)]["get"],
        _ => {
            let method = verb.method.as_str().to_ascii_lowercase();
            &document["paths"][verb.path][method]
        }
    }
}

#[test]
fn every_verb_has_an_address_an_entry_and_a_permission() {
    let document = motu_server::openapi();
    let mut permissions = HashSet::new();
    for verb in verb::all() {
        let entry = entry(&document, verb);
        assert!(entry.is_object(), "{} is not in the document", verb.name);
        let summary = verb.about.lines().next().unwrap_or_default().trim();
        if verb.shape != Shape::Open {
            assert_eq!(entry["summary"], summary, "{}", verb.name);
            assert_eq!(entry["operationId"], verb.name);
        }
        assert!(permissions.insert(verb.permission()), "{}", verb.name);
    }
}
