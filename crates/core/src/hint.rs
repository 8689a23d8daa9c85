//! What to do next, as data.
//!
//! Who makes an error does not know who will read it: a person at a shell, a model with tools, a
//! program that speaks HTTP. So a hint names verbs, fields, settings and commands of the host, with
//! words between them, and each face says them in its own way ([`Wording`]).
//!
//! ```
//! use motu_core::hint::{field, verb};
//! use motu_core::{Error, hint};
//!
//! let error = Error::not_found("there is no sandbox sb-a")
//!     .hint(hint![verb("list_sandboxes"), " lists them"]);
//! assert_eq!(error.hint.as_deref(), Some("`list_sandboxes` lists them"));
//! let error = Error::invalid("it has no processor of its own")
//!     .hint(hint!["leave ", field("accel"), " out, or choose ", field("runtime").is("qemu")]);
//! assert_eq!(error.next.len(), 4);
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One piece of a hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Next {
    /// Words around the other steps.
    Words { text: String },
    /// A verb to call.
    Verb(Verb),
    /// A field of a request to give, to change or to leave out.
    Field(Field),
    /// A command for the shell of the host, where only its operator is.
    Host { command: String },
    /// A key of the daemon's config.toml.
    Setting { key: String },
    /// A step of a newer motu; `hint` says it in words.
    #[serde(other)]
    Unknown,
}

/// A verb to call, and what is known of its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = NextVerb)]
pub struct Verb {
    /// Its name: the `operationId` of the API.
    pub verb: String,
    /// Parts of its address and fields of its request, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, Value>,
}

/// A field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = NextField)]
pub struct Field {
    pub field: String,
    /// What would help, if it is one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The verb it belongs to, if that is not the one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
}

/// A verb by its name.
pub fn verb(name: &str) -> Verb {
    Verb {
        verb: name.to_string(),
        arguments: BTreeMap::new(),
    }
}

/// A field of the request that failed.
pub fn field(name: &str) -> Field {
    Field {
        field: name.to_string(),
        value: None,
        verb: None,
    }
}

/// A command for the shell of the host.
pub fn host(command: impl Into<String>) -> Next {
    Next::Host {
        command: command.into(),
    }
}

/// A key of config.toml.
pub fn setting(key: &str) -> Next {
    Next::Setting {
        key: key.to_string(),
    }
}

impl Verb {
    /// With an argument: a part of its address, or a field of its request.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Verb {
        self.arguments.insert(name.to_string(), value.into());
        self
    }
}

impl Field {
    #[must_use]
    pub fn is(mut self, value: impl Into<Value>) -> Field {
        self.value = Some(value.into());
        self
    }

    /// Of another verb than the one that failed.
    #[must_use]
    pub fn of(mut self, verb: &str) -> Field {
        self.verb = Some(verb.to_string());
        self
    }
}

/// A whole hint: its pieces in the order they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint(Vec<Next>);

/// A hint of several pieces: words, and what [`verb`], [`field`], [`host`] and [`setting`] make.
#[macro_export]
macro_rules! hint {
    ($($piece:expr),+ $(,)?) => {
        $crate::hint::Hint::of([$($crate::hint::Next::from($piece)),+])
    };
}

impl Hint {
    pub fn of(pieces: impl IntoIterator<Item = Next>) -> Hint {
        Hint(pieces.into_iter().collect())
    }

    /// The pieces, if there is more than words.
    pub fn into_next(self) -> Vec<Next> {
        match self.0.iter().all(|one| matches!(one, Next::Words { .. })) {
            true => Vec::new(),
            false => self.0,
        }
    }
}

/// In the words of the API, which every caller understands who has the list of verbs.
impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&say(&self.0, &Plain).unwrap_or_default())
    }
}

impl From<&str> for Next {
    fn from(text: &str) -> Next {
        Next::Words {
            text: text.to_string(),
        }
    }
}

impl From<String> for Next {
    fn from(text: String) -> Next {
        Next::Words { text }
    }
}

impl From<Verb> for Next {
    fn from(verb: Verb) -> Next {
        Next::Verb(verb)
    }
}

impl From<Field> for Next {
    fn from(field: Field) -> Next {
        Next::Field(field)
    }
}

impl<T: Into<Next>> From<T> for Hint {
    fn from(piece: T) -> Hint {
        Hint(vec![piece.into()])
    }
}

impl Next {
    /// With every text that came from elsewhere passed through `clean`.
    #[must_use]
    pub fn cleaned(self, clean: &impl Fn(&str) -> String) -> Next {
        let value = |value: Value| match value {
            Value::String(text) => Value::String(clean(&text)),
            other => other,
        };
        match self {
            Next::Words { text } => Next::Words { text: clean(&text) },
            Next::Host { command } => Next::Host {
                command: clean(&command),
            },
            Next::Verb(Verb { verb, arguments }) => Next::Verb(Verb {
                verb,
                arguments: arguments
                    .into_iter()
                    .map(|(name, one)| (name, value(one)))
                    .collect(),
            }),
            Next::Field(field) => Next::Field(Field {
                value: field.value.map(value),
                ..field
            }),
            Next::Setting { .. } | Next::Unknown => self,
        }
    }
}

