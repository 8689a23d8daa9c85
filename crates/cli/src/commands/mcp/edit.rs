//! Changing one entry of somebody else's settings, and nothing else.
//!
//! Settings are text that people wrote: comments, order and blanks stay. So the place is
//! found in the text and only that part is replaced. The result is read again and must be
//! the old settings with the one entry changed, or nothing is written.

use motu_core::{Error, Result};
use serde_json::Value;
use std::ops::Range;

/// A member of an object: its name, and where its value is.
struct Member {
    name: String,
    value: Range<usize>,
}

/// An object in a text.
struct Object {
    members: Vec<Member>,
    /// After its opening brace.
    inside: usize,
}

/// Walks over JSON with comments and commas too many.
struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl Walk<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn broken(&self) -> Error {
        let line = self.text[..self.at.min(self.text.len())]
            .matches('\n')
            .count()
            + 1;
        Error::invalid(format!("line {line} is not JSON"))
    }

    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            self.at += match rest {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => 1,
                [b'/', b'/', ..] => rest
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(rest.len()),
                [b'/', b'*', ..] => match self.text[self.at..].find("*/") {
                    Some(end) => end + 2,
                    None => rest.len(),
                },
                _ => return,
            };
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.rest().first() == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn string(&mut self) -> Result<String> {
        let begin = self.at;
        if !self.take(b'"') {
            return Err(self.broken());
        }
        loop {
            match self.rest() {
                [b'\\', _, ..] => self.at += 2,
                [b'"', ..] => break,
                [_, ..] => self.at += 1,
                [] => return Err(self.broken()),
            }
        }
        self.at += 1;
        serde_json::from_str(&self.text[begin..self.at]).map_err(|_| self.broken())
    }

    /// Passes over any value.
    fn value(&mut self, depth: usize) -> Result<()> {
        match self.rest().first() {
            Some(b'{') => self.object(depth).map(drop),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(drop),
            _ => {
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = self.rest().iter().take_while(|byte| word(byte)).count();
                let number = &self.text[self.at..self.at + length];
                if serde_json::from_str::<Value>(number).is_err() {
                    return Err(self.broken());
                }
                self.at += length;
                Ok(())
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<()> {
        self.at += 1;
        loop {
            self.skip();
            if self.take(b']') {
                return Ok(());
            }
            self.value(deeper(depth)?)?;
            self.skip();
            if !self.take(b',') && self.rest().first() != Some(&b']') {
                return Err(self.broken());
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Object> {
        if !self.take(b'{') {
            return Err(self.broken());
        }
        let inside = self.at;
        let mut members = Vec::new();
        loop {
            self.skip();
            if self.take(b'}') {
                return Ok(Object { members, inside });
            }
            let name = self.string()?;
            self.skip();
            if !self.take(b':') {
                return Err(self.broken());
            }
            self.skip();
            let begin = self.at;
            self.value(deeper(depth)?)?;
            members.push(Member {
                name,
                value: begin..self.at,
            });
            self.skip();
            if !self.take(b',') && self.rest().first() != Some(&b'}') {
                return Err(self.broken());
            }
        }
    }
}

/// Settings are not nested deeper than this.
fn deeper(depth: usize) -> Result<usize> {
    match depth {
        0..64 => Ok(depth + 1),
        _ => Err(Error::invalid("it is nested too deeply")),
    }
}

/// The whole text as one object.
fn whole(text: &str) -> Result<Object> {
    let mut walk = Walk { text, at: 0 };
    walk.skip();
    let object = walk.object(0)?;
    walk.skip();
    match walk.at == text.len() {
        true => Ok(object),
        false => Err(walk.broken()),
    }
}

/// The value of a text with comments, for comparing.
pub fn read(text: &str) -> Result<Value> {
    let mut plain = String::with_capacity(text.len());
    let mut walk = Walk { text, at: 0 };
    loop {
        walk.skip();
        let begin = walk.at;
        match walk.rest().first() {
            None => break,
            Some(b'"') => {
                walk.string()?;
            }
            Some(_) => walk.at += text[begin..].chars().next().map_or(1, char::len_utf8),
        }
        let piece = &text[begin..walk.at];
        // A trailing comma before the end of a list or object.
        if matches!(piece, "]" | "}") && plain.ends_with(',') {
            plain.pop();
        }
        plain.push_str(piece);
    }
    serde_json::from_str(&plain).map_err(|error| Error::invalid(format!("it is not JSON: {error}")))
}

/// JSON for people, with two blanks a level.
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// JSON at some depth of a text.
fn indented(value: &Value, depth: usize) -> String {
    pretty(value).replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

/// Puts `value` at `key`.`name` of a JSON text, and leaves the rest as it is.
pub fn json(text: &str, key: &str, name: &str, value: &Value) -> Result<String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let object = whole(text)?;
    let edited = match object.members.iter().find(|member| member.name == key) {
        None => {
            let servers = serde_json::json!({name: value});
            insert(text, &object, key, &indented(&servers, 1), 1)
        }
        Some(servers) => {
            let mut walk = Walk {
                text,
                at: servers.value.start,
            };
            let inner = walk
                .object(0)
                .map_err(|_| Error::invalid(format!("{key} is not an object")))?;
            match inner.members.iter().find(|member| member.name == name) {
                Some(old) => {
                    let new = indented(value, 2);
                    [&text[..old.value.start], &new, &text[old.value.end..]].concat()
                }
                None => insert(text, &inner, name, &indented(value, 2), 2),
            }
        }
    };
    let mut expected = read(text)?;
    expected[key][name] = value.clone();
    match read(&edited)? == expected {
        true => Ok(edited),
        false => Err(Error::invalid("the entry has no certain place in it")
            .hint("put it in by hand; without --install it is printed")),
    }
}

/// A new first member of an object.
fn insert(text: &str, object: &Object, name: &str, value: &str, depth: usize) -> String {
    let pad = "  ".repeat(depth);
    let name = Value::from(name);
    let end = match object.members.is_empty() {
        true => format!("\n{}", "  ".repeat(depth - 1)),
        false => ",".to_string(),
    };
    let (before, after) = text.split_at(object.inside);
    let after = if object.members.is_empty() {
        after.trim_start_matches([' ', '\t', '\r', '\n'])
    } else {
        after
    };
    format!("{before}\n{pad}{name}: {value}{end}{after}")
}

/// Puts a table into TOML text, in the place of the one with the same name.
pub fn toml(text: &str, table: &str, name: &str, lines: &str) -> Result<String> {
    let parse = |text: &str| -> Result<toml::Table> {
        let parsed = text.parse::<toml::Table>();
        parsed.map_err(|error| Error::invalid(format!("it is not TOML: {}", error.message())))
    };
    let old = parse(text)?;
    let header = format!("[{table}.{name}]");
    let below = format!("[{table}.{name}.");
    let mut kept = String::new();
    let mut ours = false;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if bare.starts_with('[') {
            ours = bare == header || bare.starts_with(&below);
        }
        if !ours {
            kept.push_str(line);
        }
    }
    if !kept.is_empty() {
        kept.truncate(kept.trim_end().len());
        kept.push_str("\n\n");
    }
    let edited = kept + lines;
    let (mut expected, entry) = (old, parse(lines)?);
    let servers = expected
        .entry(table)
        .or_insert_with(|| toml::Table::new().into());
    match (servers.as_table_mut(), entry[table].get(name)) {
        (Some(servers), Some(entry)) => servers.insert(name.to_string(), entry.clone()),
        _ => return Err(Error::invalid(format!("{table} is not a table"))),
    };
    match parse(&edited)? == expected {
        true => Ok(edited),
        false => Err(Error::invalid("the entry has no certain place in it")
            .hint("put it in by hand; without --install it is printed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as object;

    #[test]
    fn an_entry_is_put_in_and_the_rest_stays() {
        let old = "// mine\n{\n  \"b\": 1, // one\n  \"servers\": {\n    \"x\": {\"a\": [1, 2,],},\n  },\n  \"a\": \"//\",\n}\n";
        let new = json(old, "servers", "motu", &object!({"command": "m"})).unwrap();
        assert!(new.starts_with("// mine\n{\n  \"b\": 1, // one\n"), "{new}");
        assert_eq!(
            read(&new).unwrap(),
            object!({"b": 1, "servers": {"x": {"a": [1, 2]}, "motu": {"command": "m"}}, "a": "//"})
        );
        // With another value it is replaced, not added.
        let again = json(&new, "servers", "motu", &object!({"command": "n"})).unwrap();
        assert_eq!(read(&again).unwrap()["servers"]["motu"]["command"], "n");
        assert_eq!(again.matches("motu").count(), 1);
    }

    #[test]
    fn nothing_becomes_something() {
        for old in ["", "  \n", "{}", "{ }\n", "{\"servers\": {}}"] {
            let new = json(old, "servers", "motu", &object!({"command": "m"})).unwrap();
            let expected = object!({"servers": {"motu": {"command": "m"}}});
            assert_eq!(read(&new).unwrap(), expected, "{old:?}: {new}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for old in [
            "{",
            "[]",
            "{\"a\" 1}",
            "{\"servers\": 3}",
            "{\"a\": nope}",
            "{} x",
            "{\"a\": \"b}",
        ] {
            assert!(json(old, "servers", "motu", &object!({})).is_err(), "{old}");
        }
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(5000), "]".repeat(5000));
        assert!(json(&deep, "servers", "motu", &object!({})).is_err());
    }

    #[test]
    fn a_table_is_put_in_and_the_rest_stays() {
        let lines = "[mcp_servers.motu]\ncommand = \"m\"\n";
        let old = "# mine\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\"\n";
        let new = toml(old, "mcp_servers", "motu", lines).unwrap();
        assert!(new.starts_with(old), "{new}");
        let changed = "[mcp_servers.motu]\ncommand = \"n\"\n";
        let again = toml(&new, "mcp_servers", "motu", changed).unwrap();
        assert!(
            again.contains("command = \"n\"") && !again.contains("command = \"m\""),
            "{again}"
        );
        assert!(toml("a = [", "mcp_servers", "motu", lines).is_err());
        let inline = "mcp_servers = { motu = { command = \"x\" } }\n";
        assert!(toml(inline, "mcp_servers", "motu", lines).is_err());
    }
}
