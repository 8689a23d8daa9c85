//! The fields a tool takes: one description for the schema a model reads and for the check.

use motu_core::limits::{self, Limit};
use motu_core::{Error, Result};
use serde_json::{Map, Value, json};

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text of at most so many characters, or bytes when they are many.
    Text(u64),
    Integer {
        min: u64,
        max: u64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Flag,
    OneOf(&'static [&'static str]),
    /// A list of texts, of at most so many.
    Texts(u64),
    /// Names and texts, of at most so many.
    Map(u64),
    /// A command: a script as text, or a program and its arguments as a list.
    Command,
    /// Anything this schema (JSON) describes; the service's own types check it.
    Nested(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Usual {
    None,
    Integer(u64),
    Number(f64),
    Flag(bool),
    Text(&'static str),
}

/// One field of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    usual: Usual,
    about: &'static str,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        required: false,
        usual: Usual::None,
        about: "",
    }
}

/// Text of at most so many characters.
pub const fn text(name: &'static str, max: u64) -> Field {
    field(name, Kind::Text(max))
}

/// A number of the table of limits, with its bounds and its default.
pub const fn limited(name: &'static str, limit: &Limit) -> Field {
    let mut field = field(
        name,
        Kind::Integer {
            min: limit.min,
            max: limit.max,
        },
    );
    field.usual = Usual::Integer(limit.default);
    field
}

pub const fn integer(name: &'static str, min: u64, max: u64) -> Field {
    field(name, Kind::Integer { min, max })
}

pub const fn seconds(name: &'static str, usual: f64, max: f64) -> Field {
    let mut field = field(name, Kind::Number { min: 0.0, max });
    field.usual = Usual::Number(usual);
    field
}

/// False unless told otherwise.
pub const fn flag(name: &'static str) -> Field {
    let mut field = field(name, Kind::Flag);
    field.usual = Usual::Flag(false);
    field
}

/// True unless told otherwise.
pub const fn flag_on(name: &'static str) -> Field {
    let mut field = field(name, Kind::Flag);
    field.usual = Usual::Flag(true);
    field
}