/// How a face says the steps of a hint.
pub trait Wording {
    fn verb(&self, verb: &Verb) -> String;
    fn field(&self, field: &Field) -> String;

    /// Callers elsewhere cannot do it themselves, and are told so.
    fn host(&self, command: &str) -> String {
        format!("`{command}` (for the operator, on the host)")
    }

    fn setting(&self, key: &str) -> String {
        format!("{key} in the operator's config.toml")
    }
}

/// A hint in the words of a face; nothing if a step is from a newer motu.
pub fn say(next: &[Next], wording: &impl Wording) -> Option<String> {
    let mut text = String::new();
    for one in next {
        match one {
            Next::Words { text: words } => text.push_str(words),
            Next::Verb(verb) => text.push_str(&wording.verb(verb)),
            Next::Field(field) => text.push_str(&wording.field(field)),
            Next::Host { command } => text.push_str(&wording.host(command)),
            Next::Setting { key } => text.push_str(&wording.setting(key)),
            Next::Unknown => return None,
        }
    }
    Some(text)
}

/// The names of the API: verbs are operations, fields are what its requests have.
struct Plain;

impl Wording for Plain {
    fn verb(&self, verb: &Verb) -> String {
        format!("`{}`{}", verb.verb, given(&verb.arguments))
    }

    fn field(&self, field: &Field) -> String {
        named(field)
    }
}

/// Arguments as the API has them, such as ` with id: "sb-a"`.
pub fn given<'a>(arguments: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    let shown = arguments
        .into_iter()
        .map(|(name, value)| format!("{name}: {value}"));
    match shown.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        some => format!(" with {some}"),
    }
}

/// A field as the API has it, such as `` `runtime: "qemu"` ``.
pub fn named(field: &Field) -> String {
    let mut text = match &field.value {
        Some(value) => format!("`{}: {value}`", field.field),
        None => format!("`{}`", field.field),
    };
    if let Some(verb) = &field.verb {
        text.push_str(&format!(" of `{verb}`"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use serde_json::json;

    fn asked() -> Error {
        Error::invalid("no").hint(hint![
            verb("stop_service").with("id", "ws").with("name", "web"),
            " ends one; or give ",
            field("runtime").is("qemu").of("create_workspace"),
            ", ",
            host("ulimit -n 1"),
            " or ",
            setting("max_sandboxes"),
        ])
    }

    #[test]
    fn the_api_says_verbs_and_fields() {
        assert_eq!(
            asked().hint.unwrap(),
            "`stop_service` with id: \"ws\", name: \"web\" ends one; or give `runtime: \"qemu\"` of \
             `create_workspace`, `ulimit -n 1` (for the operator, on the host) or max_sandboxes in \
             the operator's config.toml"
        );
    }

    #[test]
    fn a_hint_is_the_same_after_the_wire() {
        let wire = serde_json::to_value(asked()).unwrap();
        assert_eq!(
            wire["next"][0],
            json!({"type": "verb", "verb": "stop_service", "arguments": {"id": "ws", "name": "web"}})
        );
        assert_eq!(
            wire["next"][2],
            json!({"type": "field", "field": "runtime", "value": "qemu", "verb": "create_workspace"})
        );
        assert_eq!(serde_json::from_value::<Error>(wire).unwrap(), asked());
    }

    #[test]
    fn words_alone_have_no_steps() {
        let wire = serde_json::to_value(Error::invalid("no").hint("name a file")).unwrap();
        assert_eq!(
            wire,
            json!({"kind": "invalid", "message": "no", "hint": "name a file"})
        );
    }

    #[test]
    fn a_step_of_a_newer_motu_leaves_the_words() {
        let wire = json!({"kind": "invalid", "message": "no", "hint": "sing",
                          "next": [{"type": "song", "tune": 1}]});
        let error = serde_json::from_value::<Error>(wire).unwrap();
        assert_eq!(error.next, [Next::Unknown]);
        assert_eq!(error.worded(&Plain).hint.as_deref(), Some("sing"));
    }

    #[test]
    fn what_came_from_elsewhere_is_cleaned_everywhere() {
        let clean = |text: &str| {
            text.replace("web", "[redacted]")
                .replace("qemu", "[redacted]")
        };
        let next: Vec<Next> = asked().next;
        let next: Vec<Next> = next.into_iter().map(|one| one.cleaned(&clean)).collect();
        let shown = format!("{next:?}");
        assert!(!shown.contains("web") && !shown.contains("qemu"), "{shown}");
    }
}
