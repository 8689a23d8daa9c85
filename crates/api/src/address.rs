//! Encodes calls as addresses and queries, and decodes them; used by client and server.
//!
//! A path inside a machine that is not UTF-8 is sent as base64 in a separate field,
//! `path_base64` instead of `path`. In Rust both are one field.

use motu_core::shown::misread;
use motu_core::verb::{Ask, Nothing, Verb};
use motu_core::{Error, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::TypeId;

const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Percent-encodes a part of an address, such as a name with slashes.
pub fn segment(part: &str) -> String {
    utf8_percent_encode(part, SEGMENT).to_string()
}

/// The address of a call: the path of its verb with its parts filled in.
pub fn address<V: Verb>(call: &V) -> Result<String> {
    let mut parts = call.parts().into_iter();
    let mut address = String::new();
    for step in V::INFO.path.split('/').skip(1) {
        address.push('/');
        if !step.starts_with('{') {
            address.push_str(step);
            continue;
        }
        let part = parts.next().unwrap_or_default();
        if part.is_empty() {
            // An empty part would result in another address.
            return Err(Error::invalid("the name is empty"));
        }
        address.push_str(&segment(&part));
    }
    Ok(address)
}

/// The query of a request; empty if it has no fields.
pub fn query<A: Ask>(ask: &A) -> Result<String> {
    let encoded = match A::GUEST_PATHS {
        [] => serde_urlencoded::to_string(ask),
        _ => serde_urlencoded::to_string(outward(ask)?),
    };
    encoded.map_err(|error| Error::internal(format!("encode a query: {error}")))
}

/// A request as sent: paths that are not UTF-8 are in their `_base64` fields.
pub fn outward<A: Ask>(ask: &A) -> Result<Map<String, Value>> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(ask) else {
        return Err(Error::internal("a request is not an object"));
    };
    for name in A::GUEST_PATHS {
        if let Some(Value::String(text)) = fields.get(*name)
            && let Some(base64) = text.strip_prefix('\0')
        {
            let base64 = base64.to_string();
            fields.remove(*name);
            fields.insert(format!("{name}_base64"), Value::String(base64));
        }
    }
    Ok(fields)
}

/// Decodes a request from a query.
pub fn from_query<A: Ask>(query: &str) -> Result<A> {
    let given;
    let query = match A::GUEST_PATHS {
        [] => query,
        _ => {
            given = inward_query::<A>(query)?;
            &given
        }
    };
    serde_urlencoded::from_str(query).map_err(|error| unreadable("query", &error))
}

/// Decodes a request from a body. Only a verb without a request takes an empty one: a body that was
/// lost on its way must not ask for all defaults.
pub fn from_body<A: Ask>(body: &[u8]) -> Result<A> {
    let asks_nothing = TypeId::of::<A>() == TypeId::of::<Nothing>();
    let body: &[u8] = match body.is_empty() {
        true if asks_nothing => b"{}",
        true => return Err(no_body()),
        false => body,
    };
    check_object(body)?;
    let wrong = |error: serde_json::Error| unreadable("request", &error);
    if A::GUEST_PATHS.is_empty() {
        return read_json(body).map_err(wrong);
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(body).map_err(wrong)?;
    fields.values_mut().for_each(make_whole);
    for name in A::GUEST_PATHS {
        let odd = fields.remove(&format!("{name}_base64"));
        match (fields.contains_key(*name), odd) {
            (true, Some(_)) => return Err(twice(name)),
            (false, Some(Value::String(base64))) => {
                fields.insert(name.to_string(), Value::String(format!("\0{base64}")));
            }
            (false, None) => return Err(missing(name)),
            _ => {}
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(wrong)
}

/// The error for a request whose body is needed and empty.
pub fn no_body() -> Error {
    Error::invalid("the request has no body")
        .hint("send its fields as JSON; `{}` leaves all of them at their defaults")
}

/// Refuses what is no JSON object: a list would be read as the fields in their order, and an empty
/// one as all defaults.
pub fn check_object(body: &[u8]) -> Result<()> {
    match body.trim_ascii_start().first() {
        Some(b'{') => Ok(()),
        _ => Err(Error::invalid("the request is not a JSON object")),
    }
}

/// Reads JSON, in which a whole number may be written as `1.0`: to JSON Schema it is an integer.
pub fn read_json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(text).or_else(|error| {
        // Most requests need no second look.
        let mut value: Value = match text.contains(&b'.') || text.contains(&b'e') {
            true => serde_json::from_slice(text).map_err(|_| error)?,
            false => return Err(error),
        };
        make_whole(&mut value);
        serde_json::from_value(value)
    })
}

/// Writes whole numbers as integers.
fn make_whole(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|number| {
                number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(number)
            });
            if let Some(whole) = whole {
                *value = Value::from(whole as u64);
            }
        }
        _ => {}
    }
}