pub const fn one_of(name: &'static str, words: &'static [&'static str]) -> Field {
    field(name, Kind::OneOf(words))
}

pub const fn texts(name: &'static str, max: u64) -> Field {
    field(name, Kind::Texts(max))
}

pub const fn map(name: &'static str, max: u64) -> Field {
    field(name, Kind::Map(max))
}

/// The command of a tool: text is a script, a list a program and its arguments.
pub const fn command() -> Field {
    field("command", Kind::Command)
        .required()
        .about("A script, or a program and its arguments.")
}

pub const fn nested(name: &'static str, schema: &'static str) -> Field {
    field(name, Kind::Nested(schema))
}

impl Field {
    pub const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    pub const fn about(mut self, about: &'static str) -> Field {
        self.about = about;
        self
    }

    pub const fn usually(mut self, usual: &'static str) -> Field {
        self.usual = Usual::Text(usual);
        self
    }

    pub const fn usually_number(mut self, usual: u64) -> Field {
        self.usual = Usual::Integer(usual);
        self
    }

    /// The field as a model reads it.
    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            // Very large limits are left out of the schema: the check enforces them.
            Kind::Text(max) if max > SAID => json!({"type": "string"}),
            Kind::Text(max) => json!({"type": "string", "maxLength": max}),
            Kind::Integer { min, max } => {
                json!({"type": "integer", "minimum": min, "maximum": max})
            }
            Kind::Number { min, max } => {
                json!({"type": "number", "minimum": whole(min), "maximum": whole(max)})
            }
            Kind::Flag => json!({"type": "boolean"}),
            Kind::OneOf(words) => json!({"type": "string", "enum": words}),
            Kind::Texts(max) => {
                json!({"type": "array", "items": {"type": "string"}, "maxItems": max})
            }
            Kind::Map(_) => {
                json!({"type": "object", "additionalProperties": {"type": "string"}})
            }
            Kind::Command => json!({"anyOf": [
                {"type": "string"}, {"type": "array", "items": {"type": "string"}},
            ]}),
            Kind::Nested(schema) => {
                serde_json::from_str(schema).expect("the schemas of the tables are JSON")
            }
        };
        match self.usual {
            Usual::None => {}
            Usual::Integer(value) => schema["default"] = value.into(),
            Usual::Number(value) => schema["default"] = whole(value),
            Usual::Flag(value) => schema["default"] = value.into(),
            Usual::Text(value) => schema["default"] = value.into(),
        }
        if !self.about.is_empty() {
            schema["description"] = self.about.into();
        }
        schema
    }

    fn check(&self, value: &Value) -> Result<()> {
        let name = self.name;
        let wrong = |expected: String| {
            Err(Error::invalid(format!("{name} must be {expected}"))
                .details(json!({"field": name})))
        };
        match self.kind {
            Kind::Text(max) => match value.as_str() {
                Some(text) if length(text, max) <= max => Ok(()),
                Some(text) => Err(Error::invalid(format!(
                    "{name} is {} long; at most {max} is taken",
                    length(text, max)
                ))
                .details(json!({"field": name, "max": max}))),
                None => wrong("text".to_string()),
            },
            Kind::Integer { min, max } => match integer_of(value) {
                Some(number) if (min..=max).contains(&number) => Ok(()),
                _ => wrong(format!("a whole number from {min} to {max}")),
            },
            Kind::Number { min, max } => match value.as_f64() {
                Some(number) if (min..=max).contains(&number) => Ok(()),
                _ => wrong(format!("a number from {min} to {max}")),
            },
            Kind::Flag => match value.is_boolean() {
                true => Ok(()),
                false => wrong("true or false".to_string()),
            },
            Kind::OneOf(words) => match value.as_str() {
                Some(text) if words.contains(&text) => Ok(()),
                _ => wrong(format!("one of: {}", words.join(", "))),
            },
            Kind::Texts(max) => match value.as_array() {
                Some(items) if items.len() as u64 <= max && items.iter().all(Value::is_string) => {
                    Ok(())
                }
                _ => wrong(format!("a list of at most {max} texts")),
            },
            Kind::Map(max) => match value.as_object() {
                Some(items)
                    if items.len() as u64 <= max && items.values().all(Value::is_string) =>
                {
                    Ok(())
                }
                _ => wrong(format!("an object of at most {max} names with texts")),
            },
            Kind::Command => self.check_command(value),
            Kind::Nested(_) => Ok(()),
        }
    }

    fn check_command(&self, value: &Value) -> Result<()> {
        let name = self.name;
        let wrong = |message: String| Err(Error::invalid(message).details(json!({"field": name})));
        let bytes = match value {
            Value::String(text) => text.len(),
            Value::Array(words) if words.iter().all(Value::is_string) => {
                let words = words.iter().filter_map(Value::as_str);
                words.map(|word| word.len() + 1).sum()
            }
            _ => return wrong(format!("{name} must be text, or a list of texts")),
        };
        let max = limits::ARGV_BYTES.max;
        match bytes as u64 > max {
            true => wrong(format!("{name} is {bytes} long; at most {max} is taken")),
            false => Ok(()),
        }
    }
}

/// Texts longer than this have no bound in the schema.
const SAID: u64 = 4096;

/// In characters where the schema says the bound, as it does; else in bytes.
fn length(text: &str, max: u64) -> u64 {
    match max > SAID {
        true => text.len() as u64,
        false => text.chars().count() as u64,
    }
}

/// A whole number, also when a client wrote it as `30.0`.
pub fn integer_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64)
    })
}

/// `30`, not `30.0`: a schema is read by a model that pays for every character.
fn whole(number: f64) -> Value {
    match number.fract() == 0.0 {
        true => (number as i64).into(),
        false => number.into(),
    }
}

/// The input schema of these fields.
pub fn input(fields: &[Field]) -> Map<String, Value> {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| (field.name.to_string(), field.schema()))
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_string(), "object".into());
    schema.insert("properties".to_string(), properties.into());
    if !required.is_empty() {
        schema.insert("required".to_string(), required.into());
    }
    schema.insert("additionalProperties".to_string(), false.into());
    schema
}

