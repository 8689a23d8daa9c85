//! Hints in the words of the command line.

use crate::verbs;
use motu_core::hint::{Field, Verb, Wording};
use serde_json::Value;

/// Fields of requests whose flag has another name, or that are no flag.
const SPELLED: &[(&str, &str)] = &[
    ("command", "-- COMMAND"),
    ("environment", "ENVIRONMENT"),
    ("hosts", "--host"),
    ("secrets", "--secret"),
    ("sandbox_id", "--sandbox"),
];

/// Commands and flags: `` `motu start sb-a` ``, `--runtime qemu`.
#[derive(Clone, Copy, Debug)]
pub struct Commands;

/// How a person writes a field.
pub fn flag(field: &str) -> String {
    match SPELLED.iter().find(|(name, _)| *name == field) {
        Some((_, spelled)) => spelled.to_string(),
        None => format!("--{}", field.replace('_', "-")),
    }
}

/// A value as an argument.
fn word(value: &Value) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@+=%".contains(c);
    match value {
        Value::String(text) if !text.is_empty() && text.chars().all(plain) => text.clone(),
        Value::String(text) => format!("'{}'", text.replace('\'', r"'\''")),
        Value::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn with_value(flag: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => flag.to_string(),
        value => format!("{flag} {}", word(value)),
    }
}

/// A destination is one argument here.
fn destination(verb: &Verb) -> Option<String> {
    let (host, port) = (verb.arguments.get("host")?, verb.arguments.get("port")?);
    Some(format!("{}:{}", word(host), word(port)))
}

/// The arguments of a command: what a verb is about in its order, then flags. What is not known of
/// the former stands in capitals.
fn arguments(verb: &Verb) -> Vec<String> {
    let known = motu_core::verb::all().find(|known| known.name == verb.verb);
    let parts: Vec<&str> = known
        .map(|known| known.parts().collect())
        .unwrap_or_default();
    let part = |part: &&str| match verb.arguments.get(*part) {
        Some(value) => word(value),
        None => part.to_uppercase(),
    };
    let mut all: Vec<String> = parts.iter().map(part).collect();
    let to = destination(verb);
    for (name, value) in &verb.arguments {
        let said = parts.contains(&name.as_str());
        let joined = to.is_some() && matches!(name.as_str(), "host" | "port");
        if !said && !joined {
            all.push(with_value(&flag(name), value));
        }
    }
    all.extend(to);
    all
}

impl Wording for Commands {
    fn verb(&self, verb: &Verb) -> String {
        let Some(command) = verbs::command(&verb.verb) else {
            return format!("`{}`", verb.verb);
        };
        let mut words = vec!["motu".to_string(), command.to_string()];
        // A verb without arguments is shown alone: `motu ps`, `motu policy show`.
        if !verb.arguments.is_empty() {
            words.extend(arguments(verb));
        }
        format!("`{}`", words.join(" "))
    }

    fn field(&self, field: &Field) -> String {
        match &field.value {
            Some(value) => with_value(&flag(&field.field), value),
            None => flag(&field.field),
        }
    }

    fn host(&self, command: &str) -> String {
        format!("`{command}`")
    }

    fn setting(&self, key: &str) -> String {
        format!("{key} in config.toml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::hint::{field, host, setting, verb};
    use motu_core::{Error, hint};

    #[test]
    fn a_verb_is_a_command() {
        let said = |verb: Verb| Commands.verb(&verb);
        assert_eq!(said(verb("list_sandboxes")), "`motu ps`");
        assert_eq!(
            said(verb("pull_environment").with("name", "debian:12")),
            "`motu env pull debian:12`"
        );
        assert_eq!(
            said(verb("stop_service").with("id", "ws")),
            "`motu workspace service stop ws NAME`"
        );
        let bind = verb("set_secret").with("name", "key");
        assert_eq!(
            said(bind.with("hosts", vec!["api.example.com"])),
            "`motu secret set key --host api.example.com`"
        );
        let explain = verb("explain_policy")
            .with("name", "none")
            .with("host", "a.b");
        assert_eq!(
            said(explain.with("port", 443)),
            "`motu policy explain none a.b:443`"
        );
        assert_eq!(
            said(verb("stop_workspace").with("id", "it's; rm")),
            r"`motu workspace stop 'it'\''s; rm'`"
        );
    }

    #[test]
    fn a_field_is_a_flag() {
        let error = Error::invalid("no").hint(hint![
            "leave ",
            field("accel"),
            " out, or choose ",
            field("runtime").is("qemu"),
            " and ",
            field("keep").is(true).of("create_sandbox"),
            "; ",
            host("ulimit -n 1"),
            ", ",
            setting("max_sandboxes"),
        ]);
        assert_eq!(
            error.worded(&Commands).hint.as_deref(),
            Some(
                "leave --accel out, or choose --runtime qemu and --keep; `ulimit -n 1`, max_sandboxes \
                 in config.toml"
            )
        );
    }
}