/// Merges each `_base64` field of a query into its path field.
fn inward_query<A: Ask>(query: &str) -> Result<String> {
    let pairs: Vec<(String, String)> =
        serde_urlencoded::from_str(query).map_err(|error| unreadable("query", &error))?;
    let odd = |key: &str| {
        let name = key.strip_suffix("_base64")?;
        A::GUEST_PATHS.iter().find(|path| **path == name)
    };
    for name in A::GUEST_PATHS {
        let given = |key: &str| key == *name || odd(key) == Some(name);
        match pairs.iter().filter(|(key, _)| given(key)).count() {
            0 => return Err(missing(name)),
            1 => {}
            _ => return Err(twice(name)),
        }
    }
    let pairs: Vec<(&str, String)> = pairs
        .iter()
        .map(|(key, value)| match odd(key) {
            Some(name) => (*name, format!("\0{value}")),
            None => (key.as_str(), value.clone()),
        })
        .collect();
    serde_urlencoded::to_string(pairs)
        .map_err(|error| Error::internal(format!("encode a query: {error}")))
}

/// The error for an unreadable request; a missing field is named.
fn unreadable(what: &str, error: &dyn std::fmt::Display) -> Error {
    let error = misread(error);
    let field = error
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    match field {
        Some(field) => Error::invalid(format!("{field} is missing"))
            .hint(format!("give `{field}`"))
            .details(serde_json::json!({"field": field})),
        None => Error::invalid(format!("the {what} cannot be read: {error}")),
    }
}

fn missing(name: &str) -> Error {
    Error::invalid("a path is missing").hint(format!(
        "give `{name}`, or `{name}_base64` when it is not UTF-8"
    ))
}

fn twice(name: &str) -> Error {
    Error::invalid("a path is given twice").hint(format!("either `{name}` or `{name}_base64`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::files::{AtPath, GuestPath, MakeDirectory, MoveFile};
    use motu_core::key::CreateKey;
    use motu_core::verb::DeleteSnapshot;

    #[test]
    fn parts_are_encoded() {
        let call = DeleteSnapshot::read(&["sb-a", "a/b c"], Nothing {}).unwrap();
        assert_eq!(
            address(&call).unwrap(),
            "/v1/workspaces/sb-a/snapshots/a%2Fb%20c"
        );
    }

    #[test]
    fn paths_have_two_forms() {
        for bytes in [&b"/a b"[..], b"/a\xff"] {
            let path = GuestPath::new(bytes.to_vec()).unwrap();
            let ask = AtPath::from(path.clone());
            let query = query(&ask).unwrap();
            assert_eq!(query.contains("path_base64="), bytes.contains(&0xff));
            assert_eq!(from_query::<AtPath>(&query), Ok(ask));
            let ask = MoveFile {
                from: path.clone(),
                to: path,
                overwrite: true,
                user: None,
            };
            let body = serde_json::to_vec(&outward(&ask).unwrap()).unwrap();
            assert_eq!(from_body::<MoveFile>(&body), Ok(ask));
        }
    }

    #[test]
    fn only_a_verb_without_a_request_takes_an_empty_body() {
        assert_eq!(from_body::<Nothing>(b""), Ok(Nothing {}));
        let refused = from_body::<CreateKey>(b"").unwrap_err();
        assert_eq!(refused.message, "the request has no body");
        assert!(from_body::<CreateKey>(b" {}").is_ok());
        for wrong in ["[]", "[null]", "null", " ", "1"] {
            assert!(from_body::<CreateKey>(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_is_given_once() {
        for query in [
            "",
            "path_base64=Lw&path=%2F",
            "path=%2F&path=%2F",
            "path=%2F&x=1",
        ] {
            assert!(from_query::<AtPath>(query).is_err(), "{query}");
        }
        let twice = br#"{"path": "/", "path_base64": "Lw"}"#;
        for body in [&b""[..], twice, br#"{"path": "/", "x": 1}"#] {
            assert!(from_body::<MakeDirectory>(body).is_err());
        }
    }
}