/// The output schema of `name:type` pairs; a type with a question mark may be null. Nothing is
/// required: an error has the same place, and some clients check it against this schema too.
pub fn output(fields: &[(&str, &str)]) -> Map<String, Value> {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, kind)| {
            let kind = match kind.strip_suffix('?') {
                Some(kind) => json!({"type": [kind, "null"]}),
                None => json!({"type": kind}),
            };
            (name.to_string(), kind)
        })
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_string(), "object".into());
    schema.insert("properties".to_string(), properties.into());
    schema
}

/// Refuses what is unknown, missing or out of bounds. A null is as good as nothing.
pub fn check(fields: &[Field], mut given: Map<String, Value>) -> Result<Map<String, Value>> {
    given.retain(|_, value| !value.is_null());
    for name in given.keys() {
        if !fields.iter().any(|field| field.name == name) {
            let allowed: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let shown = motu_core::shown::quoted(name, 60);
            return Err(Error::invalid(format!("there is no field {shown:?}"))
                .hint(match allowed.is_empty() {
                    true => "this tool takes no fields".to_string(),
                    false => format!("the fields are: {}", allowed.join(", ")),
                })
                .details(json!({"field": shown, "allowed": allowed})));
        }
    }
    for field in fields {
        match given.get(field.name) {
            Some(value) => field.check(value)?,
            None if field.required => {
                return Err(Error::invalid(format!("{} is missing", field.name))
                    .details(json!({"field": field.name})));
            }
            None => {}
        }
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::limits;

    const FIELDS: &[Field] = &[
        text("command", 8).required(),
        limited("timeout_seconds", &limits::TIMEOUT_SECONDS),
        one_of("format", &["a", "b"]),
        texts("keys", 2),
        map("labels", 1),
    ];

    fn refused(given: Value) -> Error {
        check(FIELDS, given.as_object().unwrap().clone()).unwrap_err()
    }

    #[test]
    fn an_unknown_field_is_named_and_the_others_are_listed() {
        let error = refused(json!({"command": "a", "timout": 3}));
        assert_eq!(error.message, "there is no field \"timout\"");
        let hint = error.hint.unwrap();
        assert!(hint.contains("command, timeout_seconds"), "{hint}");
    }

    #[test]
    fn bounds_are_checked_and_named() {
        assert!(refused(json!({})).message.contains("command is missing"));
        assert!(refused(json!({"command": 3})).message.contains("text"));
        assert!(
            refused(json!({"command": "123456789"}))
                .message
                .contains("at most 8")
        );
        let wrong = json!({"command": "a", "timeout_seconds": 0});
        assert!(refused(wrong).message.contains("from 1 to 86400"));
        assert!(
            refused(json!({"command": "a", "format": "c"}))
                .message
                .contains("a, b")
        );
        assert!(
            refused(json!({"command": "a", "keys": ["1", "2", "3"]}))
                .message
                .contains("2")
        );
        assert!(
            refused(json!({"command": "a", "labels": {"a": 1}}))
                .message
                .contains("texts")
        );
    }

    #[test]
    fn a_command_is_text_or_a_list_of_texts() {
        let checked = |given: Value| check(&[command()], given.as_object().unwrap().clone());
        assert!(checked(json!({"command": "make test"})).is_ok());
        assert!(checked(json!({"command": ["make", "test"]})).is_ok());
        for wrong in [json!(3), json!(["make", 3]), json!({"make": "test"})] {
            let error = checked(json!({"command": wrong})).unwrap_err();
            assert!(error.message.contains("a list of texts"), "{error:?}");
        }
        let long = "x".repeat(limits::ARGV_BYTES.max as usize);
        assert!(checked(json!({"command": [long, "x"]})).is_err());
        assert!(checked(json!({})).is_err());
    }

    #[test]
    fn a_null_is_nothing_and_a_whole_float_is_a_number() {
        let given = json!({"command": "a", "timeout_seconds": 3.0, "format": null});
        let given = check(FIELDS, given.as_object().unwrap().clone()).unwrap();
        assert!(!given.contains_key("format"));
    }
}
